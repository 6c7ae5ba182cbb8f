"""Two tables side by side: which rows are the same operator, how its time changed, and what is only noise."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Hashable, Sequence

from ascend_tui.frozen import frozen

from .snapshot import Change, Row

HOST_NOISE = 0.25
"""The same work on a shared host differs: measured 6 % of the wall clock, 24 % of one small operator."""
DEVICE_NOISE = 0.05
"""A device is shared with nobody, but its clock moves: under that a change is not worth a sentence."""
SCATTERS = 3.0
"""How many times the scatter of its own samples a change has to be."""
LEAST_SAMPLES = 4
"""Of fewer samples no scatter is known."""
WEIGHT = 0.01
"""A change under this share of all time is no finding: nobody would see it in the step."""
SAME_CALLS = 0.02
"""Two tables hold the same number of steps while the calls of most of their operators differ by less."""
SMALLEST_US, LARGEST_US = 1e-6, 1e18
"""What is no time, but would make a ratio that is no number."""
_MAD = 1.4826


@frozen
class Whole:
    """Both tables as a whole: `calls_ratio` is how much more the newer one holds, 1 for the same work."""

    time_us: float
    baseline_us: float
    calls_ratio: float
    avg_ratio: float
    """The median change of one call, over the operators that make up the table."""
    slower_share: float
    """How many of those operators became slower by more than noise, by their time."""

    @property
    def ratio(self) -> float:
        """Return the time over the baseline's, of the same work where the tables hold different amounts."""
        return self.time_us / self.baseline_us / self.calls_ratio

    @property
    def same_work(self) -> bool:
        """Tell whether the tables hold the same number of steps."""
        return abs(self.calls_ratio - 1) <= SAME_CALLS


