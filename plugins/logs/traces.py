"""Python tracebacks, put together line by line for each stream that writes one."""

from __future__ import annotations

import re
from collections.abc import Hashable

from .sighting import Line

FIRST, LAST, MOST_LINES = 20, 60, 400
"""Frames that are kept of a traceback: the outermost and the innermost; and lines until it is given up."""
OPENING = "Traceback (most recent call last):"
FRAME = re.compile(r'\s*File "[^"\n]{1,400}", line \d{1,9}(?:, in .{1,200})?')
_CHAINS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


class Traces:
    """The tracebacks that are being written, at most one for a stream."""

    def __init__(self) -> None:
        """Start with none."""
        self._open: dict[Hashable, _Trace] = {}
        self.chained: set[Hashable] = set()
        """Streams whose last exception led to another one."""

    def __bool__(self) -> bool:
        """Tell whether every line has to be looked at, because one of them is open."""
        return bool(self._open)

    def take(self, stream: Hashable, line: Line) -> tuple[str, ...] | None:
        """Take a line; return the frames where it is the exception that ends a traceback.

        An empty tuple: the line is used up.  None: it belongs to no traceback.
        """
        body = line.body
        trace = self._open.get(stream)
        if OPENING in body and not body[:1].isspace():
            self._open[stream] = _Trace()
            return ()
        if body.strip() in _CHAINS:
            self.chained.add(stream)
            return ()
        if FRAME.match(body):
            if trace is None:
                # The first lines of it were lost, or belong to the end of another line.
                trace = self._open[stream] = _Trace()
            trace.frame(body.strip())
            return ()
        if trace is None:
            return None
        trace.lines += 1
        if trace.lines > MOST_LINES:
            del self._open[stream]
            return None
        if body[:1] in (" ", "\t") or not body.strip():
            trace.code(body.strip())
            return ()
        del self._open[stream]
        return trace.frames()

    def forget(self, source: int) -> None:
        """Give up what a source has begun and not ended."""
        self._open = {key: one for key, one in self._open.items() if key[0] != source}  # type: ignore[index]


class _Trace:
    def __init__(self) -> None:
        self.lines = 0
        self._first: list[str] = []
        self._last: list[str] = []

    def frame(self, text: str) -> None:
        self.lines += 1
        kept = self._first if len(self._first) < FIRST else self._last
        kept.append(text[:600])
        if len(self._last) > LAST:
            del self._last[0]

    def code(self, text: str) -> None:
        kept = self._last or self._first
        if kept and text and "\n" not in kept[-1] and text.strip("^~ "):
            kept[-1] += "\n" + text[:300]

    def frames(self) -> tuple[str, ...]:
        return tuple(self._first + self._last)
