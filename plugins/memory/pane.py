"""The memory pane: curves, numbers, the verdict and the next step; on the whole screen also who holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from textual.widget import Widget

from ascend_tui.frame import TargetStatus
from ascend_tui.frozen import frozen
from ascend_tui.plugin import Command
from ascend_tui.series import Curve
from ascend_tui.text import byte_size, clean, count, fold, tr, width
from ascend_tui.widgets.curve import CurveView, Picture, Plotted
from ascend_tui.widgets.pane import Pane
from ascend_tui.widgets.quiet import Line
from ascend_tui.widgets.quiet_line import QuietLine

from . import holders_view, segments_view
from .amounts import QUANTITIES, first_row, second_row, word
from .snapshot import MemorySnapshot
from .words import lines_of, reuse_words, summary_words

_ROLES = {"allocated": "first", "reserved": "second", "device_used": "first", "rss": "first"}
_APART, _TOGETHER = 0.04, 0.02
"""Share of the picture from which the card is a curve of its own, and under which it is none any more."""


_CURVE_ROWS, _THREE_CURVES = 7, 9
"""Under this height a curve has no shape, and three of them lie on each other."""


@frozen
class Rows:
    """How many rows each part has; the curve has what the others leave, and half of it beside a tail."""

    curve: int
    numbers: int
    words: int
    detail: int = 0
    tail: bool = False


def share_rows(height: int, zoomed: bool, numbers: int, detail: int) -> Rows:
    """Share `height` rows out; `numbers` and `detail` are how many those would take.

    Nothing here depends on what the words are, so that no tick moves the curve.
    """
    numbers = numbers if height >= 15 else 1
    if not zoomed:
        words = 5 if height >= 16 else 4 if height >= 13 else 3 if height >= 11 else 1
        return Rows(height - numbers - words, numbers, words)
    words = 6 if height >= 32 else 4 if height >= 18 else 3 if height >= 11 else 1
    left = height - numbers - words
    # Tables that were asked for go before a second look at the newest part.
    tail = left - detail >= 2 * _CURVE_ROWS
    detail = min(detail, max(0, left - _CURVE_ROWS))
    return Rows((left - detail) // (2 if tail else 1), numbers, words, detail, tail)


class MemoryPane(Pane):
    """Draw a MemorySnapshot."""

    DEFAULT_CSS = """
    MemoryPane #words { height: 3; margin: 0 1; }
    MemoryPane #numbers { height: 1; margin: 0 1; }
    MemoryPane #tail { display: none; }
    MemoryPane #detail { display: none; margin: 0 1; }
    """
    TELLS = ("reuse",)

    def body(self) -> Iterable[Widget]:
        """Set the curve above the numbers and the words, and room for tables below them."""
        self.curve = CurveView(id="curve")
        self.tail = CurveView(id="tail")
        self.numbers = QuietLine(id="numbers")
        self.words = QuietLine(id="words")
        self.detail = QuietLine(id="detail")
        self.top = 0
        self.rows = Rows(0, 1, 3)
        self._card_apart = False
        return (self.curve, self.tail, self.numbers, self.words, self.detail)

    def draw(self, snapshot: MemorySnapshot, status: TargetStatus) -> None:
        """Bring curve, numbers, words and tables up to this snapshot."""
        can = self.startable(status)
        detail = self._detail(snapshot, can) if self.zoomed else []
        more = second_row(snapshot, self._cells)
        height = self.size.height - bool(self.notice())
        self.rows = share_rows(height, self.zoomed, numbers=2 if more else 1, detail=len(detail))
        self.numbers.styles.height = self.rows.numbers
        self.words.styles.height = self.rows.words
        self.detail.styles.height = self.rows.detail
        self.detail.display = self.rows.detail > 0
        self.tail.display = self.rows.tail
        picture = self._picture(snapshot)
        self.curve.draw(picture)
        if self.rows.tail:
            self.tail.draw(Picture(picture.curves, marks=picture.marks, seconds=picture.seconds, tail=True))
        self._say_numbers(snapshot)
        if self.rows.detail:
            # What the tables themselves say in their place is not said twice.
            can = {name: command for name, command in can.items() if name == "reuse"}
        self.words.say(*lines_of(snapshot, self._cells, self.rows.words, status.step, can))
        self._say_detail(detail)

    def mode(self, snapshot: MemorySnapshot) -> str:
        """Say whether the allocator reuses its blocks, by what means not, and what that costs."""
        # Corners, the title and the line between the two take the rest; see Pane._draw_title.
        return reuse_words(snapshot.reuse, self.outer_size.width - width(f"{self.digit} {self.title}") - 9)

    def summary(self, snapshot: MemorySnapshot) -> str:
        """Return the lead quantity and the verdict."""
        lead = getattr(snapshot.current, f"{snapshot.lead}_bytes", None)
        amount = "" if lead is None else f"{word(snapshot.lead)} {byte_size(lead)}   "
        status = self.view.status
        return amount + summary_words(snapshot, status.step if status else None)

    def move_cursor(self, by: int) -> None:
        """Step along the curve; the numbers are those of the cursor."""
        self.curve.move_cursor(by)
        self._follow_cursor()

    def go_to(self, step: int | None) -> None:
        """Set the cursor to a step, where the axis has steps."""
        if not self.curve.picture.seconds:
            self.curve.put_cursor(None if step is None else float(step))
            self._follow_cursor()

    def scroll_lines(self, by: int, pages: bool = False) -> None:
        """Go up or down in the tables, which only the whole screen has room for."""
        if self.zoomed:
            self.top += by * (max(self.rows.detail - 2, 1) if pages else 1)
            self.redraw()

    @property
    def _cells(self) -> int:
        return max(self.size.width - 2, 1)

    def _follow_cursor(self) -> None:
        self.tail.put_cursor(self.curve.cursor)
        if isinstance(self.snapshot, MemorySnapshot):
            self._say_numbers(self.snapshot)

    def _picture(self, snapshot: MemorySnapshot) -> Picture:
        # A run that has not made two steps yet has its history in time only.
        steps = max((len(curve.low) for curve in snapshot.step_curves), default=0) > 1
        chosen = snapshot.step_curves if steps else snapshot.time_curves
        by_name = {curve.name: curve for curve in chosen}
        wanted: tuple[str, ...] = (snapshot.lead,)
        roles = _ROLES
        if snapshot.lead == "allocated":
            wanted = ("reserved", "allocated")
            if self.rows.curve >= _THREE_CURVES and self._is_card_apart(snapshot):
                wanted, roles = (*wanted, "device_used"), {**_ROLES, "device_used": "third"}
        names = {name: tr(short) for name, _, short in QUANTITIES if short}
        curves = tuple(Plotted(by_name[name], names[name], roles[name]) for name in wanted if name in by_name)
        total = snapshot.current.device_total_bytes
        return Picture(
            curves,
            capacity=None if total is None or snapshot.device == "cpu" else float(total),
            marks=self._marks(chosen, steps),
            seconds=not steps,
        )

    def _is_card_apart(self, snapshot: MemorySnapshot) -> bool:
        """Tell whether the card's use is far enough above torch's to be drawn; a border case stays as is."""
        outside, used = snapshot.current.outside_bytes, snapshot.current.device_used_bytes
        if outside is not None and used:
            apart = outside / used
            self._card_apart = apart >= (_TOGETHER if self._card_apart else _APART)
        return self._card_apart

    def _marks(self, chosen: tuple[Curve, ...], steps: bool) -> tuple[tuple[float, str], ...]:
        if steps:
            return tuple((float(one.step), one.sign) for one in self.view.moments if one.step is not None)
        now = max((curve.end for curve in chosen), default=0.0)
        return tuple((now - (self.view.wall_s - one.wall), one.sign) for one in self.view.moments)

    def _say_numbers(self, snapshot: MemorySnapshot) -> None:
        two = self.rows.numbers > 1
        cursor = self.curve.cursor
        if cursor is None:
            first = first_row(snapshot, None, self._cells, two)
            self.numbers.say(first, *([second_row(snapshot, self._cells)] if two else []))
            return
        if self.curve.picture.seconds:
            where = tr("at {seconds} s", seconds=f"{cursor:.0f}")
        else:
            where = tr("at step {step}", step=count(cursor))
        values = list(self.curve.values_at_cursor().items())
        self.numbers.say(first_row(snapshot, (where, values), self._cells, two))

    def _detail(self, snapshot: MemorySnapshot, can: Mapping[str, Command]) -> list[Line]:
        """Return the tables, the newest first; where there is none yet, the key that brings it."""
        cells = self._cells
        tables: list[tuple[int, list[Line]]] = []
        hints: list[Line] = []
        if snapshot.holders is not None:
            tables.append((snapshot.holders.step, holders_view.lines_of(snapshot.holders, cells)))
        elif "holders" in can:
            holders = can["holders"]
            words = tr(
                "press {key}: who holds what the next {n} steps allocate ({cost})",
                key=holders.hotkey or "",
                n=count(holders.lease.steps),
                cost=tr(holders.cost),
            )
            hints += [[(part, "dim")] for part in fold(words, cells)]
        if snapshot.segments is not None:
            tables.append((snapshot.segments.step, segments_view.lines_of(snapshot.segments, cells)))
        elif "segments" in can and snapshot.device != "cpu":
            key = can["segments"].hotkey or ""
            words = tr("press {key}: the allocator's segments, and what is free in them", key=key)
            hints += [[(part, "dim")] for part in fold(words, cells)]
        lines: list[Line] = []
        for _, table in sorted(tables, key=lambda one: -one[0]):
            lines += [*table, ""]
        return lines + _workers(snapshot, cells) + _card(snapshot, cells) + hints

    def _say_detail(self, lines: list[Line]) -> None:
        """Show as much of the tables as there is room for, and say what is out of sight."""
        room = self.rows.detail
        if len(lines) <= room:
            self.top = 0
            self.detail.say(*lines)
            return
        room = max(room - 1, 0)
        self.top = max(0, min(self.top, len(lines) - room))
        below = len(lines) - self.top - room
        more = tr("↑ {above} ↓ {below} lines more", above=self.top, below=below)
        self.detail.say(*lines[self.top : self.top + room], [(more, "dim")])


def _workers(snapshot: MemorySnapshot, cells: int) -> list[Line]:
    """Return the largest of the processes that the training started, on as many lines as they need."""
    if not snapshot.workers:
        return []
    each = (f"{clean(one.name)} {one.pid} {byte_size(one.rss_bytes)}" for one in snapshot.workers[:8])
    words = tr("processes it started: {names}", names=", ".join(each))
    return [[(part, "")] for part in fold(words, cells)]


def _card(snapshot: MemorySnapshot, cells: int) -> list[Line]:
    """Return what npu-smi says of the card, where it was asked and knows the process."""
    card = snapshot.card
    if card is None:
        return []
    parts = [clean(card.name)]
    if card.temp_c is not None:
        parts.append(f"{card.temp_c:.0f} °C")
    if card.health:
        parts.append(clean(card.health))
    if card.own_bytes is not None:
        parts.append(tr("this process {size}", size=byte_size(card.own_bytes)))
    if card.others:
        parts.append(tr("{n} others {size}", n=count(card.others), size=byte_size(card.others_bytes or 0)))
    if card.unseen_bytes:
        parts.append(tr("of no visible process {size}", size=byte_size(card.unseen_bytes)))
    words = tr("npu-smi: {parts}", parts=", ".join(parts))
    return [[(part, "")] for part in fold(words, cells)]
