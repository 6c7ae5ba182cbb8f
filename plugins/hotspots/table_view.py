"""The table of operators: its columns, the line of one row, and how far the rows so far add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ascend_tui.plugin import Message
from ascend_tui.text import clean, count, fit, fold, tr, width
from ascend_tui.widgets.quiet import Line, Span
from ascend_tui.widgets.quiet_table import Column, fitted, in_column, taken

from .figures import (
    KINDS,
    fit_end,
    fit_middle,
    left,
    micro,
    per_cent,
    plain,
    ratio_words,
    sentence,
    short_name,
    signed_micro,
    tally,
    trend_of,
)
from .ordering import added_us
from .snapshot import Row

_LEAST_NAME, _MOST_NAME = 14, 60
_TREND = 2
"""A blank and the glyph of the trend, behind the name."""
_BAR = 20
_ORDERED = "▾"


def columns_of(cells: int, order: str, changed: bool = True) -> tuple[Column, ...]:
    """Return the columns that have room in `cells`, the one that the rows are ordered by among them.

    `changed` tells that there is a baseline; without one no column of it is shown.
    """
    # A narrow terminal goes without the rarest; an order by a column brings it in.
    every = (
        Column("share", tr("share"), 6, 0),
        Column("cum", tr("cum"), 6, 5),
        Column("avg", tr("avg us"), 7, 1),
        Column("max", tr("max us"), 7, 7),
        Column("calls", tr("calls"), 6, 3),
        Column("change", tr("± us"), 8, 9 if order != "change" else 2),
        Column("ratio", tr("change"), 7, 6),
        Column("kind", tr("kind"), 7, 4, right=False),
        Column("bar", "", _BAR, 8, right=False),
    )
    titled = [
        Column(one.key, _mark(one, order), one.cells, one.drop, one.right)
        for one in every
        # The sum of both is the same thing in two units, which only the whole width has room for.
        if (one.key != "change" or order == "change" or cells >= 130) and (changed or one.key != "ratio")
    ]
    return fitted(titled, cells - _TREND, _LEAST_NAME, keep=order)


def _mark(column: Column, order: str) -> str:
    return fit(column.title, column.cells - 1) + _ORDERED if column.key == order else column.title


def name_cells(columns: Sequence[Column], cells: int) -> int:
    """Return the cells of the name: what the columns leave, and no endless gap behind it."""
    return max(min(cells - _TREND - taken(columns), _MOST_NAME), 1)


def header(columns: Sequence[Column], cells: int, order: str, name: str) -> Line:
    """Return the titles of the columns."""
    room = name_cells(columns, cells)
    title = fit(name, room - 1) + (_ORDERED if order == "name" else "")
    texts = "".join(in_column(one.title, one) for one in columns)
    return [(left(title, room + _TREND) + texts, "dim")]


def line_of(row: Row, columns: Sequence[Column], cells: int, before: float, so_far: float) -> Line:
    """Return one operator; `before` and `so_far` are the shares of the rows above it, without and with it."""
    room = name_cells(columns, cells)
    sign, role = trend_of(row)
    line: list[Span] = [(left(fit_middle(short_name(row.name), room), room), ""), (f" {sign}", role)]
    for column in columns:
        if column.key == "bar":
            line += _bar(before, so_far, column.cells)
        elif column.key == "kind":
            word, of_kind = KINDS.get(row.kind, KINDS["other"])
            line.append((in_column(tr(word), column), of_kind))
        else:
            line.append((in_column(_TEXTS[column.key](row, so_far), column), ""))
    return line


def table_lines(rows: Iterable[Row], columns: Sequence[Column], cells: int) -> list[Line]:
    """Return all rows, one below the other."""
    lines: list[Line] = []
    so_far = 0.0
    for row in rows:
        above, so_far = so_far, so_far + row.share
        lines.append(line_of(row, columns, cells, above, so_far))
    return lines


_TEXTS: dict[str, Callable[[Row, float], str]] = {
    "share": lambda row, so_far: _part(row.share),
    "cum": lambda row, so_far: _part(so_far),
    "avg": lambda row, so_far: micro(row.avg_us if row.calls else None),
    "max": lambda row, so_far: micro(row.max_us),
    "calls": lambda row, so_far: tally(row.calls),
    "change": lambda row, so_far: signed_micro(added_us(row)),
    "ratio": lambda row, so_far: ratio_words(row.change.time_ratio if row.change else None),
}


def _part(share: float) -> str:
    """Return a share in six cells: the whole without its decimal."""
    return "100 %" if 0.9995 <= share < 1.0005 else per_cent(share)


def _bar(before: float, so_far: float, cells: int) -> list[Span]:
    """Return the row's own share behind those above it: the bars make stairs up to the whole."""
    size = cells - 1
    start, end = (max(0, min(round(part * size), size)) for part in (before, so_far))
    own = "█" * (end - start) or ("▏" if so_far > before and end < size else "")
    blank = " " * (size - start - width(own))
    return [("  ", ""), ("─" * start, "dim"), (own, "first"), (blank, "")]


def nothing_fits(text: str, rows: int, cells: int) -> list[Line]:
    """Say that a filter lets nothing through, and how to get rid of it."""
    words = tr("none of {n} operators fits /{filter}", n=count(rows), filter=plain(fit_end(text, 40)))
    words += "; " + tr("an empty filter shows all")
    return [[(part, "dim")] for part in fold(words, max(cells, 8))]


def folded(message: Message | str, cells: int, role: str = "", indent: int = 0) -> list[Line]:
    """Return a sentence on as many lines as it needs, those after the first indented."""
    text = clean(message) if isinstance(message, str) else sentence(message)
    parts = fold(text, max(cells - indent, 8)) if text else []
    return [[(" " * (indent if number else 0) + part, role)] for number, part in enumerate(parts)]
