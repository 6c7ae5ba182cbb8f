"""The members of a JSON object of any size, one at a time, also of one that ends in the middle.

Bare NaN and Infinity are read, as Python writes them.  A dump of all operators of a step has hundreds of
megabytes, and a training that is still running may be writing it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

CHUNK = 1 << 20
LARGEST = 16 << 20
"""Characters of one member; a longer one ends the reading."""

_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n,"


class Members:
    """Iterate over (depth, key, value, characters): 1, of the object; 2, of that under its key `inside`.

    Afterwards `trouble` says in which way the text ended early, and is empty where it did not.
    """

    def __init__(self, path: Path, inside: str = "") -> None:
        """Name the file; nothing is read yet."""
        self.path = path
        self.inside = inside
        self.trouble = ""

    def __iter__(self) -> Iterator[tuple[int, str, Any, int]]:
        with self.path.open(encoding="utf-8-sig", errors="replace") as file:
            reader = _Reader(file)
            try:
                yield from self._members(reader)
            except _EndError as end:
                self.trouble = str(end)

    def _members(self, reader: _Reader) -> Iterator[tuple[int, str, Any, int]]:
        if reader.next() != "{":
            raise _EndError("is no JSON object")
        reader.at += 1
        depth = 1
        while depth:
            sign = reader.next()
            if sign == "}":
                reader.at += 1
                depth -= 1
                continue
            key = reader.value()
            if not isinstance(key, str) or reader.next(_SPACE[:-1]) != ":":
                raise _EndError("is damaged")
            reader.at += 1
            if depth == 1 and key == self.inside and reader.next(_SPACE[:-1]) == "{":
                reader.at += 1
                depth = 2
                continue
            begin = reader.consumed + reader.at
            value = reader.value()
            yield depth, key, value, reader.consumed + reader.at - begin


class _EndError(Exception):
    """The text cannot be read any further."""


class _Reader:
    """A window on the text that grows only while one member does not fit."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.text = ""
        self.at = 0
        self.consumed = 0

    def more(self) -> bool:
        """Read on, twice as much where one member needs it; False at the end of the file."""
        self.consumed += self.at
        self.text = self.text[self.at :]
        self.at = 0
        if len(self.text) > LARGEST:
            raise _EndError("has a member of more than 16 MiB")
        chunk = self.file.read(max(CHUNK, len(self.text)))
        self.text += chunk
        return bool(chunk)

    def next(self, skip: str = _SPACE) -> str:
        """Return the next character that is none of `skip`."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in skip:
                self.at += 1
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                raise _EndError("ends in the middle")

    def value(self) -> Any:
        """Return the JSON value that begins at the next character."""
        self.next(_SPACE[:-1])
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.at)
            except json.JSONDecodeError:
                if self.more():
                    continue
                raise _EndError("ends in the middle or is damaged") from None
            except RecursionError:
                raise _EndError("is nested too deeply") from None
            except ValueError:
                raise _EndError("has a number of thousands of digits") from None
            # A number at the very end of what is read may go on.
            if end == len(self.text) and self.more():
                continue
            self.at = end if end <= len(self.text) else len(self.text)
            return value
