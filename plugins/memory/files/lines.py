"""The lines of a file of any size, encoding and honesty, in bounded memory."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

LONGEST = 1 << 20
"""Characters of one line that are looked at; the rest of a longer one is left out."""

_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file without their ends.  Raises OSError.

    Bytes that are no UTF-8 become replacement characters and NUL bytes vanish.
    """
    with path.open("rb") as file:
        encoding = encoding_of(file.read(4))
    with path.open(encoding=encoding, errors="replace", newline=None) as text:
        while line := text.readline(LONGEST):
            yield line.rstrip("\n").replace("\0", "")
            while line and not line.endswith("\n") and len(line) == LONGEST:
                line = text.readline(LONGEST)


def encoding_of(head: bytes) -> str:
    """Return the encoding that a byte order mark tells, else UTF-8."""
    return next((name for mark, name in _BOMS if head.startswith(mark)), "utf-8")


def text_of(head: bytes) -> str:
    """Return the first bytes of a file as text."""
    return head.decode(encoding_of(head), "replace").replace("\0", "").lstrip("\ufeff")


def cells(rows: Iterable[str], delimiter: str = ",") -> Iterator[list[str]]:
    """Yield the trimmed cells of CSV rows; what is no CSV is passed over.

    A quoted cell may hold line ends.  The csv module refuses a cell longer than its limit: such a row is
    lost, the next ones are not.
    """
    reader = csv.reader((row + "\n" for row in rows), delimiter=delimiter, skipinitialspace=True)
    while True:
        try:
            row = next(reader)
        except csv.Error:
            continue
        except StopIteration:
            return
        yield [cell.strip() for cell in row]
