"""JSON of any size, one value at a time: what is behind is forgotten, what is cut off ends the reading.

Numbers with a point stay text: a time stamp in microseconds since 1970 loses its last digits in
a 64-bit float.
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import IO, Any, Protocol

CHUNK = 1 << 20
LONGEST = 1 << 26
"""Characters of one value: a longer one is taken for a broken file."""
PACKED = 1 << 16
"""Bytes of a compressed file that are read at once."""
GZIP = b"\x1f\x8b"
_SPACE = re.compile(r"[\s\ufeff]*")
_NEXT = re.compile(r"\}\s*,\s*(?=\{\s*\")")
_NEAR = 32
_MOST_DIGITS = 18


class Text(Protocol):
    """Whatever text is read from, piece by piece."""

    def read(self, size: int = ..., /) -> str:
        """Return about that many characters; "" at the end."""
        ...


class BrokenJson(ValueError):
    """The text is no JSON from here on; `cut` tells that it only ends too early."""

    def __init__(self, words: str, cut: bool = False) -> None:
        super().__init__(words)
        self.cut = cut


class JsonStream:
    """The values of a text that is read in pieces."""

    def __init__(self, file: Text) -> None:
        """Start at the beginning of `file`, of which only `read(n)` is used."""
        self._file = file
        self._decode = json.JSONDecoder(parse_float=str, parse_constant=_nothing, strict=False).raw_decode
        self._text = ""
        self._at = 0
        self._ended = False
        self._behind = 0

    @property
    def position(self) -> int:
        """Return how many characters are behind."""
        return self._behind + self._at

    def peek(self) -> str:
        """Return the next character that is no space, without passing it; "" at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def take(self, character: str) -> bool:
        """Pass the next character if it is this one."""
        if self.peek() != character:
            return False
        self._at += 1
        return True

    def value(self) -> Any:
        """Return the next whole value.  Raises BrokenJson."""
        value, self._at = self._whole()
        return value

    def items(self) -> Iterator[Any]:
        """Yield the values of the list that begins here.  Raises BrokenJson."""
        self._open("[")
        yield from self.rest()

    def rest(self) -> Iterator[Any]:
        """Yield the values of a list that are still to come.  Raises BrokenJson."""
        while not self.take("]"):
            if self.peek() == ",":
                self._at += 1
                continue
            yield self.value()

    def members(self) -> Iterator[str]:
        """Yield the keys of the object that begins here; whoever asks reads the value.  Raises BrokenJson."""
        self._open("{")
        while not self.take("}"):
            if self.peek() == ",":
                self._at += 1
                continue
            key = self.value()
            if not isinstance(key, str) or not self.take(":"):
                raise BrokenJson(f"no key and value at character {self.position}")
            yield key

    def resume(self) -> bool:
        """Go to the next object of a list after a broken one; False where no other begins."""
        self._at += 1
        while True:
            found = _NEXT.search(self._text, self._at)
            if found:
                self._at = found.end()
                return True
            self._at = max(self._at, len(self._text) - _NEAR)
            if not self._more():
                return False

    def _open(self, bracket: str) -> None:
        if not self.take(bracket):
            raise BrokenJson(f"no {bracket} at character {self.position}", cut=self.peek() == "")

    def _whole(self) -> tuple[Any, int]:
        size = CHUNK
        while True:
            if self.peek() == "":
                raise BrokenJson("the text ends too early", cut=True)
            try:
                value, end = self._decode(self._text, self._at)
            except RecursionError:
                raise BrokenJson(f"nested too deep at character {self.position}") from None
            except json.JSONDecodeError as error:
                halfway = error.pos >= len(self._text) - _NEAR or error.msg.startswith("Unterminated")
                left = len(self._text) - self._at
                if halfway and not self._ended and left < LONGEST and self._more(size):
                    size = min(size * 2, LONGEST)
                    continue
                raise BrokenJson(f"no JSON at character {self.position}", halfway and self._ended) from None
            # A number at the end of a piece may go on in the next one.
            if end == len(self._text) and not self._ended and self._more():
                continue
            return value, end

    def _more(self, size: int = CHUNK) -> bool:
        if self._ended:
            return False
        piece = self._file.read(size)
        self._ended = not piece
        self._text = self._text[self._at :] + piece
        self._behind += self._at
        self._at = 0
        return bool(piece)


class _Text:
    """The text of a file, which may be compressed; what is damaged or cut off ends it."""

    def __init__(self, file: IO[bytes], packed: bool) -> None:
        self._file = file
        self._unpack = _unpacker() if packed else None
        self._packed = b""
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")

    def read(self, size: int = CHUNK) -> str:
        """Return the next piece of about that many characters; "" at the end."""
        while raw := self._bytes(size):
            text = self._decoder.decode(raw)
            if text:
                return text
        return self._decoder.decode(b"", True)

    def _bytes(self, size: int) -> bytes:
        if self._unpack is None:
            return self._file.read(size)
        while True:
            if not self._packed:
                self._packed = self._file.read(PACKED)
                if not self._packed:
                    return b""
            if self._unpack.eof:
                # A file may be several compressed ones, one after the other.
                self._unpack = _unpacker()
            try:
                raw: bytes = self._unpack.decompress(self._packed, size)
            except zlib.error:
                return b""
            self._packed = self._unpack.unused_data if self._unpack.eof else self._unpack.unconsumed_tail
            if raw:
                return raw


def _unpacker() -> Any:
    return zlib.decompressobj(zlib.MAX_WBITS | 16)


@contextmanager
def opened(path: Path) -> Iterator[JsonStream]:
    """Open a file of JSON, also a compressed one.  Raises OSError."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
        file.seek(0)
        yield JsonStream(_Text(file, packed))


def head_text(head: bytes) -> str:
    """Return the first bytes of a file as text, also of a compressed one."""
    if head[:2] == GZIP:
        try:
            head = bytes(_unpacker().decompress(head, CHUNK))
        except zlib.error:
            return ""
    return codecs.decode(head, "utf-8", "replace").replace("\0", "").lstrip("\ufeff")


def nanoseconds(value: object) -> int | None:
    """Return a time in microseconds as whole nanoseconds, None where it is no time."""
    if isinstance(value, int):
        return None if isinstance(value, bool) or abs(value) >= 10**_MOST_DIGITS else value * 1000
    if not isinstance(value, str):
        return None
    whole, _, part = value.partition(".")
    if whole.isdigit() and whole.isascii() and len(whole) <= _MOST_DIGITS:
        if not part:
            return int(whole) * 1000
        if part.isdigit() and part.isascii():
            return int(whole) * 1000 + int(part[:3].ljust(3, "0"))
    try:
        exact = Decimal(value.strip())
    except InvalidOperation:
        return None
    return int(exact * 1000) if exact.is_finite() and exact.adjusted() < _MOST_DIGITS else None


def number(value: object) -> float | None:
    """Return a number of a value that was read, None where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if found == found and abs(found) != float("inf") else None


def _nothing(name: str) -> None:
    """Read NaN and Infinity, which are no JSON, as nothing."""
