"""Files that do not grow any more: compressed ones of a rotation, and whole files for `inspect`."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from typing import Protocol

from .follow_file import LONGEST_BYTES, Piece, open_file
from .sources import Identity

BLOCK_BYTES = 1 << 20
ENDINGS = (".gz", ".bz2", ".xz")
USUAL_RATIO = 10
"""Logs shrink to about a tenth; what a packed one holds is not known before it is read."""
_MAGIC = ((b"\x1f\x8b", "gz"), (b"BZh", "bz2"), (b"\xfd7zXZ\0", "xz"))
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError)


def read_file(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Return a finished file in blocks of about 1 MiB that end at line ends; packed ones are unpacked.

    UTF-16 becomes UTF-8, by its byte order mark.  Where a file is damaged or cut short, an OSError comes
    after all that could be read.
    """
    with os.fdopen(open_file(os.fspath(path)), "rb") as raw:
        yield from _lines(_transcoded(_unpacked(raw)))


class Packed:
    """Read a compressed rotated file, once, from its beginning; it looks like a Tail."""

    def __init__(self, path: str) -> None:
        """Open `path`; raises OSError."""
        self.path = path
        self._file = os.fdopen(open_file(path), "rb")
        seen = os.fstat(self._file.fileno())
        self.identity: Identity = (seen.st_dev, seen.st_ino)
        self.size_bytes = seen.st_size
        self.skipped_bytes = self.truncations = 0
        self.last_growth_s: float | None = None
        self._blocks = _lines(_unpacked(self._file))
        self._is_done = False

    def close(self) -> None:
        """Close the file; what was not read is left."""
        self._is_done = True
        self._file.close()

    @property
    def offset(self) -> int:
        """Return how much of the packed file was read."""
        return self.size_bytes if self._is_done else self._file.tell()

    @property
    def behind_bytes(self) -> int:
        """Return how much of the packed file was not read."""
        return max(0, self.size_bytes - self.offset)

    def read(self, most_bytes: int, now_s: float, is_last: bool = True) -> Piece | None:
        """Return the next block, or None at the end; raises OSError where it is damaged."""
        data = None if self._is_done else next(self._blocks, None)
        if data is None:
            self._is_done = True
            return None
        return Piece(data)


class _Readable(Protocol):
    def read1(self, size: int, /) -> bytes: ...


def _unpacked(raw: io.BufferedReader) -> Iterator[bytes]:
    head = raw.read(6)
    raw.seek(0)
    kind = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
    file: _Readable = raw
    if kind == "gz":
        file = gzip.GzipFile(fileobj=raw, mode="rb")
    elif kind == "bz2":
        file = bz2.BZ2File(raw)
    elif kind == "xz":
        file = lzma.LZMAFile(raw)  # noqa: SIM115
    while True:
        # By read1: read would lose what it had when it comes to damage.
        parts: list[bytes] = []
        count = 0
        try:
            while count < BLOCK_BYTES and (part := file.read1(BLOCK_BYTES)):
                parts.append(part)
                count += len(part)
        except DAMAGED as error:
            yield b"".join(parts)
            raise OSError(getattr(error, "errno", None) or 0, f"damaged: {error}") from error
        if not parts:
            return
        yield b"".join(parts)


def _transcoded(blocks: Iterator[bytes]) -> Iterator[bytes]:
    first = next(blocks, b"")
    encoding = _UTF16.get(first[:2])
    # UTF-32 begins like UTF-16; no logger writes it.
    if encoding is None:
        yield first[3:] if first.startswith(codecs.BOM_UTF8) else first
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(first[2:]).encode("utf-8", "replace")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Cut blocks at line ends; a longer line than LONGEST_BYTES is cut where it is too long.

    What could be read is given before an error of reading is.
    """
    rest, error = b"", None
    while True:
        try:
            block = next(blocks)
        except StopIteration:
            break
        except OSError as found:
            error = found
            break
        cut = block.rfind(b"\n") + 1
        if cut:
            yield rest + block[:cut]
            rest = block[cut:]
        else:
            rest += block
        while len(rest) >= LONGEST_BYTES:
            cut = rest.rfind(b"\r", 0, LONGEST_BYTES) + 1 or LONGEST_BYTES
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest
    if error is not None:
        raise error
