"""A table that keeps still: columns of fixed widths, of which the least needed go where room is short.

The lines themselves stand in a Feed, which repaints the cells that differ; here is what lays them out.
"""

from __future__ import annotations

from collections.abc import Sequence

from ascend_tui.frozen import frozen
from ascend_tui.text import fit, width
from ascend_tui.widgets.pane import Pane

GAP = 1
"""Blank cells before a column."""


@frozen
class Column:
    """A column beside the first one, which has what the others leave; `drop` says which goes first."""

    key: str
    title: str
    cells: int
    drop: int
    right: bool = True


def fitted(columns: Sequence[Column], cells: int, least: int, keep: str = "") -> tuple[Column, ...]:
    """Return the columns that leave at least `least` cells to the first one; `keep` goes last."""
    kept = list(columns)
    while kept and cells - taken(kept) < least:
        kept.remove(max(kept, key=lambda one: (one.key != keep, one.drop)))
    return tuple(kept)


def taken(columns: Sequence[Column]) -> int:
    """Return the cells that these columns take, with the gaps before them."""
    return sum(one.cells + GAP for one in columns)


def in_column(text: str, column: Column) -> str:
    """Return a text on exactly the cells of its column and the gap before it."""
    text = fit(text, column.cells)
    blank = " " * (column.cells - width(text))
    return " " * GAP + (blank + text if column.right else text + blank)


class TablePane(Pane):
    """A pane that is a table, or several: a key takes the next order, another one the next table."""

    def next_order(self) -> str:
        """Order the lines by something else; return words that say by what."""
        return ""

    def next_table(self) -> str:
        """Show the next table; return words that say which, nothing where there is no other."""
        return ""
