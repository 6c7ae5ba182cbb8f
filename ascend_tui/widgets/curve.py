"""Curves of a whole run in braille, with axes, a capacity line, marks and a cursor.

The run is always in view from its start.  A dot column stands for k buckets, k a power of two, so
that between two doublings the drawn past never moves and a tick repaints a cell or two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from textual import events
from textual.containers import Horizontal

from ascend_tui.frozen import frozen
from ascend_tui.series import Curve
from ascend_tui.text import tr, width
from ascend_tui.widgets.axes import ASCII, GUTTER, UNICODE, XAxis, y_label
from ascend_tui.widgets.braille import DOTS_ACROSS, DOTS_DOWN, Canvas, terminal_can_draw
from ascend_tui.widgets.quiet import BLANK, Cell, Quiet, cells
from ascend_tui.widgets.scale import YScale

TILE = 16
_HEADROOM = 1.05
_BRIDGED = 8
"""Dot columns over which a curve is drawn through; a longer gap is a gap."""
_NEAR = 0.6
"""Share of the capacity from which on it belongs into the picture."""


@frozen
class Plotted:
    """One curve with the short name that stands at its end, and its role."""

    curve: Curve
    label: str
    role: str


@frozen
class Picture:
    """All that one drawing shows.

    `capacity` is drawn where it is near enough to leave the curves readable.  `marks` are (axis
    value, sign).  `tail` shows only the newest part, on a scale of its own.
    """

    curves: tuple[Plotted, ...] = ()
    capacity: float | None = None
    marks: tuple[tuple[float, str], ...] = ()
    seconds: bool = False
    tail: bool = False


class CurveView(Horizontal):
    """Draw a Picture; see the module.

    The picture is spread over tiles side by side.  Textual repaints a row from its widget's left
    edge, and a growing curve changes at its right end: with tiles that is 16 cells, not the row.
    """

    DEFAULT_CSS = """
    CurveView { height: 1fr; width: 1fr; overflow: hidden; }
    CurveView Quiet { width: 16; height: 1fr; }
    """
    rows: list[list[Cell]]

    def __init__(self, *, id: str | None = None, unicode: bool | None = None) -> None:
        """Start empty; `unicode` False draws in ASCII, None asks the terminal's encoding."""
        super().__init__(id=id)
        self.rows = []
        self.picture = Picture()
        self.cursor: float | None = None
        self.glyphs = UNICODE if (terminal_can_draw() if unicode is None else unicode) else ASCII
        self.scale = YScale()
        self._origin = 0.0
        self._per_dot = 1.0

    def draw(self, picture: Picture) -> None:
        """Show this picture from now on."""
        self.picture = picture
        self._paint()

    async def on_resize(self, event: events.Resize) -> None:
        """Draw the same picture anew, on as many tiles as the width needs."""
        missing = -(-event.size.width // TILE) - len(self.query(Quiet))
        if missing > 0:
            await self.mount(*(Quiet() for _ in range(missing)))
        self._paint()

    def move_cursor(self, by: int) -> None:
        """Move the cursor by cells; past the newest value it goes away."""
        shown = self.picture.curves
        if not shown:
            return
        step = self._per_dot * DOTS_ACROSS
        newest = max(one.curve.end for one in shown) - shown[0].curve.width / 2
        at = (newest if self.cursor is None else self.cursor) + by * step
        self.cursor = None if at > newest else max(at, self._origin)
        self._paint()

    def put_cursor(self, at: float | None) -> None:
        """Set the cursor to an axis value, or take it away."""
        self.cursor = at
        self._paint()

    def values_at_cursor(self) -> dict[str, float]:
        """Return the highest value of each curve, by its name, in the cell of the cursor."""
        if self.cursor is None:
            return {}
        reach = self._per_dot * DOTS_ACROSS
        left = self._origin + math.floor((self.cursor - self._origin) / reach) * reach
        found = {}
        for one in self.picture.curves:
            curve = one.curve
            first = max(0, math.floor((left - curve.start) / curve.width))
            last = max(first + 1, math.ceil((left + reach - curve.start) / curve.width))
            values = [value for value in curve.high[first:last] if value == value]
            if values:
                found[curve.name] = max(values)
        return found

    def _paint(self) -> None:
        columns, height = self.size
        if not columns or not height:
            return
        self.rows = self.layout_rows(columns, height)
        for number, tile in enumerate(self.query(Quiet)):
            left = number * TILE
            if left < columns:
                tile.show_rows([row[left : left + TILE] for row in self.rows])

    def as_text(self) -> list[str]:
        """Return the picture as plain text, for the clipboard."""
        return ["".join(character for character, _ in row).rstrip() for row in self.rows]

    def layout_rows(self, columns: int, height: int) -> list[list[Cell]]:
        """Return the rows of the picture on `columns` by `height` cells."""
        curves = [one for one in self.picture.curves if one.curve.low]
        rows = height - 2
        names = max((width(one.label) for one in curves), default=0) + 2
        across = columns - GUTTER - names
        if not curves or rows < 2 or across < 8:
            return [cells("", columns) for _ in range(height)]
        self._fit_axis([one.curve for one in curves], across * DOTS_ACROSS)
        columns_of = [_bridged(_columns(one.curve, self._origin, self._per_dot)) for one in curves]
        self._fit_scale(columns_of)
        field = [[BLANK] * (across + names) for _ in range(rows)]
        self._plot(field, curves, columns_of, across)
        self._capacity(field)
        self._cursor_line(field, across)
        labels = dict(self.scale.labels(rows))
        body = [y_label(labels.get(y), self.glyphs) + field[y] for y in range(rows)]
        axis = XAxis(self._origin, self._per_dot * DOTS_ACROSS, across, self.picture.seconds)
        return [*body, *axis.rows(columns, self.picture.marks, self.glyphs)]

    def _fit_axis(self, curves: Sequence[Curve], dots: int) -> None:
        """Choose the origin and the smallest power of two of buckets per dot that fits."""
        base = max(curve.width for curve in curves)
        end = max(curve.end for curve in curves)
        origin = min(curve.start for curve in curves)
        if self.picture.tail:
            # Absolute blocks of a quarter of the view: it shifts when a block closes, not each tick.
            block = base * max(1, dots // 4)
            first = math.floor((end - origin - base * 1e-6) / block) - 3
            self._origin, self._per_dot = origin + max(0, first) * block, base
            return
        k = 1
        while (end - origin) / (base * k) > dots:
            k *= 2
        self._origin, self._per_dot = origin, base * k

    def _fit_scale(self, columns_of: Sequence[dict[int, tuple[float, float]]]) -> None:
        ranges = [pair for columns in columns_of for at, pair in columns.items() if at >= 0]
        high = max((pair[1] for pair in ranges), default=0.0)
        low = min((pair[0] for pair in ranges), default=0.0)
        if self.picture.tail:
            self.scale.hold(low, high)
            return
        capacity = self.picture.capacity
        # A card that is mostly free would press the curve flat on the floor.
        near = capacity if capacity and high >= capacity * _NEAR else 0.0
        self.scale.hold(0.0, max(high * _HEADROOM, near))

    def _dot(self, value: float, rows: int) -> int:
        span = self.scale.high - self.scale.low
        down = rows * DOTS_DOWN - 1
        return down - round((value - self.scale.low) / span * down) if span > 0 else down

    def _plot(
        self,
        field: list[list[Cell]],
        curves: Sequence[Plotted],
        columns_of: Sequence[dict[int, tuple[float, float]]],
        across: int,
    ) -> None:
        rows = len(field)
        canvas, roles = Canvas(across, rows), dict[tuple[int, int], str]()
        ends: list[tuple[int, int, Plotted]] = []
        for one, columns in zip(curves, columns_of):
            before: tuple[int, int] | None = None
            last = (0, rows - 1)
            for x in sorted(columns):
                low, high = columns[x]
                top, bottom = self._dot(high, rows), self._dot(low, rows)
                if before is not None:
                    # Reach to the column before, never back into it: the past stays as drawn.
                    top, bottom = min(top, before[1] + 1), max(bottom, before[0] - 1)
                before = (self._dot(high, rows), self._dot(low, rows))
                for cell in canvas.column(x, top, bottom):
                    roles.setdefault(cell, one.role)
                    last = (cell[0], before[0] // DOTS_DOWN)
            ends.append((last[0], last[1], one))
        unicode = self.glyphs is UNICODE
        for (column, row), role in roles.items():
            field[row][column] = (canvas.character(column, row, unicode), role)
        _name_ends(field, ends)

    def _capacity(self, field: list[list[Cell]]) -> None:
        capacity = self.picture.capacity
        if capacity is None or self.picture.tail or capacity > self.scale.high:
            return
        y = min(max(self._dot(capacity, len(field)), 0) // DOTS_DOWN, len(field) - 1)
        word = cells(f" {tr('capacity')} ", width(tr("capacity")) + 2)
        row = field[y]
        middle = max(0, (len(row) - len(word)) // 2)
        for x in range(len(row)):
            if row[x] == BLANK:
                row[x] = (self.glyphs["full"], "dim")
        middle = _unsplit(middle, word)
        if all(cell[1] == "dim" for cell in row[middle : middle + len(word)]):
            row[middle : middle + len(word)] = [(character, "dim") for character, _ in word]

    def _cursor_line(self, field: list[list[Cell]], across: int) -> None:
        x = None if self.cursor is None else self._cell(self.cursor)
        if x is None or not 0 <= x < across:
            return
        for row in field:
            if row[x] == BLANK or row[x][0] == self.glyphs["full"]:
                row[x] = (self.glyphs["cursor"], "bold")

    def _cell(self, at: float) -> int:
        return math.floor((at - self._origin) / self._per_dot / DOTS_ACROSS)


def _unsplit(left: int, word: list[Cell]) -> int:
    """Return `left`, or one more where a tile's edge would cut a wide character of `word`."""
    cuts = any(not cell[0] and (GUTTER + left + at) % TILE == 0 for at, cell in enumerate(word))
    return left + cuts


def _columns(curve: Curve, origin: float, per_dot: float) -> dict[int, tuple[float, float]]:
    """Return lowest and highest value per dot column."""
    found: dict[int, tuple[float, float]] = {}
    for index, (low, high) in enumerate(zip(curve.low, curve.high)):
        if low != low:
            continue
        x = math.floor((curve.start + (index + 0.5) * curve.width - origin) / per_dot)
        if x in found:
            low, high = min(low, found[x][0]), max(high, found[x][1])
        found[x] = (low, high)
    return found


def _bridged(columns: dict[int, tuple[float, float]]) -> dict[int, tuple[float, float]]:
    """Hold the value over short gaps: where only every n-th step is sampled there is no hole."""
    found: dict[int, tuple[float, float]] = {}
    before = None
    for x in sorted(columns):
        if before is not None and x - before <= _BRIDGED:
            found.update((between, found[before]) for between in range(before + 1, x))
        found[x] = columns[x]
        before = x
    return found


def _name_ends(field: list[list[Cell]], ends: Sequence[tuple[int, int, Plotted]]) -> None:
    """Write each curve's name behind its last dot, on the nearest row that is free there."""
    for column, row, one in ends:
        name = cells([(one.label, one.role)], width(one.label))
        left = _unsplit(column + 2, name)
        at = slice(left, left + len(name))
        for y in sorted(range(len(field)), key=lambda y: abs(y - row)):
            if all(cell == BLANK for cell in field[y][at]):
                field[y][at] = name
                break
