"""Follow everything that a process writes: places found again and again, files read in bounded steps."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ascend_tui.frozen import frozen
from ascend_tui.target.proc import read_stat

from ..snapshot import Source
from .follow_file import LONGEST_BYTES
from .follow_packed import read_file
from .follow_stream import Stream
from .places import Place, places, started_s
from .places_cann import OLDER_S

__all__ = ["Chunk", "Follower", "read_file"]

FIRST_BYTES = 64 << 20
LEAST_SHARE_BYTES = 1 << 16
MOST_SOURCES = 64
LAST_S = 30.0
"""So long after the end of its process a file is read on: launchers write a last word."""


@frozen
class Chunk:
    """Bytes of one source (its index in `Follower.sources()`), that end at a line's end.

    `goes_on`: they end within a line, which the source's next chunk continues.  `is_new`: they do not
    continue what came before in this source, because the file was emptied or what was before was skipped.
    """

    source: int
    data: bytes
    goes_on: bool = False
    is_new: bool = False


class Follower:
    """Read what one process writes, wherever it is, in steps that the caller bounds.

    It has no thread and one descriptor for each file; nothing of a file stays in memory between two reads but
    the first 64 KiB of an unfinished line.  Nothing that happens to a file raises: it is a source's state.
    """

    def __init__(
        self, pid: int, start_ticks: int, globs: Sequence[str] = (), first_bytes: int = FIRST_BYTES
    ) -> None:
        """Remember whom to follow; `look` finds the files."""
        self._pid = pid
        self._start_ticks = start_ticks
        self._globs = tuple(globs)
        self._first_bytes = first_bytes
        self._streams: list[Stream] = []
        self._turn = 0
        self._is_gone = False
        self._is_first = True
        self._started_s = 0.0
        self.left_out = 0
        """How many sources more there were than can be followed."""

    def look(self, now_s: float | None = None) -> None:
        """Find the files again, every few seconds: new ones, rotated ones; or that the process has ended."""
        now_s = time.monotonic() if now_s is None else now_s
        seen = read_stat(self._pid)
        if seen is None or seen.start_ticks != self._start_ticks or seen.state in ("Z", "X"):
            self._is_gone = True
            for stream in self._streams:
                stream.let_go(now_s, LAST_S)
            return
        self._started_s = started_s(seen.start_ticks) - OLDER_S
        met: set[int] = set()
        new: dict[str, list[Place]] = {}
        for place in places(self._pid, self._globs):
            known = self._stream_of(place)
            if known is None:
                new.setdefault(place.series, []).append(place)
            else:
                met.add(id(known))
                known.meet(place, self._first_bytes, now_s)
        for stream in self._streams:
            if id(stream) not in met and not self._adopt(stream, new, now_s):
                stream.miss(now_s)
        room = MOST_SOURCES - len(self._streams)
        self.left_out = max(0, len(new) - room)
        self._begin(list(new.values())[:room], now_s)
        self._is_first = False

    def read(self, most_bytes: int, now_s: float | None = None) -> list[Chunk]:
        """Return what is new, about `most_bytes` of it; a line is never cut for that.

        Every source gets its share first; what some do not need goes to the others.
        """
        now_s = time.monotonic() if now_s is None else now_s
        found: list[Chunk] = []
        count = len(self._streams)
        self._turn += 1
        hungry = [(self._turn + at) % count for at in range(count)]
        left = most_bytes
        while left > 0 and hungry:
            share = min(max(LEAST_SHARE_BYTES, left // len(hungry)), LONGEST_BYTES)
            fed: list[int] = []
            for at in hungry:
                if left <= 0:
                    break
                piece = self._streams[at].take(share, now_s)
                if piece is not None:
                    left -= len(piece.data)
                    fed.append(at)
                    found.append(Chunk(at, piece.data, piece.goes_on, piece.is_new))
            hungry = fed
        return found

    def sources(self) -> tuple[Source, ...]:
        """Return all sources that there were, in the order of the chunks' numbers."""
        return tuple(stream.source(self._is_gone) for stream in self._streams)

    def close(self) -> None:
        """Close all files."""
        for stream in self._streams:
            stream.close()

    def _stream_of(self, place: Place) -> Stream | None:
        """Return the source of a place: by its file, which may have a new name, else by its series."""
        by_file = (one for one in self._streams if place.identity is not None and one.has(place))
        by_series = (one for one in self._streams if one.place.series == place.series)
        return next(by_file, None) or next(by_series, None)

    def _adopt(self, stream: Stream, new: dict[str, list[Place]], now_s: float) -> bool:
        """Let a source that waited for a pattern be that of the first file that matches it."""
        if not stream.is_waiting:
            return False
        kind = stream.place.kind
        series = next((one for one, places in new.items() if places[0].kind == kind), None)
        if series is None:
            return False
        for place in new.pop(series):
            stream.meet(place, self._first_bytes, now_s)
        return True

    def _begin(self, groups: Sequence[Sequence[Place]], now_s: float) -> None:
        """Open new sources; the first time they share `first_bytes`, small files wholly, large ones alike."""
        streams = [Stream(group[-1], self._started_s) for group in groups]
        sizes = [sum(place.size_bytes for place in group) for group in groups]
        if not self._is_first:
            shares = [self._first_bytes for _ in groups]
            history = 0
        else:
            shares = _shares(sizes, self._first_bytes)
            spare = self._first_bytes - sum(min(one) for one in zip(sizes, shares))
            history = spare // max(1, sum(size > 0 for size in sizes))
        for stream, group, share in zip(streams, groups, shares):
            stream.start(group, share, history, now_s)
        self._streams += streams


def _shares(sizes: Sequence[int], most_bytes: int) -> list[int]:
    """Return how much of each file is read: an equal part, and more where small ones leave some."""
    shares = [0] * len(sizes)
    left, order = most_bytes, sorted(range(len(sizes)), key=lambda at: sizes[at])
    for done, at in enumerate(order):
        # Not cut to the size: the file grows until it is opened.
        shares[at] = left // (len(order) - done)
        left -= min(sizes[at], shares[at])
    return shares
