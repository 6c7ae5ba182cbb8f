"""One file that grows, read in blocks of whole lines; nothing is kept in memory between two of them.

What was read is remembered as an offset and its last bytes.  The bytes tell a file that was truncated and has
already grown beyond the offset again from one that only grew.
"""

from __future__ import annotations

import errno
import os
import stat

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message

from .sources import Identity

LONGEST_BYTES = 1 << 20
"""A line that is longer is cut here."""
KNOWN_BYTES = 64
PARTIAL_S = 2.0
"""A line whose end does not come within this time is taken as it is: a prompt, a progress bar."""
MOST_HELD_BYTES = 1 << 16
_CONTINUATION = range(0x80, 0xC0)


class NoFileError(OSError):
    """Say that what would be opened is no regular file."""


@frozen
class Piece:
    """Bytes of a file that end at a line's end.

    `goes_on`: they end within a line, whose rest comes next.  `is_new`: what came before in this source is
    not continued by them, because the file was truncated or is another one.
    """

    data: bytes
    goes_on: bool = False
    is_new: bool = False


def open_file(path: str) -> int:
    """Return a descriptor of a regular file; NoFileError for others, which an open could block or disturb."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise NoFileError(errno.EINVAL, "no regular file", path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NoFileError(errno.EINVAL, "no regular file", path)
    return descriptor


def sentence(error: OSError) -> Message:
    """Return an error of the system as a sentence with what to do, where something can be done."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return Message.of("This user may not read it")
    if error.errno == errno.ESTALE:
        return Message.of(
            "It lies on a network file system whose server has forgotten it; it is opened again"
        )
    return Message.of("It cannot be read: {error}", error=error.strerror or type(error).__name__)


