"""From what probes sent to rows, phases and pulses; what does not fit is left out.

A probe speaks through a socket that others may write to, so nothing is taken on trust.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from ascend_tui.frozen import frozen
from ascend_tui.text import clean

from .kinds import kind_of
from .ranking import ranked
from .snapshot import Captured, Clock, DeviceUse, Phase, PhaseName, Place, Row, Site, Sync, Use

MOST_ROWS = 200
MOST_PARTS = 8
MOST_SITES = 64
MOST_SLOW = 32
MOST_FILES = 64
MOST_TEXT = 256
LARGEST = 2**53
_PHASES: tuple[PhaseName, ...] = get_args(PhaseName)


@frozen
class Sample:
    """One recorded step."""

    step: int
    shaped: bool
    """Whether it took shapes, which makes each call a little slower."""
    delay_us: float
    """How long the training's thread waited for a processor: that is in the times of its operators."""
    window_us: float
    outside_us: float
    rows: tuple[Row, ...]
    dropped: int
    kernels_timed: bool
    """Whether they were looked for: there may have been none."""
    kernels: tuple[Row, ...]
    kernels_dropped: int
    phases: tuple[Phase, ...]
    device: DeviceUse | None
    runs_on: str = ""


@frozen
class Pulse:
    """How the sampling goes, and the times of the newest steps; `slow` are (step, Unix time, seconds)."""

    on: bool = False
    every: int = 0
    samples: int = 0
    next_step: int | None = None
    pause_us: float = 0.0
    cost_us: float = 0.0
    why: str = ""
    sites_looked: int = 0
    sites_why: str = ""
    kernels_why: str = ""
    runs_on: str = ""
    collections: int = 0
    steps: int = 0
    p50_s: float = 0.0
    p99_s: float = 0.0
    slow: tuple[tuple[int, float, float], ...] = ()


def sample(data: Mapping[str, Any], step: int) -> Sample:
    """Return a recorded step; `step` is that of its record."""
    window_us = amount(data.get("window_us"))
    rows, dropped = _table(data, "host")
    kernels_data = data.get("kernels")
    kernels: tuple[Row, ...] = ()
    kernels_dropped, device = 0, None
    is_timed = isinstance(kernels_data, Mapping)
    if isinstance(kernels_data, Mapping):
        kernels, kernels_dropped = _table(kernels_data, "device")
        device = _device(kernels_data, kernels)
    return Sample(
        step=whole(data.get("step")) or step,
        shaped=data.get("shapes") is True,
        delay_us=amount(data.get("delay_us")),
        window_us=window_us,
        outside_us=min(amount(data.get("outside_us")), window_us),
        rows=rows,
        dropped=dropped,
        kernels_timed=is_timed,
        kernels=kernels,
        kernels_dropped=kernels_dropped,
        phases=_phases(data.get("phases"), window_us),
        device=device,
        runs_on=text(data.get("device"), 16),
    )


def pulse(data: Mapping[str, Any]) -> Pulse:
    """Return what a pulse tells."""
    steps = _mapping(data.get("steps"))
    sites = _mapping(data.get("sites"))
    slow = []
    for one in _list(steps.get("slow"), MOST_SLOW):
        if isinstance(one, (list, tuple)) and len(one) == 3 and amount(one[2]) > 0:
            slow.append((whole(one[0]), amount(one[1]), amount(one[2])))
    has_next = isinstance(data.get("next"), int)
    return Pulse(
        on=data.get("on") is True,
        every=whole(data.get("every")),
        samples=whole(data.get("samples")),
        next_step=whole(data.get("next")) if has_next else None,
        pause_us=amount(data.get("pause_us")),
        cost_us=amount(data.get("cost_us")),
        why=text(data.get("why"), 300),
        sites_looked=whole(sites.get("looked")),
        sites_why=text(sites.get("why"), 300),
        kernels_why=text(data.get("kernels"), 300),
        runs_on=text(data.get("device"), 16),
        collections=whole(steps.get("gc")),
        steps=whole(steps.get("n")),
        p50_s=amount(steps.get("p50")),
        p99_s=amount(steps.get("p99")),
        slow=tuple(slow),
    )


def syncs(data: Mapping[str, Any]) -> tuple[Sync, ...]:
    """Return the calls that wait for the device, as one step had them."""
    found = []
    for one in _list(data.get("sites"), MOST_SITES):
        if not isinstance(one, (list, tuple)) or len(one) != 6 or not isinstance(one[0], str):
            continue
        calls, took_us = amount(one[4]), amount(one[5])
        file, line, function = text(one[1]), whole(one[2]), text(one[3])
        site = Site(file, line, function, calls, took_us) if file else None
        found.append(Sync(text(one[0], 64), calls, took_us, site))
    return tuple(sorted(found, key=lambda one: -one.time_us))


