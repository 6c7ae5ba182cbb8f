"""A thread that reads all logs of one target and digests them, so that no tick ever waits for a file."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ascend_tui.frozen import frozen
from ascend_tui.target import TargetId

from .snapshot import Digest, Source

if TYPE_CHECKING:
    from .digest import Digester, Keywords

START_S = 0.4
LOOK_S = 3.0
"""Between two looks for new files."""
BLOCK = 1 << 20
FIRST_BYTES = 64 << 20
"""Of a log that is there already so much of its end is digested."""
REST_S, IDLE_S = 0.05, 0.25
SHOW_S, WAIT_S = 0.4, 2.0
TEED = 1000
"""Number of the source that is the teed stdout; the next one is stderr."""
MOST_TEED = 4096
"""Pieces of teed output that wait; the oldest are let go, which is counted."""


@frozen
class Read:
    """What was read up to one moment.

    `caught_up_s` is when nothing waited last, None while it never was so: what was told by then is history.
    """

    digest: Digest
    sources: tuple[Source, ...]
    at_s: float
    caught_up_s: float | None
    lines_per_s: float
    failed: str = ""
    unread_sources: int = 0
    """Sources beyond those that can be followed."""


class Reader:
    """Read what a process writes, and keep the newest digest of it ready."""

    def __init__(
        self,
        target: TargetId,
        globs: Sequence[str] = (),
        keywords: Keywords | None = None,
        first_bytes: int = FIRST_BYTES,
    ) -> None:
        """Begin at once, in a thread of its own; of what is there already take the last `first_bytes`."""
        self._first_bytes = first_bytes
        self.newest: Read | None = None
        self._target, self._globs, self._keywords = target, globs, keywords
        self._teed: deque[tuple[str, str, int]] = deque(maxlen=MOST_TEED)
        self._partial = {"stdout": "", "stderr": ""}
        self._ending = threading.Event()
        self._is_last = False
        self.began_s = time.time()
        self._thread = threading.Thread(target=self._run, name=f"logs-{target.pid}", daemon=True)
        self._thread.start()

    def take_teed(self, stream: str, text: str, dropped: int) -> None:
        """Take what the tee in the training sent; from any thread."""
        self._teed.append((stream, text, dropped))

    def finish(self) -> None:
        """Read to the end of what there is, and stop then: nobody writes any more."""
        self._is_last = True

    def close(self) -> None:
        """End the thread; what it has read stays."""
        self._ending.set()

    def wait(self) -> None:
        """Wait for the thread's end, which a block that is being digested holds up, and not for long."""
        if self._thread is not threading.current_thread():
            self._thread.join(WAIT_S)

    def _run(self) -> None:
        try:
            self._read()
        except Exception as error:  # noqa: BLE001 - the thread's fault is told in the pane, and ends only it
            empty = Read(Digest(), (), time.time(), None, 0.0)
            last = self.newest or empty
            told = f"{type(error).__name__}: {error}"
            self.newest = Read(last.digest, last.sources, time.time(), last.caught_up_s, 0.0, told)

    def _read(self) -> None:
        # The rules take a third of a second to compile, for which the first picture does not wait.
        self._ending.wait(START_S)
        from .digest import Digester
        from .reading.follow import Follower

        follower = Follower(self._target.pid, self._target.start_ticks, self._globs, self._first_bytes)
        digester = Digester(self._keywords, time.localtime().tm_year)
        caught_up_s: float | None = None
        looked = shown = -LOOK_S
        seen = (0, time.monotonic())
        rate = 0.0
        while not self._ending.is_set():
            now, wall = time.monotonic(), time.time()
            if now - looked >= LOOK_S:
                looked = now
                follower.look()
            chunks = follower.read(BLOCK)
            sources = follower.sources() if chunks else ()
            for chunk in chunks:
                if chunk.is_new:
                    digester.begin_anew(chunk.source)
                rank = sources[chunk.source].rank if chunk.source < len(sources) else None
                digester.feed(chunk.source, chunk.data, wall, rank)
            self._digest_teed(digester, wall)
            if not chunks:
                digester.idle(wall)
                caught_up_s = wall
                if self._is_last:
                    digester.settle()
                    self._ending.set()
                    shown = -LOOK_S
            if now - shown >= SHOW_S:
                if now > seen[1]:
                    rate = (digester.lines - seen[0]) / (now - seen[1])
                seen, shown = (digester.lines, now), now
                self.newest = Read(
                    digester.result(), follower.sources(), wall, caught_up_s, rate, "", follower.left_out
                )
            # After a full block there is no time to rest.
            if sum(len(chunk.data) for chunk in chunks) < BLOCK // 4:
                self._ending.wait(REST_S if chunks else IDLE_S)
        follower.close()

    def _digest_teed(self, digester: Digester, wall_s: float) -> None:
        while self._teed:
            stream, text, dropped = self._teed.popleft()
            if stream not in self._partial:
                continue
            # What was begun before a gap was not ended after it.
            text = ("" if dropped else self._partial[stream]) + text
            whole, newline, rest = text.rpartition("\n")
            # A progress bar ends no line for hours.
            if not newline and ("\r" in text or len(text) > BLOCK):
                whole, rest = text, ""
            self._partial[stream] = rest
            if whole:
                source = TEED + (stream == "stderr")
                digester.feed(source, (whole + "\n").encode("utf-8", "replace"), wall_s)
