"""Which frame and which target are on screen: live, or frozen while newer frames wait."""

from __future__ import annotations

from ascend_tui.frame import Frame, TargetFrame, TargetStatus
from ascend_tui.moments import Moments
from ascend_tui.target import TargetId
from ascend_tui.widgets.pane import View

SILENCE_S = 5.0
"""After so long without a frame the screen says so: what it shows may be over."""


class Shown:
    """Choose what is drawn out of what has arrived."""

    def __init__(self) -> None:
        """Start before the first frame."""
        self.newest: Frame | None = None
        self._held: Frame | None = None
        self._waiting = 0
        self._told = 0
        self._target = 0
        self._heard = 0.0
        self._told_of: set[TargetId] = set()

    def listen(self, now: float) -> None:
        """Begin to wait for frames; times are of a monotonic clock."""
        self._heard = now

    def silent_s(self, now: float, tick_s: float) -> float:
        """Return for how long no frame has come, 0.0 where that is not too long yet."""
        silent = now - self._heard
        return silent if silent > SILENCE_S + 2 * tick_s else 0.0

    def arrive(self, frame: Frame, now: float) -> bool:
        """Take a frame; tell whether it is to be drawn."""
        self.newest, self._heard = frame, now
        self._waiting += self.frozen
        return not self.frozen

    def came_in(self, frame: Frame) -> list[TargetStatus]:
        """Return the targets into which this monitor has put a shim, each once.

        Not "those that were being attached to before": an attach is often done before the first frame.
        """
        states = [one.status for one in frame.targets]
        found = [
            one
            for one in states
            if one.hello_ms is not None and one.method != "reused" and one.id not in self._told_of
        ]
        self._told_of.update(one.id for one in found)
        return found

    @property
    def frozen(self) -> bool:
        """Tell whether the screen holds an old frame."""
        return self._held is not None

    @property
    def waiting(self) -> int | None:
        """Return how many frames waited behind the frozen one when last counted; None while live."""
        return self._told if self.frozen else None

    def count_waiting(self) -> None:
        """Count anew.  Not at every tick: a frozen screen sends nothing until a key is pressed."""
        self._told = self._waiting

    @property
    def behind(self) -> TargetStatus | None:
        """Return the newest status of the target on screen where a frozen screen hides that it changed."""
        status = self.status
        for one in self.newest.targets if self.newest and status else ():
            if status and one.status.id == status.id and one.status.state != status.state:
                return one.status
        return None

    def freeze(self) -> None:
        """Hold the newest frame, or let go of the held one."""
        self._held = None if self.frozen else self.newest
        self._waiting = self._told = 0

    @property
    def frame(self) -> Frame | None:
        """Return the frame on screen."""
        return self._held or self.newest

    @property
    def target(self) -> TargetFrame | None:
        """Return the target on screen, as the frame on screen knows it."""
        frame = self.frame
        return frame.targets[self._target % len(frame.targets)] if frame and frame.targets else None

    @property
    def status(self) -> TargetStatus | None:
        """Return the status of the target on screen."""
        return self.target.status if self.target else None

    @property
    def position(self) -> tuple[int, int]:
        """Return the place of the target on screen, and how many there are."""
        count = len(self.frame.targets) if self.frame else 0
        return (self._target % count, count) if count else (0, 1)

    def turn(self, by: int) -> None:
        """Go to another target."""
        place, count = self.position
        self._target = (place + by) % count

    def turn_to(self, target: TargetId) -> None:
        """Go to this target, if it is among those on screen."""
        for index, one in enumerate(self.frame.targets if self.frame else ()):
            if one.status.id == target:
                self._target = index

    def targets(self) -> list[TargetId]:
        """Return every target there is now."""
        return [one.status.id for one in self.newest.targets] if self.newest else []

    def view(self, moments: Moments) -> View:
        """Return what panes need besides their snapshots."""
        frame, status = self.frame, self.status
        if frame is None or status is None:
            return View()
        return View(status, frame.wall_s, moments.of(status.id), self.frozen)
