"""What the loss did: was it level and bad at once, or had it been climbing?

A loss that climbs to NaN tells of the learning rate, the initialisation or the data; one that was level and
is NaN at once tells of an overflow.  Losses are noisy, so windows of them are compared by medians and
quartiles, and a rise has to be clear of the noise of all of them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Literal

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message, Severity

START = 10
"""Losses that count as the first ones."""
TIMES = 2.0
"""So many times its lowest level makes a rise a climb."""
EARLY, EARLY_TIMES = 300, 10.0
"""Before so many losses a warm-up may double them: a climb has to be as many times."""
STEADY, STEADY_SHARE, STEADY_MOST = 100, 0.1, 500
"""Steps that a climb takes at least, as a number and as a share of all, up to a most."""
BLOWN_UP = 10
"""Steps of a climb that ended in a loss that is not finite: it may be shorter."""
PARTS = 6
CLEAR = 4.0
"""Standard errors by which a rise must exceed what is asked."""
AT_ONCE = 0.6
"""Share of a rise in one part of the window from which on it is a jump to another level."""
KEPT, FINEST = 48, 192
"""Values of one resolution, and of the finest; each coarser one is of three times as many losses."""
NARROWER = 0.75

Kind = Literal["sudden", "slow", "from_start"]
Point = tuple[float, float]

_FROM_START = Message(
    "the loss is not finite from step {step} on, the first of which it is known: the initialisation, the data"
    " or the checkpoint, not the loss scale, if the training began here"
)
_SOON = Message(
    "the loss was {value} and is not finite after {n} steps: the initialisation, the data or the checkpoint,"
    " not the loss scale"
)
_SLOW = Message(
    "the loss climbed from {before} to {after} between step {since} and step {step} before it was not finite:"
    " the learning rate, the initialisation or the data rather than an overflow"
)
_SUDDEN = Message(
    "the loss was level ({low} … {high} in the last {n} of them) and not finite at once at step {step}:"
    " an overflow rather than the learning rate"
)
_FALLING = Message(
    "the loss did not climb ({before} → {after} in the last {n} of them) and was not finite at once at step"
    " {step}: an overflow rather than the learning rate"
)
_CLIMBS = Message(
    "the loss climbs: {before} at step {since}, {after} at step {step}: the learning rate, the initialisation"
    " or the data rather than an overflow"
)


@frozen
class LossFinding:
    """What the loss did before it was bad, or what it does while it is still finite.

    `before` and `after` are medians at the ends of a climb, or the range of the last losses.
    """

    kind: Kind
    reason: Message
    since_step: int
    severity: Severity = "error"
    before: float | None = None
    after: float | None = None


class Losses:
    """The losses of a training, in bounded memory: all of the newest, medians of the older ones."""

    def __init__(self) -> None:
        """Start empty."""
        self._levels: list[deque[Point]] = [deque()]
        self._count = 0
        self._first: int | None = None
        self._bad_since: int | None = None
        self._last = -1

    def take(self, step: int, value: float) -> None:
        """Take the loss of one step; one from before the newest is left out."""
        if step < self._last:
            return
        self._last = step
        if self._first is None:
            self._first = step
        if not math.isfinite(value):
            if self._bad_since is None:
                self._bad_since = step
            return
        self._bad_since = None
        self._count += 1
        self._levels[0].append((float(step), value))
        level = 0
        while len(self._levels[level]) > (KEPT if level else FINEST) + 2:
            if level + 1 == len(self._levels):
                self._levels.append(deque())
            here = self._levels[level]
            triple = (here.popleft(), here.popleft(), here.popleft())
            self._levels[level + 1].append((triple[1][0], sorted(value for _, value in triple)[1]))
            level += 1

    @property
    def bad_since(self) -> int | None:
        """Return the step from which on no loss was finite, None where the newest one is."""
        return self._bad_since

    def judge(self) -> LossFinding | None:
        """Return that the loss, still finite, climbs away; None where it does not, or is not known to."""
        if self._bad_since is not None or self._count < STEADY:
            return None
        steady = min(STEADY_MOST, max(STEADY, STEADY_SHARE * self._count))
        found = _climb(self._points(), steady, EARLY_TIMES if self._count < EARLY else TIMES)
        if found is None:
            return None
        reason = Message.of(
            _CLIMBS.text,
            before=figure(found.before),
            after=figure(found.after),
            since=f"{found.since:,}",
            step=f"{self._last:,}",
        )
        return LossFinding("slow", reason, found.since, "warning", found.before, found.after)

    def judge_bad(self, step: int) -> LossFinding:
        """Return how the loss came to be not finite at `step`."""
        points = [point for point in self._points() if point[0] < step]
        if not points:
            reason = Message.of(_FROM_START.text, step=f"{step:,}")
            return LossFinding("from_start", reason, step)
        if len(points) < START:
            reason = Message.of(_SOON.text, value=figure(points[-1][1]), n=len(points))
            return LossFinding("from_start", reason, step)
        found = _climb(points, BLOWN_UP, TIMES, BLOWN_UP)
        if found is not None:
            reason = Message.of(
                _SLOW.text,
                before=figure(found.before),
                after=figure(found.after),
                since=f"{found.since:,}",
                step=f"{step:,}",
            )
            return LossFinding("slow", reason, found.since, "error", found.before, found.after)
        last = [value for _, value in points[-START * 2 :]]
        half = len(last) // 2
        before, after = _median(last[:half]), _median(last[half:])
        level = abs(after - before) <= 0.2 * max(abs(before), abs(after))
        low, high = (min(last), max(last)) if level else (before, after)
        reason = Message.of(
            (_SUDDEN if level else _FALLING).text,
            **({"low": figure(low), "high": figure(high)} if level else {}),
            **({} if level else {"before": figure(low), "after": figure(high)}),
            n=len(last),
            step=f"{step:,}",
        )
        return LossFinding("sudden", reason, step, "error", low, high)

    def _points(self) -> list[Point]:
        """Return what is kept, oldest first: the older, the fewer."""
        return [point for level in reversed(self._levels) for point in level]


@frozen
class _Climb:
    since: int
    before: float
    after: float


def _climb(points: Sequence[Point], steps: float, times: float, fewest: int = 36) -> _Climb | None:
    """Return the longest steady rise that ends now, to `times` its level, over at least so many steps."""
    axis, values = [point[0] for point in points], [point[1] for point in points]
    start = 0
    while len(axis) - start >= fewest and axis[-1] - axis[start] >= steps - 1:
        found = _rise(axis, values, start, times)
        if found is not None:
            return found
        # The next window is shorter by steps, not by what is kept of them.
        border = axis[-1] - NARROWER * (axis[-1] - axis[start])
        start = max(start + 1, bisect_left(axis, border))
    return None


def _rise(axis: Sequence[float], values: Sequence[float], start: int, times: float) -> _Climb | None:
    """Return the rise of a window: steady, through all of it, of all losses and clear of their noise."""
    cuts = _cuts(axis, start)
    parts = [
        sorted(values[cut:end]) for cut, end in ((cuts[0], cuts[1]), (cuts[1], cuts[2]), (cuts[-2], cuts[-1]))
    ]
    low, after = min(_median(parts[0]), _median(parts[1])), _median(parts[2])
    # Most windows end here, before more than half of them is sorted.
    if after <= 0 or after < times * abs(low):
        return None
    parts = [sorted(values[cut:end]) for cut, end in zip(cuts, cuts[1:])]
    # A loss of both signs has no ratio; it is measured against the largest level that it had.
    ratio = all(part[0] > 0 for part in parts)
    if ratio:
        parts = [[math.log(value) for value in part] for part in parts]
    levels = [_median(part) for part in parts]
    base, fewest = min(levels[:2]), min(len(part) for part in parts)
    rise = levels[-1] - base
    asked = math.log(times) if ratio else times * max(abs(one) for one in levels[:2]) - base
    # What a part rises by itself is no noise.
    noise = max(part[3 * len(part) // 4] - part[len(part) // 4] for part in parts) - rise / PARTS / 2
    error = CLEAR * 1.25 / 1.35 * max(0.0, noise) / math.sqrt(fewest)
    # Where several losses take turns only some climb; a divergence takes the low ones with it.
    last = parts[-1][len(parts[-1]) // 4]
    if rise < asked + error or not _is_steady(levels, rise) or last < base + rise / 2:
        return None
    since = axis[cuts[0] if levels[0] <= levels[1] else cuts[1]]
    return _Climb(int(since), low, after)


def _is_steady(levels: Sequence[float], rise: float) -> bool:
    """Tell whether levels rise nearly all along, without one jump, and still at the end."""
    pairs = [(one, other) for at, one in enumerate(levels) for other in levels[at + 1 :]]
    up = sum(1 if one < other else -1 for one, other in pairs)
    steps = [other - one for one, other in zip(levels, levels[1:])]
    late = levels[-1] - levels[len(levels) // 2 - 1]
    return up >= len(pairs) - 4 and max(steps) <= AT_ONCE * rise and late >= rise / 4


def _cuts(axis: Sequence[float], start: int) -> list[int]:
    """Return where a window is cut: by its steps where each part then holds enough, else by their number."""
    first, span, end = axis[start], axis[-1] - axis[start], len(axis)
    cuts = [bisect_left(axis, first + span * part / PARTS, start) for part in range(PARTS)]
    cuts.append(end)
    if min(other - one for one, other in zip(cuts, cuts[1:])) >= 4:
        return cuts
    return [start + (end - start) * part // PARTS for part in range(PARTS + 1)]


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def figure(value: float) -> str:
    """Return a loss in few characters: 2.31, 0.0042, 5.3e+06."""
    return f"{value:,.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"
