"""The four tables as lines: incidents, metrics, templates, and where all of it is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ascend_tui.frozen import frozen
from ascend_tui.text import byte_size, count, fit, fold, msgid, tr, width
from ascend_tui.widgets.quiet import Line, Span
from ascend_tui.widgets.quiet_table import Column, fitted, in_column, taken

from ..snapshot import Incident, Metric, Source, Template
from .figures import (
    SEVERITIES,
    SOURCE_STATES,
    TRENDS,
    UNKNOWN,
    fit_end,
    last_of,
    left,
    number,
    plain,
    ranks_of,
    right,
    sentence,
    severity_of,
    size_words,
    source_kind,
    spark,
    tally,
)

TABLES = {
    "incidents": msgid("incidents"),
    "metrics": msgid("metrics"),
    "templates": msgid("kinds of lines"),
    "sources": msgid("sources"),
}
ASYNC = msgid("async")
_OF_COUNT = 5
_LEAST, _LEAST_HEADLINE = 14, 24
_SPARK = 24


@frozen
class Around:
    """What a line depends on besides what it tells: when a part of it changes, all lines are said anew.

    An incident has `most_lines` lines at most.  `now_s` is of the hour only: it tells today from other days.
    """

    cells: int
    most_lines: int = 2
    now_s: float = 0.0
    world_size: int | None = None
    language: str = ""
    can_draw: bool = True


def header(table: str, around: Around) -> Line:
    """Return the titles of a table's columns."""
    if table == "incidents":
        room, columns = _incident_columns(around.cells)
        start = left(tr("sev"), _of_severity()) + right("n", _OF_COUNT) + "  " + left(tr("incident"), room)
    elif table == "templates":
        columns = ()
        start = right("n", _OF_COUNT) + "  " + tr("lines that differ in numbers only")
    else:
        room, columns = _named_columns(table, around.cells)
        start = "  " + left(fit(tr(_FIRST[table]), room), room)
    return [(fit(start + "".join(in_column(one.title, one) for one in columns), around.cells), "dim")]


def lines_of(one: Any, around: Around) -> tuple[Line, ...]:
    """Return a line of any table, of an incident several where its headline is long."""
    if isinstance(one, Incident):
        return _incident_lines(one, around)
    if isinstance(one, Template):
        return (_template_line(one, around),)
    return (_metric_line(one, around) if isinstance(one, Metric) else _source_line(one, around),)


# Incidents.


def _of_severity() -> int:
    return 2 + max(width(tr(word)) for _, word, _ in SEVERITIES.values())


def _incident_columns(cells: int) -> tuple[int, tuple[Column, ...]]:
    """Return the cells of the headline, and the columns at its right that leave it so many."""
    room = cells - _of_severity() - _OF_COUNT - 2
    every = [Column("ranks", tr("ranks"), 5, 2), Column("last", tr("last"), 6, 1)]
    if cells >= 84:
        every.insert(0, Column("step", tr("step"), 8, 3))
    columns = fitted(every, room, _LEAST_HEADLINE) or fitted(every[-1:], room, _LEAST)
    return max(room - taken(columns), 1), columns


def _incident_lines(one: Incident, around: Around) -> tuple[Line, ...]:
    sign, word, role = severity_of(one.severity)
    room, columns = _incident_columns(around.cells)
    of_severity = _of_severity()
    said = sentence(one.headline)
    first = fold(said, room)[0]
    # Not what was folded: a word that is longer than a line was broken.
    rest = said[len(first) :].lstrip(" ")
    line: list[Span] = [
        (left(fit(f"{sign} {word}", of_severity), of_severity), role),
        (right(tally(one.count), _OF_COUNT), "bold" if one.count > 1 else ""),
        ("  " + left(first, room), "bold"),
    ]
    step = one.last_step if one.last_step is not None else one.step
    texts = {
        "step": UNKNOWN if step is None else count(step),
        "ranks": ranks_of(one.ranks, around.world_size, 2),
        "last": last_of(one, around.now_s),
    }
    line += [(in_column(texts[column.key], column), "") for column in columns]
    is_async = one.attribution == "async"
    if not rest and not is_async:
        return (line,)
    indent = " " * (of_severity + _OF_COUNT + 2)
    # Nothing stands at its right but this word.
    ends = f" {tr(ASYNC)}" if is_async else ""
    room = max(around.cells - width(indent) - width(ends), 1)
    under = fold(rest, room)
    if len(under) >= around.most_lines:
        kept = around.most_lines - 2
        for told in under[:kept]:
            rest = rest[len(told) :].lstrip(" ")
        under = [*under[:kept], fit(rest, room)]
    lines: list[Line] = [line, [(indent + left(under[0], room), "bold"), (ends, "warn")]]
    return (*lines, *([(indent + text, "bold")] for text in under[1:]))


