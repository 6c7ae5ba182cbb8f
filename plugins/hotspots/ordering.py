"""By what the table is ordered: the time itself, or what a question of its own needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence

from ascend_tui.frozen import frozen
from ascend_tui.text import msgid

from .snapshot import Row

HOLD_S = 5.0
"""So long rows keep their places while samples come: nobody reads a table that is shuffled each second."""

ORDERS = {
    "share": msgid("share"),
    "avg": msgid("time of a call"),
    "calls": msgid("calls"),
    "max": msgid("longest call"),
    "change": msgid("change since the baseline"),
    "name": msgid("name"),
}


def _number(value: float | None) -> float:
    """Return what a number counts for, what is not known least."""
    return value if value is not None and math.isfinite(value) else -math.inf


def added_us(row: Row) -> float | None:
    """Return how much longer an operator takes than in the baseline, in all."""
    return None if row.change is None else row.self_time_us - row.change.baseline_time_us


_VALUES: dict[str, Callable[[Row], float]] = {
    "share": lambda row: _number(row.self_time_us),
    "avg": lambda row: _number(row.avg_us if row.calls else None),
    "calls": lambda row: row.calls,
    "max": lambda row: _number(row.max_us),
    "change": lambda row: _number(added_us(row)),
}


def in_order(rows: Iterable[tuple[Hashable, Row]], by: str) -> list[tuple[Hashable, Row]]:
    """Return keyed rows, the most of `by` first; what is not known comes last."""
    if by == "name":
        return sorted(rows, key=lambda one: (one[1].name.lower(), one[1].name))
    value = _VALUES[by]
    return sorted(rows, key=lambda one: (-value(one[1]), one[1].name))


def next_of(by: str, rows: Sequence[Row]) -> str:
    """Return the order after `by`; one that nothing is known for is left out."""
    names = list(ORDERS)
    for step in range(1, len(names) + 1):
        name = names[(names.index(by) + step) % len(names)]
        if name == "name" or any(_VALUES[name](row) > -math.inf for row in rows):
            return name
    return by


def keyed(rows: Iterable[Row]) -> dict[Hashable, Row]:
    """Return the rows, each under a key that stays while its numbers change."""
    found: dict[Hashable, Row] = {}
    for row in rows:
        key: tuple[str, str, str, int] = (row.name, row.core, row.level, 0)
        while key in found:
            key = (*key[:3], key[3] + 1)
        found[key] = row
    return found


@frozen
class Held:
    """Keys in the order in which they were laid down, what asked for it, and when."""

    asked: tuple[str, ...] = ()
    at_s: float = 0.0
    keys: tuple[Hashable, ...] = ()

    def still_holds(self, asked: tuple[str, ...], now_s: float, keys: Iterable[Hashable]) -> bool:
        """Tell whether the same rows may keep the same places."""
        return self.asked == asked and 0 <= now_s - self.at_s < HOLD_S and set(self.keys) == set(keys)
