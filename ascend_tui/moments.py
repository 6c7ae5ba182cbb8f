"""The moments that the screen can point at: alerts to walk through, and marks for the time axes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from ascend_tui.frame import Frame
from ascend_tui.frozen import frozen
from ascend_tui.plugin import Alert, Message
from ascend_tui.target import TargetId

_KEPT = 1000
_OWN_KEPT = 100
_ECHO_S = 5.0
"""Within this time a mark that was made here comes back from the target, which tells it to every monitor."""


@frozen
class Moment:
    """A sign on a time axis; `wall` is Unix time."""

    wall: float
    step: int | None
    sign: str
    label: Message | None = None


class Moments:
    """Remember the newest thousand alerts, and of each target a thousand marks, older ones more sparsely.

    Frames are taken in on the session's thread, the rest is read on the screen's: a deque is safe
    for that, and so is a tuple that is only ever replaced; nothing is lost when frames are skipped.
    """

    def __init__(self) -> None:
        """Start with none."""
        self.alerts: deque[Alert] = deque(maxlen=_KEPT)
        self._marks: dict[TargetId, tuple[Moment, ...]] = {}
        self._own: deque[tuple[TargetId, Moment]] = deque(maxlen=_OWN_KEPT)
        self._at: Alert | None = None

    def take(self, frame: Frame) -> None:
        """Keep the alerts and marks of one frame."""
        for target in frame.targets:
            self.alerts.extend(target.alerts)
            if target.marks:
                key = target.status.id
                new = [Moment(mark.wall, mark.step, mark.sign, mark.label) for mark in target.marks]
                self._marks[key] = fold((*self._marks.get(key, ()), *new), _KEPT)

    def mark(self, target: TargetId, moment: Moment) -> None:
        """Keep a mark that was made here; a target that is out of reach will never tell of it."""
        self._own.append((target, moment))

    def of(self, target: TargetId) -> tuple[Moment, ...]:
        """Return what belongs on this target's time axes."""
        alerts: Iterable[Alert] = tuple(self.alerts)
        found = [
            Moment(alert.wall, alert.step, "!", alert.headline) for alert in alerts if alert.target == target
        ]
        marks = self._marks.get(target, ())
        told = [one.wall for one in marks if one.sign == "m"]
        # The wall of one made here is that of the frame it was made on.
        own = [
            moment
            for owner, moment in tuple(self._own)
            if owner == target and not any(-1.0 < wall - moment.wall < _ECHO_S for wall in told)
        ]
        return (*found, *marks, *own)

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


def fold(moments: tuple[Moment, ...], most: int) -> tuple[Moment, ...]:
    """Return at most `most` of these moments, in the order of time.

    Of the older half every second one of the most frequent sign goes, again and again: what is rare stays.
    """
    kept = list(moments)
    if len(kept) > most:
        # A monitor that comes back is told the past after it has seen the present.
        kept.sort(key=lambda one: one.wall)
    while len(kept) > most:
        older, newer = kept[: most // 2], kept[most // 2 :]
        (frequent, count), *_ = Counter(one.sign for one in older).most_common(1)
        if count == 1:
            return tuple(kept[-most:])
        places = [at for at, one in enumerate(older) if one.sign == frequent]
        gone = set(places[1::2])
        kept = [one for at, one in enumerate(older) if at not in gone] + newer
    return tuple(kept)
