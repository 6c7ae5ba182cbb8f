"""How a quantity develops along an axis, from any number of samples in bounded memory.

A `Track` keeps the newest samples one by one and older ones as medians of three, of nine and so on
(Rousseeuw and Bassett's remedian, 1990): a spike of an evaluation does not move it, and a median stays a
median at every resolution.  `shape` looks at windows that all end now, each shorter than the one before:
growth counts only when no shorter window contradicts it, so that a leak that stopped is withdrawn and one
that began late is found.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

from ascend_tui.frozen import frozen

NARROWER = 0.7
"""Length of each window against the one before."""
KEPT = 48
"""Entries of one resolution; three times as many samples per entry in the next."""
PARTS = 12
Z_90 = 1.645
GROWING_SHARE = 0.35
"""Of the growth of a window, what its last third must still do (as a rate) to be growing now."""
CLEAR = 8.0
"""How many times the median distance from the line, of medians and of single samples, a rise must be."""
ONE_JUMP = 0.6
"""Share of a rise in a single part from which on it is a jump and no slope."""
SLOWER = 0.7
"""Ratio of the slopes of a window's halves below which growth slows down."""

Kind = Literal["short", "flat", "grows", "slows", "jumped", "stopped", "noisy"]
Point = tuple[float, float]


@frozen
class Shape:
    """What a quantity does.

    `slope` is in units per axis unit with a 90 % interval `low` to `high`; `since` is the axis value where it
    began to grow or where it jumped; `flat_since` where it has been flat since.  `rise` is what was gained by
    it, `change` the last value less the first, `level` the present value, `noise` the median distance from
    the line, `swing` the range of the values, `span` the length of the window that decided, `start` and `end`
    its first and last axis value.
    """

    kind: Kind
    level: float = math.nan
    slope: float = 0.0
    low: float = 0.0
    high: float = 0.0
    since: float | None = None
    flat_since: float | None = None
    start: float = 0.0
    end: float = 0.0
    rise: float = 0.0
    change: float = 0.0
    noise: float = 0.0
    swing: float = 0.0
    span: float = 0.0
    points: int = 0


class Track:
    """Samples of one quantity along a growing axis, in bounded memory and constant time per sample."""

    def __init__(self) -> None:
        """Start empty."""
        self.count = 0
        self._levels: list[deque[Point]] = [deque()]

    def add(self, at: float, value: float) -> None:
        """Take one sample; one from before the newest is left out, because the axis only grows."""
        newest = self._levels[0]
        if newest and at < newest[-1][0]:
            return
        self.count += 1
        newest.append((at, value))
        level = 0
        while len(self._levels[level]) > KEPT + 2:
            if level + 1 == len(self._levels):
                self._levels.append(deque())
            here = self._levels[level]
            triple = (here.popleft(), here.popleft(), here.popleft())
            self._levels[level + 1].append((triple[1][0], sorted(value for _, value in triple)[1]))
            level += 1

    @property
    def last(self) -> float:
        """Return the newest value; NaN before the first."""
        return self._levels[0][-1][1] if self._levels[0] else math.nan

    def points(self) -> list[Point]:
        """Return what is kept, oldest first: the older, the fewer."""
        return [point for level in reversed(self._levels) for point in level]


