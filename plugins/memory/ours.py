"""What checks of ours add to the memory of the training: it stays there, and it is not the training's growth.

A check that looks at operators makes small things between the training's own; what the training frees around
them is in pieces then, and its heap gets larger once.  The next check uses that again, so that of several
windows the largest gain counts and not their sum.  What grew before and after a window is taken for grown in
it, too: a leak goes on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .limits import least_of
from .snapshot import Ours
from .trend import Point, Track, median, theil_sen

STAYS = ("reserved", "device_used", "rss", "splits", "pinned")
"""What can stay larger by a check; live tensors and what others hold cannot."""
BESIDE = 12
"""Samples on either side of a window that tell what the training does by itself."""
LEVEL = 3
SETTLING = 2
"""Samples after a window that belong to it: what was found is worked off a moment later."""
SHORT_STEPS, SHORT_S = 16, 5.0
"""A window that is longer than both is no short check: what grows in it may be anything."""
MOST_INSIDE = 32
"""For so many samples the end of a check is waited for."""
MOST_WINDOWS = 64
CLEAR = 4.0
"""How many times what a quantity swings by from sample to sample its gain must be."""


class Window:
    """The steps from `start` to `end` in which a command ran; the end is None while it does."""

    __slots__ = ("command", "end", "gains", "settled", "start")

    def __init__(self, start: float, end: float | None, command: str) -> None:
        self.start, self.end, self.command = start, end, command
        self.settled: dict[str, float] = {}
        """By quantity, where the samples begin again that count."""
        self.gains: dict[str, float] = {}
        """By quantity, what it gained for good; only once that does not change any more."""


class Checks:
    """The windows of one target, in bounded space."""

    def __init__(self) -> None:
        """Start with none."""
        self._windows: list[Window] = []
        self._running: dict[str, tuple[float, float]] = {}

    def began(self, command: str, step: float, wall_s: float) -> None:
        """Learn that a command started; of one that was told long ago the end was never heard of."""
        if not _is_short(*self._running.get(command, (math.inf, math.inf)), step, wall_s):
            self._running[command] = step, wall_s

    def ended(self, command: str, step: float, wall_s: float) -> None:
        """Learn that a command ended; short windows that overlap become one."""
        start, start_s = self._running.pop(command, (step, wall_s))
        if step == start or not _is_short(start, start_s, step, wall_s):
            return
        last = self._windows[-1] if self._windows else None
        if last is not None and last.end is not None and step < last.start:
            # A shim that was put in anew counts from the beginning.
            self._windows.clear()
        elif last is not None and last.end is not None and start <= last.end:
            start = min(start, last.start)
            if step - start <= SHORT_STEPS:
                step = max(step, last.end)
                del self._windows[-1]
            else:
                start = last.end
        self._windows.append(Window(start, step, command))
        if len(self._windows) > MOST_WINDOWS:
            # One that changed nothing is not missed; one that did is worth more than it.
            idle = (place for place, one in enumerate(self._windows[:-1]) if not any(one.gains.values()))
            del self._windows[next(idle, 0)]

    def apart(self, tracks: Mapping[str, Track]) -> tuple[Mapping[str, Track], Ours | None]:
        """Return the tracks without what our checks added, and the largest of that."""
        if not self._windows and not self._running:
            return tracks, None
        found: dict[str, Track] = {}
        ours: list[Ours] = []
        for name, track in tracks.items():
            rest = _Rest(name, track, (*self._windows, *self._open()))
            found[name] = rest
            if rest.ours is not None:
                ours.append(rest.ours)
        return found, max(ours, key=lambda one: one.bytes, default=None)

    def _open(self) -> list[Window]:
        return [Window(start, None, command) for command, (start, _) in self._running.items()]


class _Rest(Track):
    """A track without what was gained in the windows, and without the samples in them."""

    def __init__(self, name: str, track: Track, windows: Sequence[Window]) -> None:
        super().__init__()
        self.count = track.count
        self.ours: Ours | None = None
        self._name = name
        self._least = least_of(name, track.last) / 2
        self._points = track.points()
        held = 0.0
        for window in sorted(windows, key=lambda one: one.start):
            held = self._take_out(window, held)

    @property
    def last(self) -> float:
        """Return the newest value; NaN before the first."""
        return self._points[-1][1] if self._points else super().last

    def points(self) -> list[Point]:
        """Return what is left, oldest first."""
        return self._points

    def _take_out(self, window: Window, held: float) -> float:
        """Take one window out; return how much checks hold of what is there after it.

        The samples after an earlier window come without its gain already.  What was given back in between is
        gained again: a second window counts only as far as it gains more than what is held.
        """
        name, points = self._name, self._points
        before = [point for point in points if point[0] <= window.start]
        later = [point for point in points if point[0] > window.start]
        gain = window.gains.get(name)
        if not before or not later or (gain is None and len(before) < LEVEL):
            return held
        if window.end is None:
            self._points = before if len(later) <= MOST_INSIDE else points
            return held
        inside = [point for point in later if point[0] <= window.end]
        settled = window.settled.get(name)
        if settled is None:
            after = later[len(inside) + SETTLING :]
            if len(after) < LEVEL:
                # What it leaves behind is not known yet.
                self._points = before
                return held
            settled = later[len(inside) + SETTLING - 1][0]
        after = [point for point in later if point[0] > settled]
        if gain is None:
            gain = self._gain(before[-BESIDE:], after[:BESIDE]) if name in STAYS else 0.0
            if len(after) >= BESIDE:
                window.settled[name], window.gains[name] = settled, gain
        more = max(0.0, gain - held)
        self._points = [*before, *((at, value - more) for at, value in after)]
        if more:
            self.ours = Ours(name, int(held + more), window.command, round(window.end))
        return held + more

    def _gain(self, before: Sequence[Point], after: Sequence[Point]) -> float:
        """Return what was gained beyond what goes on before or after; 0 where that means nothing."""
        if not after:
            return 0.0
        rates = (theil_sen(before)[0], theil_sen(after)[0])
        came, left = after[:LEVEL], before[-LEVEL:]
        apart = came[len(came) // 2][0] - left[LEVEL // 2][0]
        size = median([value for _, value in came]) - median([value for _, value in left])
        gain = size - max(0.0, *rates) * apart
        noise = max(_swing(side, rate) for side, rate in zip((before, after), rates))
        return gain if gain >= max(self._least, CLEAR * noise) else 0.0


def _is_short(start: float, start_s: float, step: float, wall_s: float) -> bool:
    return step >= start and (step - start <= SHORT_STEPS or wall_s - start_s <= SHORT_S)


def _swing(side: Sequence[Point], rate: float) -> float:
    middle = median([value - rate * at for at, value in side])
    return median([abs(value - rate * at - middle) for at, value in side])
