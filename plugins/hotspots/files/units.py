"""How busy the units of the AI Core were, from the columns of a profile; and which of them limits.

Columns are called `aic_mac_ratio`, `aiv_vec_time(us)`, `mac_ratio`, `aic_cube_ratio` …, by version and chip.
A ratio is of the time of its core (`aicore_time`, `aiv_time`), so the times of a unit are added and divided
by the added times of its core; where there are ratios only, they are weighted by it.  Of an operator that
runs on both cores all shares are of the one that ran longer, and of a unit that both have the busier one's.
"""

from __future__ import annotations

from collections.abc import Sequence

from ascend_tui.frozen import frozen

from ..snapshot import Bound, Units
from .columns import Header

BUSY = 0.5
"""A unit that is busy for less than about half of the time is not what limits."""
SURELY = 0.8
"""From here on a unit limits whatever those do that were not measured."""

_UNITS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cube", ("mac", "cube")),
    ("vector", ("vec", "vector")),
    ("scalar", ("scalar",)),
    ("mte1", ("mte1",)),
    ("mte2", ("mte2",)),
    ("mte3", ("mte3",)),
    ("fixpipe", ("fixpipe",)),
)
_BY_TYPE = {
    "cube": ("mac fp16", "mac int8", "cube fp16", "cube int8", "cube fp32"),
    "vector": ("vec fp32", "vec fp16", "vec int32", "vec misc"),
}
"""Parts of a unit's cycles by data type, where the whole was not measured."""
_BOUNDS: tuple[Bound, ...] = ("cube", "vector", "scalar", "mte1", "mte2", "mte3", "fixpipe")
_CORES = ("aic", "aiv", "")


@frozen
class Term:
    """One column: `core` is the place of its core's time among the weights."""

    unit: str
    core: int
    at: int
    is_time: bool = False


class Columns:
    """Where a table has its measures.

    `weights` are the columns of the times of AI Core and vector core; -1 is the task's own time.
    """

    def __init__(self, header: Header) -> None:
        """Find them by their names."""
        aic, aiv = header.at("aicore time", "aic time"), header.at("aiv time", "vector core time")
        self.weights = (aic, aiv, aic)
        terms: list[Term] = []
        for core, prefix in enumerate(_CORES):
            for unit, words in _UNITS:
                terms += self._of_unit(header, core, prefix, unit, words)
            miss = header.at(f"{prefix} icache miss rate".strip())
            terms += [Term("icache", core, miss)] if miss >= 0 else []
        self.terms = tuple(terms)
        self.plain = [(place, one.core, one.at, one.is_time) for place, one in enumerate(terms)]
        """The terms for the innermost loop."""
        self.utilization = header.at("cube utilization")
        self.utilization_scale = header.scales[self.utilization] if self.utilization >= 0 else 1.0
        measured = {term.unit for term in terms}
        self.all_pipes = {"scalar", "mte2"} <= measured and bool({"cube", "vector"} & measured)

    def _of_unit(self, header: Header, core: int, prefix: str, unit: str, words: Sequence[str]) -> list[Term]:
        names = [f"{prefix} {word}".strip() for word in words]
        spent = header.at(*(f"{name} time" for name in names))
        if spent >= 0 and self.weights[core] >= 0:
            return [Term(unit, core, spent, is_time=True)]
        ratio = header.at(*(f"{name} ratio" for name in names))
        if ratio >= 0:
            return [Term(unit, core, ratio)]
        parts = (header.at(f"{prefix} {part} ratio".strip()) for part in _BY_TYPE.get(unit, ()))
        return [Term(unit, core, at) for at in parts if at >= 0]

    def __bool__(self) -> bool:
        """Tell whether there is any."""
        return bool(self.terms) or self.utilization >= 0


class Sums:
    """What one operator's calls add up to: of each term, of each core's time, of the utilization."""

    __slots__ = ("busy", "cores", "use", "use_weight", "weights")

    def __init__(self, columns: Columns) -> None:
        """Start with nothing."""
        self.busy = [0.0] * len(columns.terms)
        self.weights = [0.0] * len(columns.terms)
        self.cores = [0.0, 0.0, 0.0]
        self.use = self.use_weight = 0.0

    def units(self, columns: Columns, block_num: float | None) -> Units | None:
        """Return the shares, None where nothing was measured."""
        found: dict[str, dict[int, list[float]]] = {}
        for term, busy, weight in zip(columns.terms, self.busy, self.weights):
            if weight > 0:
                sums = found.setdefault(term.unit, {}).setdefault(term.core, [0.0, 0.0])
                sums[0] += busy
                sums[1] = max(sums[1], weight)
        longest = max((self.cores[core] for cores in found.values() for core in cores), default=0.0)
        ratios = {unit: max(self._held(cores, longest)) for unit, cores in found.items() if unit != "icache"}
        misses = list(found.get("icache", {}).values())
        utilization = self.use / self.use_weight if self.use_weight > 0 else None
        if not found and utilization is None and block_num is None:
            return None
        most = max(ratios.get("cube", 0.0), ratios.get("vector", 0.0))
        return Units(
            cube_ratio=ratios.get("cube"),
            vector_ratio=ratios.get("vector"),
            scalar_ratio=ratios.get("scalar"),
            mte1_ratio=ratios.get("mte1"),
            mte2_ratio=ratios.get("mte2"),
            mte3_ratio=ratios.get("mte3"),
            fixpipe_ratio=ratios.get("fixpipe"),
            icache_miss_rate=sum(one[0] for one in misses) / sum(one[1] for one in misses)
            if misses
            else None,
            cube_utilization=utilization,
            memory_bound=ratios["mte2"] / most if "mte2" in ratios and most > 0 else None,
            block_num=block_num,
            bound=_bound(ratios, columns.all_pipes),
        )

    def _held(self, cores: dict[int, list[float]], longest: float) -> list[float]:
        # A core that ran for a moment only, beside the other one, limits nothing however busy it was then.
        return [
            min(1.0, busy / weight) * (self.cores[core] / longest if longest > 0 else 1.0)
            for core, (busy, weight) in cores.items()
        ]


def _bound(ratios: dict[str, float], all_pipes: bool) -> Bound:
    held = [(ratios[unit], unit) for unit in _BOUNDS if unit in ratios]
    most, best = max(held, key=lambda one: one[0], default=(-1.0, _BOUNDS[0]))
    if most >= (BUSY if all_pipes else SURELY):
        return best
    return "latency" if all_pipes and held else ""
