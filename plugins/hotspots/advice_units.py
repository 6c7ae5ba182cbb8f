"""What the counters of the AI Core tell of one operator: bound by memory, by scalars, or badly cut in tiles.

Ratios are of the time that the kernel ran on its cores.  `cube_utilization` is another number: how much of
the time of all cores of the chip the kernel had, which a cut that leaves cores without work makes small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from ascend_tui.plugin import Message

from .advice_figures import (
    MEASURE_WHOLE,
    Found,
    average_us,
    calls,
    known,
    largest,
    name_of,
    ops_of,
    percent,
    share_of,
    time,
    usable,
)
from .compare import noise
from .snapshot import Finding, Row, Units

ROW_SHARE = 0.05
"""Chosen: an operator under a twentieth of the time is not where to begin."""
LEAST_US = 10.0
"""Chosen: in a shorter call the start of the kernel is what its counters show."""
LOW = 0.5
"""A5.2, B6.3: a unit that computes less than half of the time is used badly."""
HIGH = 0.8
"""Chosen, for "near full" of A5.2: mte2 that moves data in from memory at least that much of the time."""
ONE_CORE_US = 100.0
"""Chosen: a call of that length on one core only would be shorter on several."""
WARNING_SHARE = 0.1


def judge(rows: tuple[Row, ...]) -> Iterator[Found]:
    """Say what limits the operators whose units were counted; each is named once, by what limits it most."""
    counted = [
        row
        for row in largest(usable(rows))
        if row.units is not None
        and row.kind in ("compute", "movement", "other")
        and row.share >= ROW_SHARE
        and average_us([row]) >= LEAST_US
    ]
    by_rule: dict[str, list[Row]] = {}
    for row in counted:
        rule = _limit(row, row.units) if row.units is not None else ""
        if rule:
            by_rule.setdefault(rule, []).append(row)
    for rule, found in by_rule.items():
        yield _found(rule, found)


def computing_share(row: Row) -> float | None:
    """Return how much of its time a kernel computed, None where neither unit was counted.

    In a mixed kernel cube and vector are on cores of their own and take turns, so that both count.
    """
    units = row.units or Units()
    ratios = (units.cube_ratio, units.vector_ratio)
    counted = [one for one in ratios if one is not None and math.isfinite(one) and one >= 0]
    if not counted:
        return None
    return min(1.0, sum(counted)) if row.core.upper().startswith("MIX") else max(counted)


def _limit(row: Row, units: Units) -> str:
    computing = computing_share(row)
    if computing is None:
        return ""
    memory, scalar = known(units.mte2_ratio), known(units.scalar_ratio)
    if computing < LOW and memory >= HIGH:
        # To move data is what a movement is for: that is no fault of it.
        return "memory_bound" if row.kind != "movement" else ""
    if row.kind == "movement":
        return ""
    if computing < LOW and scalar >= HIGH:
        return "scalar_bound"
    if known(units.block_num) == 1 and average_us([row]) >= ONE_CORE_US:
        return "one_core"
    is_cube = units.cube_ratio is not None and known(units.cube_ratio) >= known(units.vector_ratio)
    if computing < LOW:
        # A vector kernel that mostly moves data is nearly bound by memory, and without the counters of that
        # nothing can be said of it.
        moves = max(memory, known(units.mte3_ratio)) >= LOW or units.mte2_ratio is None
        return "low_utilisation" if is_cube or not moves else ""
    if is_cube and units.cube_utilization is not None and 0 < known(units.cube_utilization) < LOW:
        return "tiling"
    # Busy by its own counters, and still slower than it was: another cut of the same work.
    if row.change is not None and row.change.avg_ratio >= 1 + max(0.1, noise(row)):
        return "tiling"
    return ""


def _found(rule: str, rows: list[Row]) -> Found:
    headline, advice = _WORDS[rule]
    share = share_of(rows)
    finding = Finding(
        rule=rule,
        headline=Message.of(headline.text, name=name_of(rows[0]), share=percent(share)),
        severity="warning" if share >= WARNING_SHARE else "info",
        evidence=tuple(_evidence(row) for row in rows[:3]),
        advice=(*advice, MEASURE_WHOLE),
        ops=ops_of(rows),
    )
    return Found(share, finding)


def _evidence(row: Row) -> Message:
    units = row.units or Units()
    numbers: tuple[tuple[str, float | None, Callable[[float], str]], ...] = (
        ("cube", units.cube_ratio, percent),
        ("vector", units.vector_ratio, percent),
        ("scalar", units.scalar_ratio, percent),
        ("mte2", units.mte2_ratio, percent),
        ("cube_utilization", units.cube_utilization, percent),
        ("block_num", units.block_num, calls),
    )
    words = ", ".join(f"{word} {shown(known(value))}" for word, value, shown in numbers if value is not None)
    return Message.of(
        "{name}: {calls} calls of {time}; {units}",
        name=name_of(row),
        calls=calls(row.calls),
        time=time(average_us([row])),
        units=words,
    )


_WORDS: dict[str, tuple[Message, tuple[Message, ...]]] = {
    "memory_bound": (
        Message("{name} is bound by memory: the units that compute wait for data ({share} of the time)"),
        (
            Message("fuse it with its neighbours, so that data stays on the chip"),
            Message("change the layout (NC1HWC0 for convolutions) or the type, so that it reads fewer bytes"),
        ),
    ),
    "scalar_bound": (
        Message(
            "{name} is bound by its scalar unit: neither cube nor vector does much ({share} of the time)"
        ),
        (
            Message("look at loops, indices and branches in the kernel: work on vectors instead of elements"),
            Message("for an operator of the library: another shape or operator that does the same"),
        ),
    ),
    "one_core": (
        Message("{name} runs on one core only ({share} of the time)"),
        (Message("look at its tiling: split the work over the cores, or give it a shape that can be split"),),
    ),
    "low_utilisation": (
        Message("{name} computes less than half of its time: tiling or odd shapes ({share} of the time)"),
        (
            Message("give it shapes that are multiples of 16 and not too narrow"),
            Message("look at its tiling; tune it (aoe) where it is an operator of the library"),
        ),
    ),
    "tiling": (
        Message("{name} is busy and still slow: the tiling leaves time unused ({share} of the time)"),
        (
            Message("look at its tiling: cores without work, or blocks of uneven size"),
            Message("give it shapes that can be split over all cores"),
        ),
    ),
}
