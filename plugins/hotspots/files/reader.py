"""The rows of a table of any size in bounded memory: what is wrong with one of them costs only itself.

A block of lines goes to a `fast` reader where there is one; what that does not take is read here, line by
line.  A quoted cell may hold commas and line ends.  A quote that is never closed does not swallow the rows
behind it: after some lines the row that began with it is given up, and the others are read anew.
"""

from __future__ import annotations

import codecs
import csv
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from ascend_tui.plugin import Message

from .columns import Header

BLOCK = 1 << 18
"""Bytes that are read at once."""
LARGE_BLOCK = 1 << 23
"""Bytes that are read at once for a fast reader, which has its own costs for each block."""
LONGEST = 1 << 20
"""Bytes of a row, line ends in quotes included; a longer one is left out."""
MOST_LINES = 500
"""Lines of one row: a call stack has some dozens."""

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

Take = Callable[[list[str]], bool]
Fast = Callable[[bytes], int]


def head_of(head: str) -> Header:
    """Return the columns that a text begins with, none where its first line is no header."""
    for line in head.lstrip("\ufeff").splitlines():
        if line.strip() and not line.startswith("#"):
            return Header(_split(line, _delimiter(line)) or ())
    return Header(())


def text_of(head: bytes) -> str:
    """Return the first bytes of a file as text."""
    encoding = "utf-16" if head.startswith(_UTF16) else "utf-8"
    return head.decode(encoding, "replace").replace("\0", "").lstrip("\ufeff")


class Reader:
    """Walk once through a table and count what could be read."""

    def __init__(self, path: Path, block: int = BLOCK) -> None:
        """Read up to the end of the header.  Raises OSError."""
        self.read = self.skipped = self.too_long = 0
        self.first_skipped = 0
        self.truncated = self.unended = False
        self._number = 0
        self._delimiter = ","
        self._blocks = _blocks(path, block)
        self._rest = b""
        self._open: list[tuple[int, str]] = []
        self._quotes = self._size = 0
        self.header = self._first()

    def _first(self) -> Header:
        for block in self._blocks:
            self._rest += block
            while b"\n" in self._rest:
                line, _, self._rest = self._rest.partition(b"\n")
                header = self._header(line)
                if header is not None:
                    return header
            if len(self._rest) > LONGEST:
                break
        header = self._header(self._rest)
        self.unended = bool(self._rest)
        self._rest = b""
        return header or Header(())

    def _header(self, raw: bytes) -> Header | None:
        self._number += 1
        line = _text(raw[:LONGEST])
        if not line.strip() or line.startswith("#"):
            return None
        self._delimiter = _delimiter(line)
        return Header(_split(line, self._delimiter) or ())

    @property
    def plain(self) -> bool:
        """Tell whether a fast reader may take its blocks: those are set apart by commas."""
        return self._delimiter == ","

    def rows(self, take: Take, fast: Fast | None = None) -> None:
        """Give each row's cells to `take`, which tells whether it understood them.

        `fast` gets whole lines, takes all of them or none, and returns how many it took.  Raises OSError.
        """
        self._take = take
        lost, rest = False, b""
        for block in chain((self._rest,), self._blocks):
            if lost:
                _, end, block = block.partition(b"\n")
                if not end:
                    continue
                lost = False
            # Looked for in the new bytes only: a line of many blocks is searched once.
            cut = block.rfind(b"\n") + 1
            if not cut:
                rest += block
                if len(rest) > LONGEST:
                    self._number += 1
                    self._skip(self._number)
                    self.too_long += 1
                    rest, lost = b"", True
                continue
            lines, rest = rest + block[:cut], block[cut:]
            taken = fast(lines) if fast is not None and not self._open else 0
            if taken:
                self._number += taken
                self.read += taken
                continue
            for raw in lines[:-1].split(b"\n"):
                self._number += 1
                self._line(self._number, _text(raw))
        self._ending(rest)

    def _ending(self, rest: bytes) -> None:
        for raw in rest.split(b"\n") if rest else ():
            self._number += 1
            line = _text(raw)
            if not line.strip():
                continue
            self.unended = True
            before = self.skipped
            self._line(self._number, line)
            self.truncated = self.skipped > before
        while self._open:
            skipped, read = self.skipped, self.read
            self._give_up()
            if self.read == read:
                # What stands behind the open quote was its cell and no rows of their own.
                self.truncated, self.skipped = True, skipped + 1

    def _line(self, number: int, line: str) -> None:
        waiting = deque(((number, line),))
        while waiting:
            number, line = waiting.popleft()
            quotes = line.count('"')
            if not self._open and not quotes % 2:
                if line and not line.isspace():
                    self._cells(number, line)
                continue
            self._open.append((number, line))
            self._quotes += quotes
            self._size += len(line)
            if not self._quotes % 2:
                lines, self._open = self._open, []
                self._quotes = self._size = 0
                if not self._cells(lines[0][0], "\n".join(one for _, one in lines), len(lines) == 1):
                    self._skip(lines[0][0])
                    waiting.extendleft(reversed(lines[1:]))
            elif len(self._open) > MOST_LINES or self._size > LONGEST:
                waiting.extendleft(reversed(self._give_up(again=False)))

    def _give_up(self, again: bool = True) -> list[tuple[int, str]]:
        """Leave the row out that began with a quote without an end; return or read the lines behind it."""
        lines, self._open = self._open, []
        self._quotes = self._size = 0
        self._skip(lines[0][0])
        for number, line in lines[1:] if again else ():
            self._line(number, line)
        return lines[1:]

    def _cells(self, number: int, line: str, alone: bool = True) -> bool:
        cells = _split(line, self._delimiter)
        width = len(self.header)
        while cells and len(cells) > width and not cells[-1].strip():
            cells.pop()
        if cells is not None and len(cells) == width and self._take(cells):
            self.read += 1
            return True
        if cells is not None and tuple(cell.strip() for cell in cells) == self.header.cells:
            return True
        if alone:
            self._skip(number)
        return False

    def _skip(self, number: int) -> None:
        self.skipped += 1
        self.first_skipped = self.first_skipped or number

    def notes(self) -> list[Message]:
        """Return what was wrong with the file, in sentences."""
        notes = []
        if self.truncated:
            notes.append(Message.of("The file ends in the middle of a row: it is cut, the rest is missing"))
        elif self.unended:
            notes.append(Message.of("The last line has no end: the file may be cut"))
        others = self.skipped - self.too_long - self.truncated
        if others > 0:
            notes.append(
                Message.of(
                    "{count} rows could not be read and are left out (the first is line {line})",
                    count=others,
                    line=self.first_skipped,
                )
            )
        if self.too_long:
            notes.append(
                Message.of("{count} lines are longer than 1 MiB and are left out", count=self.too_long)
            )
        return notes


def _blocks(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        mark = file.read(4)
        if not mark.startswith(_UTF16):
            yield mark.removeprefix(codecs.BOM_UTF8)
            while block := file.read(size):
                yield block.replace(b"\r\n", b"\n") if b"\r" in block else block
            return
    with path.open(encoding="utf-16", errors="replace", newline=None) as text:
        while part := text.read(size):
            yield part.encode("utf-8", "replace")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").replace("\0", "").rstrip("\r")


def _delimiter(line: str) -> str:
    return "," if "," in line else next((mark for mark in "\t;" if mark in line), ",")


def _split(line: str, delimiter: str) -> list[str] | None:
    """Return the cells of one row; None for what is no CSV."""
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), None)
    except csv.Error:
        return None