class Tail:
    """Read one growing file from a given offset on.

    It holds a descriptor, so that a file that is renamed or removed is read to its end.
    """

    def __init__(self, path: str, most_bytes: int, descriptor: int | None = None) -> None:
        """Open `path` and begin at the first line of its last `most_bytes`; raises OSError."""
        self.path = path
        self._descriptor = open_file(path) if descriptor is None else descriptor
        seen = os.fstat(self._descriptor)
        self.identity: Identity = (seen.st_dev, seen.st_ino)
        self.size_bytes = seen.st_size
        self.offset = 0
        self.truncations = 0
        self.last_growth_s: float | None = None
        self._known = b""
        self._partial = b""
        self._since_s: float | None = None
        self._pending_size = -1
        if seen.st_size > most_bytes:
            self.offset = self._line_start(seen.st_size - max(0, most_bytes))
        self.skipped_bytes = self.offset
        self._is_new = self.offset > 0

    def close(self) -> None:
        """Give the descriptor back; a removed file keeps its room on the disk until then."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def behind_bytes(self) -> int:
        """Return how much is there and was not read, by the size when it was last looked at."""
        return max(0, self.size_bytes - self.offset)

    def continue_from(self, offset: int, known: bytes) -> bool:
        """Go on behind what was read of a copy of this file; False where this is not that copy."""
        if os.pread(self._descriptor, len(known), offset - len(known)) != known:
            return False
        self.offset, self._known, self._is_new, self.skipped_bytes = offset, known, False, 0
        return True

    @property
    def position(self) -> tuple[int, bytes]:
        """Return the offset and the last bytes before it, for `continue_from`."""
        return self.offset, self._known

    def restart(self) -> None:
        """Go back to the start of a truncated file whose rest is read elsewhere, its unfinished line too."""
        self._partial = b""
        self._begin_anew()

    def refresh(self) -> None:
        """Look at the size again; raises OSError."""
        self.size_bytes = os.fstat(self._descriptor).st_size

    def is_shorter(self) -> bool:
        """Tell whether the file was truncated since it was last read, and is not yet as long again."""
        return os.fstat(self._descriptor).st_size < self.offset

    def read(self, most_bytes: int, now_s: float, is_last: bool = False) -> Piece | None:
        """Return the next whole lines, about `most_bytes` of them, or None where there are none yet.

        One line may be longer than that, up to LONGEST_BYTES.  `is_last`: the file does not grow any more, so
        that a last line without an end is one.  Raises OSError.
        """
        size = os.fstat(self._descriptor).st_size
        if size != self.size_bytes:
            self.size_bytes, self.last_growth_s = size, now_s
        if size < self.offset:
            return self._begin_anew() or self.read(most_bytes, now_s, is_last)
        if size == self.offset:
            return None
        waited = self._since_s is not None and now_s - self._since_s >= PARTIAL_S
        if size == self._pending_size and not (waited or is_last):
            return None
        block = self._block(most_bytes)
        if block is None:
            return self._begin_anew() or self.read(most_bytes, now_s, is_last)
        if block[:1] == b"\0":
            block = self._behind_hole(most_bytes)
        if not block:
            return None
        cut = block.rfind(b"\n") + 1
        if not cut and self.offset + len(block) < size and len(block) < LONGEST_BYTES:
            block = self._block(LONGEST_BYTES) or block
            cut = block.rfind(b"\n") + 1
        if cut:
            return self._take(block[:cut])
        if len(block) >= LONGEST_BYTES:
            return self._take(block[: _whole(block, LONGEST_BYTES)], goes_on=True)
        if waited or is_last:
            # A progress bar writes many lines over each other: its last state is not complete yet.
            return self._take(
                block if is_last else block[: block.rfind(b"\r") + 1] or block, goes_on=not is_last
            )
        if self._since_s is None:
            self._since_s = now_s
        self._pending_size, self._partial = size, block[:MOST_HELD_BYTES]
        return None

    def _take(self, data: bytes, goes_on: bool = False) -> Piece:
        self.offset += len(data)
        self._known = (self._known + data)[-KNOWN_BYTES:] if len(data) < KNOWN_BYTES else data[-KNOWN_BYTES:]
        self._partial, self._since_s, self._pending_size = b"", None, -1
        piece = Piece(data, goes_on, self._is_new)
        self._is_new = False
        return piece

    def _block(self, most_bytes: int) -> bytes | None:
        """Return what is at the offset; None where the bytes before it are not those that were read."""
        before = len(self._known)
        if before and os.pread(self._descriptor, before, self.offset - before) != self._known:
            return None
        return os.pread(self._descriptor, most_bytes, self.offset)

    def _begin_anew(self) -> Piece | None:
        """Go back to the start of a truncated file, and return the unfinished line that went with it."""
        partial, is_new = self._partial, self._is_new
        self.offset, self._known, self._partial = 0, b"", b""
        self._since_s, self._pending_size = None, -1
        self.truncations += 1
        self._is_new = True
        return Piece(partial, is_new=is_new) if partial else None

    def _behind_hole(self, most_bytes: int) -> bytes:
        """Skip NUL bytes and return what is behind them.

        A file that was emptied while its writer went on at its old place begins with a hole.  A hole that
        reaches the end is left alone: something may be written into it.
        """
        left = max(most_bytes, 8 * LONGEST_BYTES)
        while left > 0:
            try:
                data = os.lseek(self._descriptor, self.offset, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return b""
                data = self.offset
            self._skip(data - self.offset)
            raw = os.pread(self._descriptor, max(most_bytes, 4096), self.offset)
            block = raw.lstrip(b"\0")
            self._skip(len(raw) - len(block))
            if block or not raw:
                return block
            left -= len(raw)
        return b""

    def _skip(self, count: int) -> None:
        if count:
            self.offset += count
            self._known = b""

    def _line_start(self, offset: int) -> int:
        """Return where the first line begins at or behind `offset`."""
        raw = os.pread(self._descriptor, LONGEST_BYTES, offset - 1)
        at = raw.find(b"\n")
        return offset + at if at >= 0 else offset


def _whole(block: bytes, cut: int) -> int:
    """Return `cut`, or the place before a character of UTF-8 that it would cut through."""
    for at in range(cut - 1, max(-1, cut - 5), -1):
        if block[at] in _CONTINUATION:
            continue
        needs = 4 if block[at] >= 0xF0 else 3 if block[at] >= 0xE0 else 2 if block[at] >= 0xC0 else 1
        return at if at > 0 and at + needs > cut else cut
    return cut
