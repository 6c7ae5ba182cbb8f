"""What the logs of each target tell, from the thread that reads them to one snapshot a tick."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascend_tui.plugin import Alert, Collector, Event, Message, Record
from ascend_tui.target import TargetId

from .reader import FIRST_BYTES, Read, Reader
from .snapshot import SEVERITIES, Incident, Key, LogsSnapshot, Source, key_of

if TYPE_CHECKING:
    from .keywords import Keywords

KEPT_STEPS = 4096
"""Moments of which the step is known, by which a line's time tells its step."""
BEHIND_S = 2.0
"""From here on what waits to be read is said to be late."""
MOST_PUBLISHED = 2000
LATE_S = 5.0
"""What is older than the first moment without a backlog by so much was there before."""

_READING = Message("looking for the logs of this process")
_NOTHING = Message("nothing that this process writes can be read")
_PYTHON_ONLY = Message("only what Python writes is seen: not what C libraries and child processes print")
_LEFT_OUT = Message("{n} bytes of the output were left out: more than can be sent came at once")
_TOO_MANY = Message("{n} sources more are not read: there is a limit")
_FAILED = Message("reading the logs failed: {why}")


class LogsCollector(Collector):
    """Keep a reader for each target, and tell what is new."""

    def __init__(self, publish: Callable[[Event], None]) -> None:
        super().__init__(publish)
        self._targets: dict[TargetId, _Target] = {}
        self._published: dict[tuple[Key, str, str], TargetId] = {}
        self._keywords: Keywords | None = None
        self._globs: tuple[str, ...] = ()

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Take the user's words and where else there are logs."""
        words = settings.get("log_keywords")
        if words:
            from .keywords import Keywords

            self._keywords = Keywords(words)
        self._globs = tuple(settings.get("log_globs") or ())

    def on_target(self, target: TargetId) -> None:
        """Begin to read the logs of a target."""
        if target not in self._targets:
            # Ranks share the past among them: one interpreter reads it for all.
            share = FIRST_BYTES // (len(self._targets) + 1)
            self._targets[target] = _Target(Reader(target, self._globs, self._keywords, share))

    def on_record(self, target: TargetId, record: Record) -> None:
        """Take a piece of output that the tee sent, or learn which streams it has."""
        known = self._targets.get(target)
        if known is None:
            return
        text, stream, streams = (record.data.get(name) for name in ("text", "stream", "streams"))
        if record.kind == "text" and isinstance(text, str) and isinstance(stream, str):
            dropped = record.data.get("dropped")
            dropped = dropped if isinstance(dropped, int) else 0
            known.dropped_bytes += dropped
            known.reader.take_teed(stream, text, dropped)
        elif record.kind == "streams" and isinstance(streams, list):
            known.is_teed = any(isinstance(one, dict) and one.get("teed") is True for one in streams)

    def on_step(self, target: TargetId, step: int, now: float) -> None:
        """Learn which step it is: the times of lines tell theirs by it."""
        known = self._targets.get(target)
        if known is not None:
            known.learn_step(now, step)

    def on_tick(self, now: float) -> None:
        """Publish what is new since the tick before."""
        for target, known in self._targets.items():
            for incident, step in known.news():
                if not self._is_first(target, incident):
                    continue
                self.publish(
                    Alert(
                        target,
                        "logs",
                        incident.first_wall_s or now,
                        incident.severity,
                        incident.category,
                        incident.headline,
                        step,
                        incident.ranks,
                        incident.count,
                        incident.attribution,
                    )
                )

    def _is_first(self, target: TargetId, one: Incident) -> bool:
        """Tell whether no other target has told it: ranks often write into one file."""
        name = (key_of(one), one.severity, one.text)
        if self._published.get(name, target) != target:
            return False
        if len(self._published) >= MOST_PUBLISHED:
            self._published.clear()
        self._published[name] = target
        return True

    def on_gone(self, target: TargetId) -> None:
        """Read what was written last, then stop."""
        known = self._targets.get(target)
        if known is not None:
            known.reader.finish()

    def close(self) -> None:
        """End all readers."""
        for known in self._targets.values():
            known.reader.close()
        for known in self._targets.values():
            known.reader.wait()

    def snapshot(self, target: TargetId) -> LogsSnapshot:
        """Return the newest digest of a target's logs."""
        known = self._targets.get(target)
        return known.snapshot() if known is not None else LogsSnapshot(reason=_READING)

    def read(self, path: Path) -> Any:
        """Return the digest of a log file."""
        from .from_files import read

        return read(path, self._keywords)