# Templates.


def _template_line(one: Template, around: Around) -> Line:
    sign, _, role = SEVERITIES.get(one.level, ("", "", ""))
    mark: list[Span] = [(f"{tr('new')} ", "warn")] if one.is_new else []
    if sign and one.level != "info":
        mark.append((f"{sign} ", role))
    room = around.cells - _OF_COUNT - 2 - sum(width(text) for text, _ in mark)
    return [(right(tally(one.count), _OF_COUNT) + "  ", ""), *mark, (fit(plain(one.text), max(room, 4)), "")]


# Metrics and sources: a sign, a name, and columns.

_FIRST = {"metrics": msgid("metric"), "sources": msgid("log source")}


def _named_columns(table: str, cells: int) -> tuple[int, tuple[Column, ...]]:
    every: Sequence[Column]
    if table == "metrics":
        every = (
            Column("value", tr("value"), 9, 0),
            Column("trend", tr("trend"), 10, 1, right=False),
            Column("low", tr("low"), 9, 4),
            Column("high", tr("high"), 9, 3),
            Column("step", tr("step"), 8, 2),
            Column("spark", "", _SPARK, 5, right=False),
        )
    else:
        every = (
            Column("state", tr("state"), 19, 1, right=False),
            Column("read", tr("read"), 9, 2),
            Column("behind", tr("behind"), 9, 0),
            Column("lines", tr("lines"), 10, 3),
        )
    columns = fitted(every, cells - 2, _LEAST)
    return max(min(cells - 2 - taken(columns), 40), 1), columns


def _metric_line(one: Metric, around: Around) -> Line:
    sign, word, role = TRENDS.get(one.trend, ("?", plain(one.trend, 12), ""))
    room, columns = _named_columns("metrics", around.cells)
    texts: dict[str, Callable[[], str]] = {
        "value": lambda: number(one.value),
        "trend": lambda: tr(word),
        "low": lambda: number(one.low),
        "high": lambda: number(one.high),
        "step": lambda: UNKNOWN if one.step is None else count(one.step),
        "spark": lambda: spark([value for _, value in one.points], _SPARK, around.can_draw),
    }
    line: list[Span] = [(f"{sign} ", role), (left(fit(plain(one.name), room), room), "bold")]
    for column in columns:
        of = role if column.key == "trend" else "first" if column.key == "spark" else ""
        if column.key == "value" and not math.isfinite(one.value):
            of = "bad"
        line.append((in_column(texts[column.key](), column), of))
    return line


def _source_line(one: Source, around: Around) -> Line:
    sign, word, role = SOURCE_STATES.get(one.state, ("?", plain(one.state, 16), ""))
    room, columns = _named_columns("sources", around.cells)
    kind, name = source_kind(one.kind), plain(one.name)
    text = kind if name in ("", one.kind) else f"{kind} {fit_end(name, max(room - width(kind) - 1, 4))}"
    reads = one.state in ("reading", "ended", "deleted")
    texts = {
        "state": tr(word),
        "read": size_words(one).partition(" / ")[0] if reads else UNKNOWN,
        "behind": (byte_size(one.behind_bytes) if one.behind_bytes > 0 else "0") if reads else UNKNOWN,
        "lines": count(one.lines) if reads else UNKNOWN,
    }
    line: list[Span] = [(f"{sign} ", role), (left(fit(text, room), room), "bold")]
    return [*line, *((in_column(texts[column.key], column), "") for column in columns)]


def nothing_fits(table: str, text: str, every: int, cells: int) -> list[Line]:
    """Say that a filter lets nothing of a table through, and how to get rid of it."""
    known = {"n": count(every), "filter": plain(fit_end(text, 40))}
    if table == "incidents":
        words = tr("none of {n} incidents fits /{filter}", **known)
    else:
        words = tr("none of {n} lines of this table fits /{filter}", **known)
    words += "; " + tr("an empty filter shows all")
    return [[(part, "dim")] for part in fold(words, max(cells, 8))]


def all_lines(table: str, shown: Sequence[Any], around: Around) -> list[Line]:
    """Return a whole table, its titles above."""
    lines: list[Line] = [header(table, around)]
    for one in shown:
        lines += lines_of(one, around)
    return lines