def compare(
    rows: Sequence[Row], baseline_rows: Sequence[Row], since_step: int | None = None
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Return the rows with their `change`, and the rows of the baseline that are gone.

    A row goes with the one of its name, kind, core and level; one that moved to another core, or whose kind
    is told otherwise, with the only one left of its name.  A row without a partner is new and has no change,
    nor has one whose times are zero or not finite: there is no ratio then.
    """
    left = dict(enumerate(baseline_rows))
    open_rows = dict(enumerate(rows))
    pairs: dict[int, Row] = {}
    for key, alone in _KEYS:
        _pair(open_rows, left, pairs, key, alone)
    changed = tuple(
        dataclasses.replace(row, change=_change(row, pairs[at], since_step) if at in pairs else None)
        for at, row in enumerate(rows)
    )
    return changed, tuple(row for _, row in sorted(left.items()))


def notable(rows: Sequence[Row], calls_ratio: float = 1.0) -> tuple[Row, ...]:
    """Return the rows whose time changed by more than noise and scatter, the largest difference first.

    `calls_ratio` is how many times the work of the baseline the table holds.
    """
    whole_us = sum(row.self_time_us for row in rows if usable(row.self_time_us))
    found = [row for row in rows if row.change is not None and _tells(row, whole_us, calls_ratio)]
    return tuple(sorted(found, key=lambda row: (-abs(difference_us(row, calls_ratio)), row.name)))


def difference_us(row: Row, calls_ratio: float = 1.0) -> float:
    """Return how much more time a row takes than before, for the same amount of work.

    By its change alone: a live row is the newest sample, its change that of several.
    """
    change = row.change
    return change.baseline_time_us * (change.time_ratio - calls_ratio) if change is not None else 0.0


def whole(rows: Sequence[Row], gone: Sequence[Row]) -> Whole | None:
    """Return both tables as a whole, None where nothing of the one is in the other."""
    pairs = [(row, row.change) for row in rows if row.change is not None and _is_sound(row.change)]
    if not pairs:
        return None
    calls = [row.calls / (old.baseline_time_us / old.baseline_avg_us) for row, old in pairs if row.calls > 0]
    now_us = sum(old.baseline_time_us * old.time_ratio for _, old in pairs)
    now_us += sum(row.self_time_us for row in rows if row.change is None and usable(row.self_time_us))
    before_us = sum(old.baseline_time_us for _, old in pairs)
    before_us += sum(row.self_time_us for row in gone if usable(row.self_time_us))
    paired_us = sum(old.baseline_time_us for _, old in pairs)
    heavy = [(row, old) for row, old in pairs if old.baseline_time_us >= WEIGHT * paired_us] or pairs
    heavy_us = sum(old.baseline_time_us for _, old in heavy)
    slower_us = sum(old.baseline_time_us for row, old in heavy if old.avg_ratio >= 1 + noise(row))
    return Whole(
        time_us=now_us,
        baseline_us=before_us,
        calls_ratio=statistics.median(calls) if calls else 1.0,
        avg_ratio=statistics.median(old.avg_ratio for _, old in heavy),
        slower_share=slower_us / heavy_us,
    )


def noise(row: Row) -> float:
    """Return the relative change under which this row's time says nothing."""
    least = HOST_NOISE if row.clock == "host" else DEVICE_NOISE
    return max(least, SCATTERS * scatter(row.trend))


def scatter(samples: Sequence[float]) -> float:
    """Return the relative scatter of samples, by the median distance from their median; 0 where not known."""
    known = [one for one in samples if usable(one)]
    if len(known) < LEAST_SAMPLES:
        return 0.0
    middle = statistics.median(known)
    return _MAD * statistics.median(abs(one - middle) for one in known) / middle


def usable(value: float | None) -> bool:
    """Tell whether a time can be part of a ratio."""
    return value is not None and SMALLEST_US <= value <= LARGEST_US


def _is_sound(change: Change) -> bool:
    """Tell whether a change is one that was made here, and not of a row that somebody else wrote."""
    return all(
        usable(one)
        for one in (change.baseline_avg_us, change.baseline_time_us, change.avg_ratio, change.time_ratio)
    )


def _tells(row: Row, whole_us: float, calls_ratio: float) -> bool:
    change = row.change
    if change is None or not change.sure or not _is_sound(change) or not whole_us > 0 or not calls_ratio > 0:
        return False
    ratio = change.time_ratio / calls_ratio
    return abs(ratio - 1) >= noise(row) and abs(difference_us(row, calls_ratio)) >= WEIGHT * whole_us


def _change(row: Row, old: Row, since_step: int | None) -> Change | None:
    now_avg, old_avg = _average(row), _average(old)
    if not (usable(row.self_time_us) and usable(old.self_time_us) and usable(now_avg) and usable(old_avg)):
        return None
    return Change(
        baseline_avg_us=old_avg,
        baseline_time_us=old.self_time_us,
        avg_ratio=now_avg / old_avg,
        time_ratio=row.self_time_us / old.self_time_us,
        since_step=since_step,
    )


def _average(row: Row) -> float:
    return row.avg_us if usable(row.avg_us) else row.self_time_us / row.calls if row.calls > 0 else 0.0


_Key = Callable[[Row], Hashable]
_KEYS: tuple[tuple[_Key, bool], ...] = (
    (lambda row: (row.name, row.kind, row.core, row.level), False),
    (lambda row: (row.name, row.kind, row.level), True),
    (lambda row: (row.name, row.level), True),
)
"""How rows are told apart, the strictest first, and whether only the one that is left of its key counts."""


def _pair(rows: dict[int, Row], old: dict[int, Row], pairs: dict[int, Row], key: _Key, alone: bool) -> None:
    """Move what goes together out of both tables."""
    groups: dict[Hashable, list[int]] = {}
    for at, row in old.items():
        groups.setdefault(key(row), []).append(at)
    mine: dict[Hashable, list[int]] = {}
    for at, row in rows.items():
        mine.setdefault(key(row), []).append(at)
    for one, places in mine.items():
        theirs = groups.get(one, [])
        if alone and (len(places) != 1 or len(theirs) != 1):
            continue
        for at, there in zip(places, theirs):
            pairs[at] = old.pop(there)
            del rows[at]