class _Target:
    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.is_teed = False
        self.dropped_bytes = 0
        self._told: dict[tuple[str, str], tuple[int, int]] = {}
        self._began_s: float | None = None
        self._seen: Read | None = None
        self._walls: deque[float] = deque(maxlen=KEPT_STEPS)
        self._steps: deque[int] = deque(maxlen=KEPT_STEPS)

    def learn_step(self, wall_s: float, step: int) -> None:
        if not self._walls or wall_s > self._walls[-1]:
            self._walls.append(wall_s)
            self._steps.append(step)

    def step_at(self, wall_s: float | None) -> int | None:
        """Return the step that was running at a time; None where it was before the attach."""
        if wall_s is None or not self._walls or wall_s < self._walls[0]:
            return None
        return self._steps[min(bisect_right(self._walls, wall_s), len(self._steps) - 1)]

    def news(self) -> list[tuple[Incident, int | None]]:
        """Return the incidents that are new, or graver than they were, with the step of the training."""
        read = self.reader.newest
        if read is None or read is self._seen or read.caught_up_s is None:
            return []
        is_first = self._seen is None
        self._seen = read
        found = []
        for one in read.digest.incidents:
            grade = SEVERITIES.index(one.severity)
            before = self._told.get(key_of(one))
            self._told[key_of(one)] = (grade, one.count)
            if grade == 0 or (is_first and (one.last_wall_s or 0) < read.at_s - LATE_S):
                continue
            if before is None or grade > before[0]:
                began = self.step_at(one.first_wall_s) if before is None else None
                found.append((one, self.step_at(one.last_wall_s) if began is None else began))
        return found

    def snapshot(self) -> LogsSnapshot:
        read = self.reader.newest
        if read is None:
            return LogsSnapshot(reason=_READING)
        behind_s = 0.0
        if any(source.behind_bytes for source in read.sources):
            behind_s = read.at_s - (read.caught_up_s or self.reader.began_s)
        readable = [one for one in read.sources if one.state not in ("nothing", "unreadable", "waiting")]
        reason = Message.of(_FAILED.text, why=read.failed) if read.failed else None
        if reason is None and not readable and not self.is_teed:
            reason = _why(read.sources)
        return LogsSnapshot(
            "degraded" if reason is not None else "live",
            reason,
            dataclasses.replace(read.digest, notes=(*read.digest.notes, *self._notes(read))),
            read.sources,
            behind_s if behind_s >= BEHIND_S else 0.0,
            read.lines_per_s,
            self.is_teed,
        )

    def _notes(self, read: Read) -> list[Message]:
        """Return what has to be known of what is shown: what cannot be seen, and what was left out."""
        notes = [_PYTHON_ONLY] if self.is_teed else []
        if self.dropped_bytes:
            notes.append(Message.of(_LEFT_OUT.text, n=f"{self.dropped_bytes:,}"))
        if read.unread_sources:
            notes.append(Message.of(_TOO_MANY.text, n=read.unread_sources))
        return notes


def _why(sources: tuple[Source, ...]) -> Message:
    """Return why nothing can be read: what is said of stdout, which is where most is written."""
    told = [one.why for one in sources if one.why is not None]
    first = next((one.why for one in sources if one.kind == "stdout" and one.why is not None), None)
    return first or (told[0] if told else _NOTHING)
