"""A metric over its steps as a small picture; what is not finite has no height and stands above."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ascend_tui.text import count, width
from ascend_tui.widgets.braille import DOTS_ACROSS, DOTS_DOWN, Canvas, terminal_can_draw
from ascend_tui.widgets.quiet import Line

from .figures import number, right

_ROWS, _MOST_CELLS, _LABEL = 6, 80, 10
_LOGARITHMIC = 1000.0
"""From this ratio of largest to smallest on, only the powers of ten tell anything."""


def lines_of(points: Sequence[tuple[float, float]], cells: int, unicode: bool | None = None) -> list[Line]:
    """Return the picture with its ends beside and below it; nothing where it would show nothing."""
    across = min(cells - _LABEL - 2, _MOST_CELLS)
    points = sorted((one for one in points if math.isfinite(one[0])), key=lambda one: one[0])
    drawn = [one for one in points if math.isfinite(one[1])]
    if len(drawn) < 2 or across < 8 or points[0][0] == points[-1][0]:
        return []
    unicode = terminal_can_draw() if unicode is None else unicode
    first, last = points[0][0], points[-1][0]
    low, high = min(value for _, value in drawn), max(value for _, value in drawn)
    is_log = low > 0 and high / low >= _LOGARITHMIC
    bottom, top = (math.log(low), math.log(high)) if is_log else (low, high)
    is_flat = not 0 < top - bottom < math.inf
    canvas = Canvas(across, _ROWS)
    down = _ROWS * DOTS_DOWN - 1
    before: tuple[int, int] | None = None
    for step, value in drawn:
        height = math.log(value) if is_log else value
        x = _dot(step, first, last, across)
        y = down // 2 if is_flat else down - round((height - bottom) / (top - bottom) * down)
        _join(canvas, before or (x, y), (x, y))
        before = (x, y)
    labels = ["" for _ in range(_ROWS)]
    labels[0], labels[-1] = number(high), number(low)
    if is_log:
        labels[_ROWS // 2] = "log"
    edge = "│" if unicode else "|"
    lines: list[Line] = []
    for row in range(_ROWS):
        text = "".join(canvas.character(column, row, unicode) for column in range(across)).rstrip()
        lines.append([(f"{right(labels[row], _LABEL)} {edge}", "dim"), (text, "first")])
    bad = {_dot(at, first, last, across) // DOTS_ACROSS for at, value in points if not math.isfinite(value)}
    if bad:
        marks = "".join("!" if column in bad else " " for column in range(across)).rstrip()
        lines.insert(0, [(" " * (_LABEL + 2), ""), (marks, "bad")])
    ends = (count(first), count(last))
    middle = " " * max(across - width(ends[0]) - width(ends[1]), 1)
    return [*lines, [(" " * (_LABEL + 2) + ends[0] + middle + ends[1], "dim")]]


def _dot(step: float, first: float, last: float, across: int) -> int:
    return round((step - first) / (last - first) * (across * DOTS_ACROSS - 1))


def _join(canvas: Canvas, start: tuple[int, int], end: tuple[int, int]) -> None:
    """Draw a straight line from the point before, so that few points are a curve and not dust."""
    (left, y0), (x1, y1) = start, end
    before = y0
    for x in range(left, x1 + 1):
        y = y1 if x1 == left else round(y0 + (y1 - y0) * (x - left) / (x1 - left))
        canvas.column(x, min(before, y), max(before, y))
        before = y
