"""How the largest value climbed over the steps, as a small picture of a few rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ascend_tui.text import count, width
from ascend_tui.widgets.braille import DOTS_ACROSS, DOTS_DOWN, Canvas, terminal_can_draw
from ascend_tui.widgets.quiet import Line

from .figures import right
from .snapshot import Point
from .values import figure

_ROWS = 3
_MOST_CELLS = 60
_LABEL = 10
_LOGARITHMIC = 50.0
"""From this ratio of largest to smallest on, only the powers of ten tell anything."""


def lines_of(points: Sequence[Point], cells: int, unicode: bool | None = None) -> list[Line]:
    """Return the picture with its ends beside and below it; nothing where it would show nothing.

    A value that is not finite has no height: it stands as a `!` above its step.
    """
    across = min(cells - _LABEL - 2, _MOST_CELLS)
    drawn = [point for point in points if math.isfinite(point.abs_max)]
    first, last = (min(p.step for p in points), max(p.step for p in points)) if points else (0, 0)
    if len(drawn) < 2 or across < 8 or first == last:
        return []
    unicode = terminal_can_draw() if unicode is None else unicode
    low, high = min(point.abs_max for point in drawn), max(point.abs_max for point in drawn)
    is_log = low > 0 and high / low >= _LOGARITHMIC
    bottom, top = (math.log(low), math.log(high)) if is_log else (low, high)
    canvas = Canvas(across, _ROWS)
    down = _ROWS * DOTS_DOWN - 1
    before: tuple[int, int] | None = None
    for point in sorted(drawn, key=lambda one: one.step):
        x = _dot(point.step, first, last, across)
        value = math.log(point.abs_max) if is_log else point.abs_max
        y = down - (round((value - bottom) / (top - bottom) * down) if top > bottom else 0)
        _join(canvas, before or (x, y), (x, y))
        before = (x, y)
    labels = [figure(high), "log" if is_log else "", figure(low)]
    lines: list[Line] = []
    for row in range(_ROWS):
        text = "".join(canvas.character(column, row, unicode) for column in range(across)).rstrip()
        edge = "│" if unicode else "|"
        lines.append([(f"{right(labels[row], _LABEL)} {edge}", "dim"), (text, "first")])
    if bad := {
        _dot(p.step, first, last, across) // DOTS_ACROSS for p in points if not math.isfinite(p.abs_max)
    }:
        marks = "".join("!" if column in bad else " " for column in range(across)).rstrip()
        lines.insert(0, [(" " * (_LABEL + 2), ""), (marks, "bad")])
    ends = (count(first), count(last))
    middle = " " * max(across - width(ends[0]) - width(ends[1]), 1)
    return [*lines, [(" " * (_LABEL + 2) + ends[0] + middle + ends[1], "dim")]]


def _dot(step: int, first: int, last: int, across: int) -> int:
    return round((step - first) / (last - first) * (across * DOTS_ACROSS - 1))


def _join(canvas: Canvas, start: tuple[int, int], end: tuple[int, int]) -> None:
    """Draw a straight line from the point before, so that few points are a curve and not dust."""
    (left, y0), (x1, y1) = start, end
    before = y0
    for x in range(left, x1 + 1):
        y = y1 if x1 == left else round(y0 + (y1 - y0) * (x - left) / (x1 - left))
        canvas.column(x, min(before, y), max(before, y))
        before = y
