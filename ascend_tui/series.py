"""A quantity over a whole run in bounded memory, whose past does not move on the screen.

A series holds at most CAPACITY buckets with the lowest and highest value seen in each.  When they
are full their width doubles and neighbours merge, so that three weeks and three minutes cost the
same, no peak is ever lost, and between two doublings a drawn column never changes again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ascend_tui.frozen import frozen

CAPACITY = 1024


@frozen
class Curve:
    """A series as it was at one moment, for drawing.

    Bucket i covers `start + i * width` up to `start + (i + 1) * width` in the unit of its axis
    (seconds or steps); `low[i]` and `high[i]` are NaN where nothing was sampled.
    """

    name: str
    start: float
    width: float
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def end(self) -> float:
        """Return the axis value where the last bucket ends."""
        return self.start + self.width * len(self.low)


class Series:
    """Collect samples of one quantity along a growing axis."""

    def __init__(self, name: str, width: float) -> None:
        """Start empty; `width` is the first width of a bucket in axis units."""
        self.name = name
        self.width = width
        self.start: float | None = None
        self.last: float | None = None
        self.peak: float | None = None
        self._low: list[float] = []
        self._high: list[float] = []

    def add(self, at: float, value: float) -> None:
        """Take one sample.  A sample from before the first one is left out: the axis only grows."""
        if not (math.isfinite(at) and math.isfinite(value)):
            return
        if self.start is None:
            self.start = at
        if at < self.start:
            return
        index = int((at - self.start) / self.width)
        while index >= CAPACITY:
            self._halve()
            index = int((at - self.start) / self.width)
        missing = index + 1 - len(self._low)
        if missing > 0:
            self._low += [math.nan] * missing
            self._high += [math.nan] * missing
        # NaN compares false: an empty bucket takes the value.
        if not self._low[index] <= value:
            self._low[index] = value
        if not self._high[index] >= value:
            self._high[index] = value
        if index + 1 == len(self._low):
            self.last = value
        self.peak = value if self.peak is None else max(self.peak, value)

    def curve(self) -> Curve:
        """Return the series as it is now."""
        return Curve(self.name, self.start or 0.0, self.width, tuple(self._low), tuple(self._high))

    def _halve(self) -> None:
        self._low = _merge(self._low, min)
        self._high = _merge(self._high, max)
        self.width *= 2


def _merge(values: list[float], pick: Callable[[list[float]], float]) -> list[float]:
    merged = []
    for index in range(0, len(values), 2):
        pair = [value for value in values[index : index + 2] if value == value]
        merged.append(pick(pair) if pair else math.nan)
    return merged
