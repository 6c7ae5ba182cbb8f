"""One source of lines: the files that follow each other in one place, each read to its end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Union

from ascend_tui.plugin import Message
from ascend_tui.text import clean

from ..snapshot import Source, SourceState
from .follow_file import NoFileError, Piece, Tail, sentence
from .follow_packed import ENDINGS, USUAL_RATIO, Packed
from .places import Place
from .places_found import rotations
from .sources import Identity, identity_of

LINGER_S = 5.0
"""As long is read from a renamed file beside the new one: its writer goes on until it is told to reopen."""
MOST_REMEMBERED = 4096
MOST_COPIES = 3
WHOLE_BYTES = 1 << 62
NEVER_S = float("inf")
KEPT_APART = ("plog", "device_log")
"""Their files are places of their own, with names that do not change; others are renamed."""
File = Union[Tail, Packed]


class Stream:
    """Read what one place has, across rotations, truncations and deletions."""

    def __init__(self, place: Place, started_s: float = 0.0) -> None:
        """Begin with nothing; `start` opens files.  What is older than `started_s` is of another process."""
        self.place = place
        self.read_bytes = self.skipped_bytes = self.lines = self.truncations = 0
        self.is_ended = False
        self._started_s = started_s
        self._gone_s: float | None = None
        self._resume: tuple[Identity, int, bytes] | None = None
        self._queue: list[tuple[File, float]] = []
        """Files, oldest first, and when each is over; the newest is not."""
        self._finished: dict[str, None] = {}
        self._error: Message | None = None

    def start(self, places: Sequence[Place], most_bytes: int, history_bytes: int, now_s: float) -> None:
        """Open the files of this source, oldest first, as many as `most_bytes` from the end allow."""
        files: list[File] = []
        for place in reversed(places):
            tail = self._opened(place, most_bytes)
            if tail is not None:
                most_bytes -= tail.size_bytes - tail.skipped_bytes
                files.insert(0, tail)
        if places[-1].kind not in KEPT_APART:
            files = [*self._history(places[-1], history_bytes), *files]
        self._queue = [(file, now_s) for file in files[:-1]] + [(file, NEVER_S) for file in files[-1:]]
        self.skipped_bytes += sum(file.skipped_bytes for file in files)

    def has(self, place: Place) -> bool:
        """Tell whether a place's file is read here already, or was."""
        if any(file.identity == place.identity for file, _ in self._queue):
            return True
        return place.kind in KEPT_APART and place.through in self._finished

    def meet(self, place: Place, most_bytes: int, now_s: float) -> None:
        """Take what a place is now; a file that is not read yet is the next one of this source."""
        # A file that was renamed is still that of its first name.
        self.place, self.is_ended = replace(place, series=self.place.series), False
        if place.through is None or place.state == "unreadable":
            self._end_all(now_s)
            return
        if self.has(place):
            return
        between = self._missed(place)
        tail = self._opened(place, most_bytes)
        if tail is None:
            return
        linger_s = 0.0 if place.through.startswith("/proc/") or place.kind in KEPT_APART else LINGER_S
        self._queue = [(file, min(end_s, now_s + linger_s)) for file, end_s in self._queue]
        self._queue += [(file, now_s) for file in between] + [(tail, NEVER_S)]
        self.skipped_bytes += tail.skipped_bytes

    def miss(self, now_s: float) -> None:
        """Note that no place leads here any more: the process has closed the file, or it is gone."""
        if self.place.through is None or not self._queue:
            self.is_ended = True
            return
        path = self.place.beside
        seen = identity_of(path) if path is not None else None
        if seen is None:
            self._end_all(now_s)
        elif not any(file.identity == seen for file, _ in self._queue):
            place = replace(self.place, through=path, identity=seen, state="reading", why=None)
            self.meet(place, WHOLE_BYTES, now_s)

    def take(self, most_bytes: int, now_s: float) -> Piece | None:
        """Return the next lines, or None where there are none now; never raises."""
        for file, end_s in list(self._queue):
            is_last = now_s >= end_s
            try:
                if isinstance(file, Tail) and not is_last and file.is_shorter():
                    copy = self._copy_of(file)
                    if copy is not None:
                        at = [one for one, _ in self._queue].index(file)
                        self._queue.insert(at, (copy, now_s))
                        return self.take(most_bytes, now_s)
                before = file.truncations
                piece = file.read(most_bytes, now_s, is_last)
                self.truncations += file.truncations - before
                self._error = None
            except (OSError, ValueError) as error:
                self._error = sentence(error) if isinstance(error, OSError) else sentence(OSError(str(error)))
                if isinstance(file, Tail):
                    self._resume = (file.identity, *file.position)
                self._drop(file)
                continue
            if piece is not None:
                self.read_bytes += len(piece.data)
                self.lines += piece.data.count(b"\n")
                return piece
            if is_last:
                self._drop(file)
        return None

    def close(self) -> None:
        """Close all files."""
        for file, _ in self._queue:
            file.close()
        self._queue = []

    def let_go(self, now_s: float, idle_s: float) -> None:
        """End what has not grown for `idle_s` since the process has ended."""
        gone_s = self._gone_s = now_s if self._gone_s is None else self._gone_s
        self._queue = [
            (file, min(end_s, max(file.last_growth_s or gone_s, gone_s) + idle_s))
            for file, end_s in self._queue
        ]

    def source(self, is_gone: bool) -> Source:
        """Return how far the reading is."""
        place, newest = self.place, self._queue[-1][0] if self._queue else None
        behind = 0
        for file, _ in self._queue:
            try:
                if isinstance(file, Tail):
                    file.refresh()
            except OSError:
                continue
            behind += file.behind_bytes
        return Source(
            place.kind,
            clean(place.path or place.series),
            self._state(is_gone, behind),
            self._why(),
            place.rank,
            self.read_bytes,
            newest.size_bytes if newest is not None else None,
            behind,
            self.skipped_bytes,
            self.lines,
        )

    @property
    def is_waiting(self) -> bool:
        """Tell whether there was no file yet."""
        return self.place.state == "waiting" and not self._queue

    def _state(self, is_gone: bool, behind: int) -> SourceState:
        if self._error is not None:
            return "unreadable"
        if not self._queue and self.place.through is None:
            return "ended" if is_gone and self.place.state == "waiting" else self.place.state
        if not behind and (is_gone or self.is_ended or not self._queue):
            return "ended" if self.place.state != "unreadable" else "unreadable"
        return self.place.state

    def _why(self) -> Message | None:
        if self._error is not None:
            return self._error
        if self.truncations:
            return Message.of(
                "It was emptied while it was read ({count}x), and is read from its beginning again",
                count=self.truncations,
            )
        return self.place.why

    def _opened(self, place: Place, most_bytes: int) -> Tail | None:
        if place.through is None or place.state == "unreadable":
            return None
        try:
            tail = Tail(place.through, most_bytes)
        except NoFileError:
            return None
        except OSError as error:
            self._error = sentence(error)
            return None
        if self._resume is not None and self._resume[0] == tail.identity:
            tail.continue_from(*self._resume[1:])
        self._error = self._resume = None
        return tail

    def _history(self, place: Place, most_bytes: int) -> list[File]:
        """Open what was rotated away before, oldest first, as much as `most_bytes` allow."""
        found: list[File] = []
        for path in reversed(rotations(place.beside)) if place.beside else ():
            try:
                if os.stat(path).st_mtime < self._started_s:
                    break
                if path.endswith(ENDINGS):
                    file: File = Packed(path)
                    most_bytes -= file.size_bytes * USUAL_RATIO
                else:
                    file = Tail(path, max(0, most_bytes))
                    most_bytes -= file.size_bytes - file.skipped_bytes
            except OSError:
                continue
            if most_bytes < 0:
                file.close()
                break
            found.insert(0, file)
            if file.skipped_bytes:
                break
        return found

    def _missed(self, place: Place) -> list[File]:
        """Open the files between the one that is read and the new one, of rotations that were not seen."""
        if place.beside is None or not self._queue:
            return []
        paths, last = rotations(place.beside), self._queue[-1][0].identity
        names = [identity_of(path) for path in paths]
        found: list[File] = []
        for path in paths[names.index(last) + 1 :] if last in names else ():
            try:
                found.append(Packed(path) if path.endswith(ENDINGS) else Tail(path, WHOLE_BYTES))
            except OSError:
                continue
        return found

    def _copy_of(self, file: Tail) -> Tail | None:
        """Return the copy that was made of a file before it was emptied, behind what was read of it."""
        offset, known = file.position
        for path in rotations(self.place.beside)[: -MOST_COPIES - 1 : -1] if self.place.beside else ():
            if path.endswith(ENDINGS) or not known:
                continue
            try:
                copy = Tail(path, WHOLE_BYTES)
                if copy.continue_from(offset, known):
                    file.restart()
                    self.truncations += 1
                    return copy
                copy.close()
            except OSError:
                continue
        return None

    def _drop(self, file: File) -> None:
        file.close()
        self._queue = [one for one in self._queue if one[0] is not file]
        self._finished[file.path] = None
        while len(self._finished) > MOST_REMEMBERED:
            del self._finished[next(iter(self._finished))]

    def _end_all(self, now_s: float) -> None:
        self._queue = [(file, now_s) for file, _ in self._queue]
        self.is_ended = True
