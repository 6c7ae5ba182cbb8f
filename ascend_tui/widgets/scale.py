"""Axes: which numbers stand beside a curve, and scales that do not jump about."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable

from ascend_tui.text import byte_unit, digits

_TOPS = (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768)
_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
LABEL_CELLS = 8
"""Cells of a label on the y axis: four digits, a space and the unit."""


def byte_top(value: float) -> float:
    """Return the next round amount of memory above `value`, at most half as much again."""
    divisor, _ = byte_unit(max(value, 1.0))
    index = bisect.bisect_left(_TOPS, value / divisor)
    return divisor * (_TOPS[index] if index < len(_TOPS) else 1024)


class YScale:
    """A scale from `low` to `high` that keeps still until the data leave it.

    It grows as soon as a value passes its end, and shrinks only when less than half of it is
    used, so that noise at a border never makes the whole curve jump.
    """

    def __init__(self) -> None:
        """Start without a scale."""
        self.low = 0.0
        self.high = 0.0

    def hold(self, low: float, high: float) -> None:
        """Take in a range of values; a `low` of 0 pins the foot."""
        span = high - low
        used = span / (self.high - self.low) if self.high > self.low else 0.0
        if self.low <= low and high <= self.high and (used >= 0.5 or byte_top(high) >= self.high):
            return
        if low <= 0:
            self.low, self.high = 0.0, byte_top(high)
            return
        # A window away from zero: a round width around the data, with a little room.
        step = byte_top(max(span, high * 1e-4) * 1.2)
        self.low = max(0.0, math.floor(low / step * 4) * step / 4)
        self.high = self.low + step
        if high > self.high:
            self.high = self.low + byte_top(high - self.low)

    def labels(self, rows: int) -> list[tuple[int, str]]:
        """Return (row from the top, text) of the labels for a curve `rows` high."""
        parts = 4 if rows >= 13 else 2 if rows >= 5 else 1
        found = []
        for part in range(parts + 1):
            value = self.low + (self.high - self.low) * part / parts
            found.append((round((rows - 1) * (1 - part / parts)), _byte_label(value)))
        return found


def _byte_label(value: float) -> str:
    if not value:
        return "0"
    divisor, unit = byte_unit(value)
    amount = value / divisor
    return f"{amount:.0f} {unit}" if amount == round(amount) else f"{digits(amount)} {unit}"


def step_label(value: float) -> str:
    """Return a step count in at most five characters."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def time_label(seconds: float) -> str:
    """Return a time on an axis in its largest unit, with halves."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s" if seconds else "0"


def ticks(
    start: float, end: float, cells: int, label: Callable[[float], str], seconds: bool
) -> list[tuple[float, str]]:
    """Return round positions between `start` and `end`, as many as their labels leave room for."""
    if not end > start:
        return []
    step = _round_step((end - start) / max(1, cells // (11 if seconds else 7)), seconds)
    first = math.ceil(start / step)
    return [(at * step, label(at * step)) for at in range(first, math.floor(end / step) + 1)]


def _round_step(least: float, seconds: bool) -> float:
    if seconds and least <= _SECONDS[-1]:
        return float(_SECONDS[bisect.bisect_left(_SECONDS, least)])
    base = 86400.0 if seconds else 1.0
    power = 10.0 ** math.floor(math.log10(max(least / base, 1.0)))
    for factor in (1, 2, 5, 10):
        if base * factor * power >= least:
            return base * factor * power
    return base * 10 * power
