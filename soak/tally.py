"""What a soak has counted, as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bench.target import median, percentile


@dataclass
class Tally:
    """Counts and times of one soak; `harm` is empty as long as the target was not harmed."""

    seed: int
    device: str
    cycles: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    late: int = 0
    attached: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    after_kill: Counter[str] = field(default_factory=Counter)
    leftovers: Counter[str] = field(default_factory=Counter)
    most_areas: int = 0
    residue: set[str] = field(default_factory=set)
    stops_ms: list[float] = field(default_factory=list)
    hellos_ms: list[float] = field(default_factory=list)
    detaches_ms: list[float] = field(default_factory=list)
    with_ms: list[float] = field(default_factory=list)
    without_ms: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    floors: list[float] = field(default_factory=list)
    growth: list[dict[str, Any]] = field(default_factory=list)
    hashes: int = 0
    steps: int = 0
    seconds: float = 0.0
    harm: str = ""

    @property
    def names_code(self) -> bool:
        """Tell whether a detach has named the page that calls from C into Python need."""
        return any("thunk" in one or "page with code" in one for one in self.residue)

    @property
    def attaches(self) -> int:
        """Return how often a shim was put in."""
        return sum(count for method, count in self.attached.items() if method != "reused")

    @property
    def is_good(self) -> bool:
        """Tell whether nothing was harmed and nothing was left."""
        return not self.harm and not +self.leftovers and self.hashes > 0

    def rows(self) -> list[list[str]]:
        """Return the rows of the table."""
        return [
            ["target harmed", self.harm or "no"],
            ["hashes identical with an undisturbed run", f"{self.hashes:,}, over {self.steps:,} steps"],
            ["attach/detach cycles", f"{self.cycles:,} in {self.seconds / 60:.1f} min"],
            *[[f"kills of the {kind}", f"{count:,}"] for kind, count in sorted(self.kills.items())],
            ["kills that came too late and are not counted", f"{self.late:,}"],
            ["attached", _counts(self.attached)],
            ["refused, by code", _counts(self.refused)],
            ["found after a kill", _counts(self.after_kill)],
            ["leftovers after a detach, by kind", _counts(+self.leftovers)],
            ["areas of killed helpers at once, at most", f"{self.most_areas}"],
            ["thread stopped", _times(self.stops_ms)],
            ["attach to hello", _times(self.hellos_ms)],
            ["detach", _times(self.detaches_ms)],
            ["step, attached / not", self._steps()],
            *[["memory in the target", _growth(one)] for one in self._some_growth()],
            *[["stays, and is said", one] for one in sorted(self.residue)],
        ]

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "seed": self.seed,
            "device": self.device,
            "harm": self.harm,
            "good": self.is_good,
            "cycles": self.cycles,
            "seconds": round(self.seconds, 1),
            "kills": dict(self.kills),
            "late": self.late,
            "attached": dict(self.attached),
            "refused": dict(self.refused),
            "after_kill": dict(self.after_kill),
            "leftovers": dict(+self.leftovers),
            "most_areas": self.most_areas,
            "hashes": self.hashes,
            "steps": self.steps,
            "stop_ms": figures(self.stops_ms),
            "hello_ms": figures(self.hellos_ms),
            "detach_ms": figures(self.detaches_ms),
            "step_with_ms": figures(self.with_ms),
            "step_without_ms": figures(self.without_ms),
            "step_ratio": median(self.ratios) if self.ratios else None,
            "step_ratio_floor": median(self.floors) if self.floors else None,
            "growth": self.growth,
            "residue": sorted(self.residue),
        }

    def _steps(self) -> str:
        if not self.ratios:
            return "-"
        ours = f"p50 {median(self.with_ms):.2f} / {median(self.without_ms):.2f} ms"
        floor = f"±{median(self.floors):.3f}" if self.floors else "unknown: too few pairs"
        return f"{ours}, paired ratio {median(self.ratios):.3f}, floor {floor}"

    def _some_growth(self) -> list[dict[str, Any]]:
        """Return the first, some between and the last of what was noted of memory."""
        last = len(self.growth) - 1
        return (
            [self.growth[at] for at in sorted({round(i * last / 5) for i in range(6)})] if last >= 0 else []
        )


def figures(values: list[float]) -> dict[str, float] | None:
    """Return count, median, 99th percentile and maximum; None of nothing."""
    if not values:
        return None
    named = {"p50": median(values), "p99": percentile(values, 0.99), "max": max(values)}
    return {"count": len(values), **{name: round(value, 3) for name, value in named.items()}}


def _times(values: list[float]) -> str:
    found = figures(values)
    if found is None:
        return "-"
    return f"p50 {found['p50']:.2f} ms, p99 {found['p99']:.2f}, max {found['max']:.2f} ({found['count']:,})"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) or "0"


def _growth(one: dict[str, Any]) -> str:
    areas = ", ".join(f"{count} {state}" for state, count in one["areas"].items()) or "none"
    names = ("anonymous_kib", "rss_kib", "undisturbed_rss_kib", "area_kib")
    anonymous, resident, calm, ours = (one[name] / 1024 for name in names)
    return (
        f"after {one['cycles']:,} cycles, {one['kills']} kills: anonymous {anonymous:.1f} MiB, "
        f"resident {resident:.1f} MiB (undisturbed {calm:.1f}), {one['mappings']} mappings; "
        f"areas of killed helpers: {areas} ({ours:.1f} MiB)"
    )
