"""The hotspots pane: a table of operators and a verdict; on the whole screen the story of one, or of all."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from textual.containers import Container, Vertical
from textual.widget import Widget

from ascend_tui.frame import TargetStatus
from ascend_tui.plugin import Command
from ascend_tui.text import clean, count, language, tr, width
from ascend_tui.widgets.feed import Entry, Feed
from ascend_tui.widgets.quiet import Line
from ascend_tui.widgets.quiet_line import QuietLine
from ascend_tui.widgets.quiet_table import Column, TablePane

from . import detail_view, step_view
from .figures import fit_end
from .filtering import Filter, parse
from .ordering import ORDERS, Held, in_order, keyed, next_of
from .snapshot import Clock, HotspotsSnapshot, Row
from .table_view import columns_of, header, line_of, nothing_fits, table_lines
from .words import closing_lines, empty_lines, mode_words, plain_words, summary_words

_BESIDE = 96
"""From this width on the story has room beside the list."""
_LIST_CELLS = 50
_COPIED_CELLS = 100


class HotspotsPane(TablePane):
    """Draw a HotspotsSnapshot."""

    DEFAULT_CSS = """
    HotspotsPane #middle { width: 100%; height: 1fr; layout: vertical; }
    HotspotsPane.-beside #middle { layout: horizontal; }
    HotspotsPane #list { width: 1fr; height: 1fr; }
    HotspotsPane #titles { height: 1; margin: 0 0 0 1; }
    HotspotsPane #feed { height: 1fr; }
    HotspotsPane #story { height: 1fr; margin: 0 0 0 1; }
    HotspotsPane #words { height: 3; margin: 0 1; }
    """
    TELLS = ("sample",)
    filters = True

    def body(self) -> Iterable[Widget]:
        """Set table and story above the last words."""
        self.titles = QuietLine(id="titles")
        self.feed = Feed(id="feed")
        self.list = Vertical(self.titles, self.feed, id="list")
        self.story = QuietLine(id="story")
        self.words = QuietLine(id="words")
        self.filter = Filter()
        self.order = "share"
        self.on_host = False
        self.top = 0
        self._told: Hashable | None = None
        self._story_rows = 1
        self._held = Held()
        self._shown: dict[Hashable, Row] = {}
        self._said: dict[Hashable, tuple[Row, tuple[Any, ...], Entry]] = {}
        self.feed.note = self._note
        return (Container(self.list, self.story, id="middle"), self.words)

    def draw(self, snapshot: HotspotsSnapshot, status: TargetStatus) -> None:
        """Bring table, story and words up to this snapshot."""
        self._shown = self._rows(snapshot)
        rows = self._share_rows(snapshot)
        can = self.startable(status)
        cells = max(self._list_cells - 2, 8)
        columns = columns_of(cells, self.order, self._is_compared)
        self.titles.say(header(columns, cells, self.order, tr("op")))
        self.feed.show(self._entries(columns, cells))
        self._tell(snapshot, can, status.id.pid)
        hints = self._hints(snapshot)
        self.words.say(*closing_lines(snapshot, self._cells, rows, can, hints, zoomed=self.zoomed))

    def mode(self, snapshot: HotspotsSnapshot) -> str:
        """Say of which step the table is, how often one is looked at, and by which clock."""
        thinning = self.view.status.cost.thinning if self.view.status else 1
        # Corners, the title and the line between the two take the rest; see Pane._draw_title.
        cells = self.outer_size.width - width(f"{self.digit} {self.title}") - 9
        filtered = f"/{plain_words(fit_end(self.filter.text, 24))}" if self.filter.text else ""
        words = mode_words(
            snapshot, self._clock(snapshot), thinning, cells - (width(filtered) + 3 if filtered else 0)
        )
        return " · ".join(filter(None, [filtered, words]))

    def summary(self, snapshot: HotspotsSnapshot) -> str:
        """Return the first operators and the verdict."""
        cells = self.app.size.width if self.is_attached else 80
        return summary_words(snapshot, cells - width(f"{self.digit} {self.title}") - 4)

    def notice(self) -> str:
        """Leave out that data are waited for, where the place of the table says more of it."""
        snapshot, status = self.snapshot, self.view.status
        if not isinstance(snapshot, HotspotsSnapshot) or status is None or self._fault:
            return super().notice()
        waits = (snapshot.state, snapshot.reason, status.state) == ("waiting", None, "live")
        return "" if waits else super().notice()

    # What the keys ask for.

    def scroll_lines(self, by: int, pages: bool = False) -> None:
        """Choose another operator, above the first one the whole step; by pages through its story."""
        if pages and self.zoomed:
            self.top += by * max(self._story_rows - 2, 1)
        else:
            self.feed.move(by, pages)
        self.redraw()

    def next_order(self) -> str:
        """Order the rows by the next thing that is known of any."""
        if isinstance(self.snapshot, HotspotsSnapshot):
            self.order = next_of(self.order, self._table(self.snapshot))
            self._held = Held()
            self.redraw()
        return tr("sorted by {what}", what=tr(ORDERS[self.order]))

    def next_table(self) -> str:
        """Show operators on the host in the place of kernels, or these again, where there are both."""
        snapshot = self.snapshot
        if not isinstance(snapshot, HotspotsSnapshot) or not (snapshot.rows and snapshot.host_rows):
            return ""
        self.on_host = not self.on_host
        self.feed.choose(None)
        self.redraw()
        return tr("operators on the host") if self.on_host else tr("kernels on the device")

    def set_filter(self, text: str) -> None:
        """Show only operators of these names, kinds and modules; an empty text shows all."""
        self.filter = parse(text)
        self.redraw()

    @property
    def filter_example(self) -> str:
        """Return what may be typed."""
        return tr("name, kind or module path: cast kind:movement layers.12")

    @property
    def filter_text(self) -> str:
        """Return the filter as it was typed."""
        return self.filter.text

    def as_text(self) -> list[str]:
        """Return the pane as plain text, table and story whole and not only what is in sight."""
        lines: list[Line] = [self.one_line().rstrip()]
        snapshot = self.snapshot
        if isinstance(snapshot, HotspotsSnapshot) and self._shown:
            columns = columns_of(_COPIED_CELLS, self.order, self._is_compared)
            lines += [header(columns, _COPIED_CELLS, self.order, tr("op"))]
            lines += table_lines(self._shown.values(), columns, _COPIED_CELLS)
        if isinstance(snapshot, HotspotsSnapshot) and self.zoomed:
            lines += ["", *self._story(snapshot, _COPIED_CELLS)]
        return [*(_text_of(line) for line in lines), *self.words.as_text()]

    # Which rows.

    def _is_on_host(self, snapshot: HotspotsSnapshot) -> bool:
        return self.on_host and bool(snapshot.rows and snapshot.host_rows)

    def _table(self, snapshot: HotspotsSnapshot) -> tuple[Row, ...]:
        return snapshot.host_rows if self._is_on_host(snapshot) else snapshot.rows

    def _clock(self, snapshot: HotspotsSnapshot) -> Clock:
        return "host" if self._is_on_host(snapshot) else snapshot.clock

    def _rows(self, snapshot: HotspotsSnapshot) -> dict[Hashable, Row]:
        """Return the rows that the filter lets through, in their order, which holds for some seconds."""
        found = {key: row for key, row in keyed(self._table(snapshot)).items() if self.filter.fits(row)}
        asked = (self.order, "host" if self._is_on_host(snapshot) else "", self.filter.text)
        if not self._held.still_holds(asked, self.view.wall_s, found):
            keys = tuple(key for key, _ in in_order(found.items(), self.order))
            self._held = Held(asked, self.view.wall_s, keys)
        return {key: found[key] for key in self._held.keys}

    @property
    def _is_compared(self) -> bool:
        return any(row.change is not None for row in self._shown.values())

    # Where everything lies.

    @property
    def _cells(self) -> int:
        return max(self.size.width - 2, 1)

    @property
    def _is_beside(self) -> bool:
        return self.zoomed and self.size.width >= _BESIDE

    @property
    def _list_cells(self) -> int:
        return min(_LIST_CELLS, self.size.width * 2 // 5) if self._is_beside else self.size.width

    @property
    def _story_cells(self) -> int:
        return max(self._cells - (self._list_cells if self._is_beside and self._shown else 0), 8)

    def _share_rows(self, snapshot: HotspotsSnapshot) -> int:
        """Give table and story their place, and return how many rows the last words have.

        Nothing here depends on what the words are, so that no tick moves anything.
        """
        height = self.size.height - bool(self.notice())
        words = 6 if height >= 16 else 4 if height >= 12 else 3 if height >= 8 else 1
        if self.zoomed:
            words = 2 if height >= 14 else 1
        self.words.styles.height = words
        middle = max(height - words, 1)
        self.set_class(self._is_beside, "-beside")
        has_list = bool(self._shown)
        self.list.display = has_list
        self.story.display = self.zoomed or not has_list
        split = self.zoomed and has_list and not self._is_beside
        listed = min(max(middle // 3, 3), len(self._shown) + 2, 10)
        self.list.styles.height = listed if split else "1fr"
        self.list.styles.width = self._list_cells if self._is_beside else "1fr"
        self.story.styles.width = self._story_cells
        self._story_rows = middle - (listed if split else 0)
        return words

    def _entries(self, columns: Sequence[Column], cells: int) -> list[Entry]:
        """Return the table's entries; what is the same as before is not said anew, of hundreds that costs."""
        place = (tuple(columns), cells, language())
        entries: dict[Hashable, tuple[Row, tuple[Any, ...], Entry]] = {}
        so_far = 0.0
        for key, row in self._shown.items():
            above, so_far = so_far, so_far + row.share
            known = self._said.get(key)
            where = (*place, above, so_far)
            if known is None or known[1] != where or (known[0] is not row and known[0] != row):
                known = (row, where, Entry(key, (line_of(row, columns, cells, above, so_far),)))
            entries[key] = known
        self._said = entries
        return [entry for _, _, entry in entries.values()]

    def _tell(self, snapshot: HotspotsSnapshot, can: Mapping[str, Command], pid: int) -> None:
        """Show the story of the chosen operator or of the whole step; without a table, why there is none."""
        if not self.story.display:
            return
        cells = self._story_cells
        if self.feed.chosen != self._told:
            self._told, self.top = self.feed.chosen, 0
        if self._shown:
            lines = self._story(snapshot, cells)
        elif self._table(snapshot):
            lines = nothing_fits(self.filter.text, len(self._table(snapshot)), cells)
        else:
            lines = empty_lines(snapshot, cells, can, pid)
            story = step_view.lines_of(snapshot, cells) if self.zoomed else []
            lines += ["", *story] if len(story) > 2 else []
        room = self._story_rows
        if len(lines) <= room:
            self.top = 0
            self.story.say(*lines)
            return
        room = max(room - 1, 0)
        self.top = max(0, min(self.top, len(lines) - room))
        below = len(lines) - self.top - room
        more = tr("↑ {above} ↓ {below} lines more", above=self.top, below=below)
        self.story.say(*lines[self.top : self.top + room], [(f"{more}  pgup pgdn", "dim")])

    def _story(self, snapshot: HotspotsSnapshot, cells: int) -> list[Line]:
        row = self._shown.get(self.feed.chosen) if self.feed.chosen is not None else None
        if row is not None:
            return detail_view.lines_of(row, snapshot, cells)
        return step_view.lines_of(snapshot, cells)

    def _hints(self, snapshot: HotspotsSnapshot) -> list[tuple[str, str]]:
        """Return the keys of the table itself, where they do something."""
        if not self._shown:
            return []
        hints = [("c", tr("sort"))]
        if snapshot.rows and snapshot.host_rows:
            hints.append(("v", tr("kernels") if self._is_on_host(snapshot) else tr("host operators")))
        if self.zoomed:
            hints.append(("↓ ↑", tr("an operator · the whole step")))
        else:
            hints.append(("z", tr("the whole step")))
        return hints

    def _note(self) -> str:
        """Return what the table's last line says beside what is out of sight."""
        snapshot = self.snapshot
        if not isinstance(snapshot, HotspotsSnapshot):
            return ""
        words = []
        every = len(self._table(snapshot))
        if self.filter.text:
            words.append(tr("{n} of {all} shown", n=count(len(self._shown)), all=count(every)))
        if snapshot.rows_dropped and not self._is_on_host(snapshot):
            words.append(tr("{n} too small to be listed", n=count(snapshot.rows_dropped)))
        return "  ".join(words)


def _text_of(line: Line) -> str:
    return clean(line if isinstance(line, str) else "".join(text for text, _ in line)).rstrip()