def captured(data: Mapping[str, Any], step: int) -> Captured:
    """Return what became of a capture; `step` is that of its record."""
    folder, why = text(data.get("folder"), 1024), text(data.get("why"), 600)
    state: Literal["recorded", "analysed", "failed"] = "failed"
    told = data.get("state")
    # A name that was cut or cleaned is another folder's.
    if folder.startswith("/") and folder == data.get("folder"):
        state = "recorded" if told == "recorded" else "analysed" if told == "analysed" else "failed"
    return Captured(
        state=state,
        step=whole(data.get("step")) or step,
        folder=folder,
        files=tuple(text(one, 128) for one in _list(data.get("files"), MOST_FILES) if isinstance(one, str)),
        pause_us=amount(data.get("pause_us")),
        step_time_us=amount(data.get("step_us")),
        analysis_s=amount(data.get("analysis_s")),
        cpu_s=amount(data.get("cpu_s")),
        why=why or ("" if state != "failed" else "the training did not say why"),
    )


def _table(data: Mapping[str, Any], clock: Clock) -> tuple[tuple[Row, ...], int]:
    rows = [row for one in _list(data.get("rows"), MOST_ROWS) for row in _row(one, clock)]
    # Rows too small to be sent are in the shares.
    total_us = max(amount(data.get("self_us")), sum(one.self_time_us for one in rows))
    kept, _ = ranked(rows, total_us)
    return kept, max(whole(data.get("count")) - len(kept), 0)


def _row(one: Any, clock: Clock) -> Iterator[Row]:
    if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
        return
    name, core, calls = text(one["name"]), text(one.get("core"), 64), whole(one.get("calls"))
    uses = [
        Use(shapes=text(use[0]), calls=whole(use[1]), self_time_us=amount(use[2]))
        for use in _list(one.get("uses"), MOST_PARTS)
        if isinstance(use, (list, tuple)) and len(use) == 3
    ]
    places = []
    for place in _list(one.get("places"), MOST_PARTS):
        if isinstance(place, (list, tuple)) and len(place) == 4:
            phase: PhaseName = place[1] if place[1] in _PHASES else "other"
            places.append(Place(text(place[0]), phase, whole(place[2]), amount(place[3])))
    self_us = amount(one.get("self_us"))
    yield Row(
        name=name,
        kind=kind_of(name, core),
        self_time_us=self_us,
        share=0.0,
        cumulative_share=0.0,
        calls=calls,
        total_time_us=amount(one["total_us"]) if "total_us" in one else self_us,
        min_us=amount(one["min_us"]) if "min_us" in one else None,
        max_us=amount(one["max_us"]) if "max_us" in one else None,
        clock=clock,
        core=core,
        uses=tuple(uses),
        shapes_seen=whole(one.get("shapes_seen")) if uses else None,
        places=tuple(places),
    )


def _phases(raw: Any, window_us: float) -> tuple[Phase, ...]:
    took = {name: amount(_mapping(raw).get(name)) for name in _PHASES}
    whole_us = max(window_us, sum(took.values()))
    if whole_us <= 0:
        return ()
    return tuple(Phase(name, us, us / whole_us) for name, us in took.items())


def _device(data: Mapping[str, Any], kernels: tuple[Row, ...]) -> DeviceUse | None:
    busy_us, idle_us = amount(data.get("busy_us")), amount(data.get("idle_us"))
    window_us = busy_us + idle_us
    if window_us <= 0 or not kernels:
        return None
    starved_us = min(amount(data.get("in_data_us")), idle_us)
    return DeviceUse(
        busy_us=busy_us,
        idle_us=idle_us,
        idle_share=idle_us / window_us,
        communication_us=sum(one.self_time_us for one in kernels if one.kind == "communication"),
        host_bound_share=(idle_us - starved_us) / window_us,
        kernels=whole(data.get("kernels")),
        longest_idle_us=amount(data.get("longest_idle_us")),
    )


# What anything from outside goes through.


def amount(value: Any) -> float:
    """Return a finite number that is not negative, 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    if isinstance(value, int) and abs(value) > LARGEST:
        return 0.0
    return float(value) if math.isfinite(value) and value > 0 else 0.0


def whole(value: Any) -> int:
    """Return a whole number that is not negative, 0 for anything else."""
    return int(min(amount(value), LARGEST))


def text(value: Any, most: int = MOST_TEXT) -> str:
    """Return foreign text, cut and safe to draw; empty for anything else."""
    return clean(value[:most]) if isinstance(value, str) else ""


def _list(value: Any, most: int) -> list[Any]:
    return list(value[:most]) if isinstance(value, (list, tuple)) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