def median(values: Sequence[float]) -> float:
    """Return the median of at least one value."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def theil_sen(points: Sequence[Point]) -> tuple[float, float, float]:
    """Return the median of the slopes of all pairs, and its 90 % interval (Sen, 1968).

    With fewer than three points of different axis values all three are 0.
    """
    slopes = sorted(
        (later[1] - one[1]) / (later[0] - one[0])
        for index, one in enumerate(points)
        for later in points[index + 1 :]
        if later[0] > one[0]
    )
    pairs, count = len(slopes), len(points)
    if pairs < 3:
        return (0.0, 0.0, 0.0)
    reach = Z_90 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    first = max(0, int((pairs - reach) / 2))
    last = min(pairs - 1, math.ceil((pairs + reach) / 2))
    return median(slopes), slopes[first], slopes[last]


def shape(track: Track, floor: float, least_span: float = 0.0, least_points: int = 4) -> Shape:
    """Return what the quantity does now.

    `floor` is the least rise that means anything in the unit of the values; a window shorter than
    `least_span` axis units or with fewer than `least_points` samples is not looked at.
    """
    points = track.points()
    seen = points[-1][0] - points[0][0] if points else 0.0
    if len(points) < least_points or seen < least_span or seen <= 0:
        return Shape("short", level=points[-1][1] if points else math.nan, points=len(points))
    windows: list[_Window] = []
    start, end = points[0][0], points[-1][0]
    span = end - start
    while True:
        newest = [point for point in points if point[0] >= end - span]
        if len(newest) < min(least_points, PARTS) or (windows and span < least_span):
            break
        windows.append(_Window(newest, floor))
        span *= NARROWER
    for number, window in enumerate(windows):
        if window.decelerates:
            # Growth that slows down, as that of a cache which learns ever fewer new shapes, looks straight in
            # each shorter window of its own.
            break
        if window.grows and not any(one.contradicts(window, points) for one in windows[number + 1 :]):
            before = [point for point in points if point[0] < window.parts[0][0]]
            if window.is_new_high(before) and window.lifts_its_floor(points):
                return window.growing(points)
    return windows[0].settled(windows[1:], points)


class _Window:
    """Some points that end now, as a dozen medians, and the line through them."""

    def __init__(self, points: Sequence[Point], floor: float) -> None:
        self.floor = floor
        self.count = len(points)
        self.end = points[-1][0]
        self.parts = _parts(points)
        self.slope, self.low, self.high = theil_sen(self.parts)
        self.span = self.parts[-1][0] - self.parts[0][0]
        self.rise = self.slope * self.span
        middle = median([value - self.slope * at for at, value in self.parts])
        self.noise = median([abs(value - self.slope * at - middle) for at, value in self.parts])
        # Between single samples and not their medians: what a training's memory does from step to step.
        self.swing = median([abs(value - self.slope * at - middle) for at, value in points])
        self.steps = [later[1] - one[1] for one, later in zip(self.parts, self.parts[1:])]
        self.level = median([value for _, value in self.parts[-3:]])

    @property
    def change(self) -> float:
        """Return the difference of the last and the first values."""
        return self.level - median([value for _, value in self.parts[: 2 if len(self.parts) >= PARTS else 1]])

    @cached_property
    def late_slope(self) -> float:
        tail = self.parts[-max(3, len(self.parts) // 3) :]
        return theil_sen(tail)[0]

    @property
    def grows(self) -> bool:
        """Tell whether the whole window rises like a line, and its end still does."""
        if self.low <= 0 or self.rise < max(self.floor, CLEAR * self.noise, CLEAR * self.swing):
            return False
        if max(self.steps) > ONE_JUMP * sum(self.steps) or self.late_slope < GROWING_SHARE * self.slope:
            return False
        first, second = self.halves
        return second > 0.5 * first and first > GROWING_SHARE * second

    @cached_property
    def halves(self) -> tuple[float, float]:
        """Return the slopes of the first and the second half."""
        half = len(self.parts) // 2
        return theil_sen(self.parts[: half + 1])[0], theil_sen(self.parts[half:])[0]

    @cached_property
    def decelerates(self) -> bool:
        """Tell whether the window rises all along, ever more slowly."""
        first, second = self.halves
        if self.low <= 0 or self.rise < self.floor or self._ends_flat:
            return False
        return 0 < second < SLOWER * first and max(self.steps) <= ONE_JUMP * sum(self.steps)

    def contradicts(self, longer: _Window, points: Sequence[Point]) -> bool:
        """Tell whether this newest part does not do what the longer window says, as far as it can be seen.

        What grows in stairs is flat between two of them.
        """
        expected = longer.slope * self.span
        if self.slope >= GROWING_SHARE * longer.slope or expected < max(self.floor, 4 * self.noise):
            return False
        recent = [point for point in points if point[0] >= self.parts[-1][0] - 4 * self.span]
        return expected >= 2.5 * _largest_step(recent)[0]

    def is_new_high(self, before: Sequence[Point]) -> bool:
        """Tell whether the rise leads above all that was there before, and by more than that swung."""
        if not before:
            return True
        near = sorted(value for at, value in before if at >= self.parts[0][0] - self.span)
        swing = near[-1 - len(near) // 10] - near[len(near) // 10] if near else 0.0
        return self.level - max(value for _, value in before) > 0.25 * self.rise > 0.25 * swing

    def lifts_its_floor(self, points: Sequence[Point]) -> bool:
        """Tell whether the low values rise as well: what is kept is never given back, a swing is."""
        inside = [point for point in points if point[0] >= self.parts[0][0]]
        start, third = inside[0][0], (inside[-1][0] - inside[0][0]) / 3
        first = sorted(value for at, value in inside if at <= start + third)
        last = sorted(value for at, value in inside if at >= start + 2 * third)
        lifted = last[len(last) // 10] - first[len(first) // 10]
        return lifted > GROWING_SHARE * self.rise * 2 / 3

    def growing(self, points: Sequence[Point]) -> Shape:
        """Return the shape of growth, measured from its onset where that lies within reach."""
        reach = [point for point in points if point[0] >= self.parts[0][0] - self.span]
        onset = _onset(reach)
        if onset is None:
            return self._as("grows", self.parts[0][0])
        behind = [point for point in reach if point[0] >= onset]
        line = _Window(behind, self.floor) if len(behind) >= PARTS else self
        return line._as("grows" if line.low > 0 else "noisy", onset)

    def settled(self, shorter: Sequence[_Window], points: Sequence[Point]) -> Shape:
        """Return the shape when nothing grows like a line now."""
        whole = max(value for _, value in self.parts) - min(value for _, value in self.parts)
        if whole <= max(self.floor, 0.0):
            return self._as("flat")
        ups = [step for step in self.steps if step > 0]
        gained = sum(ups)
        lost = -sum(step for step in self.steps if step < 0)
        if self.change < self.floor or lost > 0.5 * gained:
            # It swings or falls; noise means that too few points lie too far apart to call it flat.
            wild = whole > 0.05 * abs(self.level) and len(self.parts) < PARTS and not self._ends_flat
            return self._as("noisy" if wild else "flat")
        place = max(range(len(self.steps)), key=lambda index: self.steps[index])
        tail = shorter[0] if shorter else self
        still = tail.low > 0 and tail.rise > max(self.floor, 4 * tail.noise) and not self._ends_flat
        if not still and self.steps[place] > ONE_JUMP * gained:
            size, at = _largest_step(points)
            flat = self._flat_since(points)
            if size > self.steps[place] / 2:
                return self._as("jumped", at, self.steps[place], flat_since=max(at, flat))
            # A ramp that is short against all that was seen lies in one part, too.
            return self._as("stopped", self._rose_at(points), self.steps[place], flat_since=flat)
        first, second = self.halves
        if still or (not self._ends_flat and self.late_slope > 0.05 * max(first, self.slope)):
            return self._as("slows" if second < SLOWER * first else "noisy", self.parts[0][0], self.change)
        return self._as("stopped", self._rose_at(points), self.change, flat_since=self._flat_since(points))

    @cached_property
    def _ends_flat(self) -> bool:
        tail = [value for _, value in self.parts[-max(3, len(self.parts) // 3) :]]
        return max(tail) - min(tail) <= self.floor

    def _flat_since(self, points: Sequence[Point]) -> float:
        tail = [value for _, value in points[-max(3, len(points) // 4) :]]
        swings = sorted(abs(value - self.level) for value in tail)
        allowed = max(2 * swings[len(swings) * 7 // 10], self.floor / 2, 0.02 * self.change)
        since, off = points[-1][0], 0
        for at, value in reversed(points):
            # It came from below; what swings about its level, also at the very end, has not left it.
            off = off + 1 if value < self.level - allowed else 0
            if off >= 3 and since < points[-1][0]:
                break
            if not off:
                since = at
        return since

    def _rose_at(self, points: Sequence[Point]) -> float:
        """Return where the points leave their first level for good."""
        first = median([value for _, value in points[:3]])
        for index in range(len(points)):
            if min(value for _, value in points[index : index + 3]) > first + 0.05 * self.change:
                return points[index][0]
        return points[0][0]

    def _as(
        self,
        kind: Kind,
        since: float | None = None,
        rise: float | None = None,
        flat_since: float | None = None,
    ) -> Shape:
        slope, low, high = self.slope, self.low, self.high
        if flat_since is not None:
            # What it does now, and not what it did before.
            now = [part for part in self.parts if part[0] >= flat_since]
            slope, low, high = theil_sen(now) if len(now) >= 4 else (0.0, 0.0, 0.0)
        return Shape(
            kind,
            level=self.level,
            slope=slope,
            low=low,
            high=high,
            since=since,
            flat_since=flat_since,
            start=self.parts[0][0],
            end=self.end,
            rise=self.rise if rise is None else rise,
            change=self.change,
            noise=self.noise,
            swing=max(value for _, value in self.parts) - min(value for _, value in self.parts),
            span=self.span,
            points=self.count,
        )


def _parts(points: Sequence[Point]) -> list[Point]:
    """Return medians of PARTS equal stretches of the axis; of few points, the points themselves."""
    if len(points) < 2 * PARTS:
        return list(points)
    start, width = points[0][0], (points[-1][0] - points[0][0]) / PARTS
    stretches: list[list[Point]] = [[] for _ in range(PARTS)]
    for at, value in points:
        stretches[min(PARTS - 1, int((at - start) / width))].append((at, value))
    return [
        (sum(at for at, _ in stretch) / len(stretch), median([value for _, value in stretch]))
        for stretch in stretches
        if stretch
    ]


def _onset(points: Sequence[Point]) -> float | None:
    """Return where a flat beginning turns into a line, by least absolute deviations; None where none does."""
    few = _thinned(points)
    straight = median(
        [(value - few[0][1]) / (at - few[0][0]) for at, value in few[1:] if at > few[0][0]] or [0.0]
    )
    best = sum(abs(value - few[0][1] - straight * (at - few[0][0])) for at, value in few)
    place = None
    for index in range(3, len(few) - 3):
        onset = few[index][0]
        level = median([value for _, value in few[: index + 1]])
        slopes = [(value - level) / (at - onset) for at, value in few[index + 1 :] if at > onset]
        slope = median(slopes) if slopes else 0.0
        off = sum(abs(value - level - slope * max(0.0, at - onset)) for at, value in few)
        # A better fit is no onset yet: the line has one place less to bend.
        if off < 0.7 * best:
            best, place = off / 0.7 if place is None else off, onset
    return place


def _thinned(points: Sequence[Point]) -> list[Point]:
    """Return some 60 of the points, evenly along the axis: the newest must not outweigh the rest."""
    width = (points[-1][0] - points[0][0]) / 60
    few = [points[0]]
    for point in points[1:]:
        if point[0] - few[-1][0] >= width:
            few.append(point)
    return few


def _largest_step(points: Sequence[Point]) -> tuple[float, float]:
    """Return the largest lasting step between neighbours, and the axis value behind it."""
    best, place = 0.0, points[-1][0]
    for index in range(1, len(points)):
        before = median([value for _, value in points[max(0, index - 3) : index]])
        after = median([value for _, value in points[index : index + 3]])
        # The step itself lies between these two, not in one of the medians beside them.
        if after - before > best and points[index][1] - points[index - 1][1] > (after - before) / 2:
            best, place = after - before, points[index][0]
    return best, place
