"""The moments that the screen can point at: alerts to walk through, and marks for the time axes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ascend_tui.frame import Frame
from ascend_tui.frozen import frozen
from ascend_tui.plugin import Alert
from ascend_tui.target import TargetId

_KEPT = 1000


@frozen
class Moment:
    """A sign on a time axis; `wall` is Unix time."""

    wall: float
    step: int | None
    sign: str


class Moments:
    """Remember alerts and marks of every target, the newest thousand of each.

    Frames are taken in on the session's thread, the rest is read on the screen's: a deque is safe
    for that, and no alert is lost when frames are skipped.
    """

    def __init__(self) -> None:
        """Start with none."""
        self.alerts: deque[Alert] = deque(maxlen=_KEPT)
        self._marks: deque[tuple[TargetId, Moment]] = deque(maxlen=_KEPT)
        self._at: Alert | None = None

    def take(self, frame: Frame) -> None:
        """Keep the alerts of one frame."""
        for target in frame.targets:
            self.alerts.extend(target.alerts)

    def mark(self, target: TargetId, moment: Moment) -> None:
        """Keep a mark."""
        self._marks.append((target, moment))

    def of(self, target: TargetId) -> tuple[Moment, ...]:
        """Return what belongs on this target's time axes."""
        alerts: Iterable[Alert] = tuple(self.alerts)
        found = [Moment(alert.wall, alert.step, "!") for alert in alerts if alert.target == target]
        return tuple(found + [moment for owner, moment in tuple(self._marks) if owner == target])

    def walk(self, by: int) -> tuple[int, int, Alert] | None:
        """Go to the next or previous alert; return its place, how many there are, and itself."""
        alerts = list(self.alerts)
        if not alerts:
            return None
        if self._at in alerts:
            place = min(max(alerts.index(self._at) + by, 0), len(alerts) - 1)
        else:
            place = len(alerts) - 1 if by < 0 else 0
        self._at = alerts[place]
        return place + 1, len(alerts), alerts[place]
