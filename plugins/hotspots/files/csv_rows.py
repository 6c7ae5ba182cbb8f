"""Rows of a small table as mappings, by the names that columns.py makes of its columns; N/A is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from .columns import Header, number, word
from .reader import Reader, head_of


def header_of(head: str) -> Header:
    """Return the columns of a text that begins with a table, none where it does not."""
    return head_of(head)


def walk(path: Path, take: Callable[[Mapping[str, str]], bool]) -> Reader:
    """Give each row to `take`, which tells whether it understood it; return what was counted."""
    reader = Reader(path)
    names = reader.header.names

    def row(cells: list[str]) -> bool:
        return take({name: text for name, cell in zip(names, cells) if name and (text := word(cell))})

    reader.rows(row)
    return reader


def amount(row: Mapping[str, str], *names: str) -> float | None:
    """Return the number in the first of these columns that has one."""
    found = (number(row[name]) for name in names if name in row)
    return next((value for value in found if value is not None), None)


def whole(text: str) -> int | None:
    """Return a whole number of few digits, None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
