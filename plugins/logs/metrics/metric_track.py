"""One number over a whole run: its newest value, its range, what is usual for it, and a thinned curve."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from ..snapshot import Metric, MetricTrend
from .metric_names import Kind

MOST_POINTS = 240
RECENT = 64
"""Values that say what is usual."""
KNOWN, FEW = 16, 2
"""Values after which a run's level is known well, and known at all."""
FAR, FURTHER = 20.0, 100.0
"""So many times the highest value of the run is an explosion: where its level is known, and where hardly."""
FLOOR, HIGHER_FLOOR = 10.0, 100.0
"""Below it nothing has exploded: a loss that starts at 0 is at any multiple of itself soon."""
TENFOLD = 10.0
HUGE = 1e5
"""No loss whose history is not known begins so high."""


class Track:
    """A number and its past, in bounded memory."""

    def __init__(self, name: str, printed: str, kind: Kind, unit: str = "") -> None:
        """Start without a value."""
        self.name, self.printed, self.kind, self.unit = name, printed, kind, unit
        self.trend: MetricTrend = "steady"
        self.count = 0
        self.finite = 0
        self.value = math.nan
        self.step: float | None = None
        self.low: float | None = None
        self.high: float | None = None
        self.wall_s: float | None = None
        self.peak = 0.0
        self.recent: deque[float] = deque(maxlen=RECENT)
        self.before: tuple[float | None, float] | None = None
        """Step and value of the newest finite one."""
        self._points: list[tuple[float, float]] = []
        self._stride = 1
        self._far = 0

    def take(self, step: float | None, value: float, wall_s: float | None) -> bool:
        """Take one value; tell whether it exploded: it is finite, and far from all that came before."""
        self.count += 1
        self.value, self.step = value, step
        self.wall_s = self.wall_s if wall_s is None else wall_s
        if not math.isfinite(value):
            return False
        is_far = self.is_judged and abs(value) > self.limit()
        self.finite += 1
        self.before = step, value
        self.low = value if self.low is None else min(self.low, value)
        self.high = value if self.high is None else max(self.high, value)
        if self.count % self._stride == 0:
            self._keep(float(self.count) if step is None else step, value)
        if is_far:
            self._far += 1
            if self._far < RECENT:
                return True
            # It stays there: that is the level now.
            self.peak = 0.0
            self.recent.clear()
        self._far = 0
        self.peak = max(self.peak, abs(value))
        self.recent.append(value)
        return is_far

    def absorb(
        self,
        count: int,
        low: float,
        high: float,
        some: Iterable[tuple[float | None, float]],
        wall_s: float | None,
    ) -> None:
        """Take many usual values at once: their range, and some of them in their order, the newest last."""
        before = self.count
        some = list(some)
        for at, (step, value) in enumerate(some, 1):
            place = before + count * at // len(some)
            if place // self._stride > (before + count * (at - 1) // len(some)) // self._stride:
                self._keep(float(place) if step is None else step, value)
            self.recent.append(value)
            self.step, self.value = step, value
            self.before = step, value
        self.count += count
        self.finite += count
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)
        self.peak = max(self.peak, abs(low), abs(high))
        self.wall_s = self.wall_s if wall_s is None else wall_s

    @property
    def is_judged(self) -> bool:
        """Tell whether an explosion of this number is worth a word; gradient norms have heavy tails."""
        return self.kind in ("loss", "part")

    def limit(self) -> float:
        """Return the size from which on a value has exploded."""
        if not self.is_judged or len(self.recent) < FEW:
            return math.inf
        if self.finite < KNOWN:
            return max(FURTHER * self.peak, HIGHER_FLOOR)
        return max(FAR * self.peak, FLOOR)

    def usual(self) -> float | None:
        """Return the median of the newest values."""
        ordered = sorted(self.recent)
        return ordered[len(ordered) // 2] if ordered else None

    def metric(self) -> Metric:
        """Return the track as it is shown."""
        return Metric(
            name=self.name,
            printed=self.printed,
            value=self.value,
            step=whole(self.step),
            trend=self.trend,
            count=self.count,
            low=self.low,
            high=self.high,
            last_wall_s=self.wall_s,
            unit=self.unit,
            points=tuple(self._points),
        )

    def _keep(self, at: float, value: float) -> None:
        self._points.append((at, value))
        if len(self._points) > MOST_POINTS:
            del self._points[::2]
            self._stride *= 2


def whole(step: float | None) -> int | None:
    """Return a step as the whole number that it is, None where it is none."""
    return int(step) if step is not None and math.isfinite(step) else None
