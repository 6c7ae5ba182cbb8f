"""A list of entries of a few lines each, of which one is chosen; nothing in it moves by itself.

The entries come in the order in which they are shown, the one that matters now first.  While nobody has
chosen, the first is the current one; what was chosen keeps its row when new entries come in before it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from textual import events

from ascend_tui.frozen import frozen
from ascend_tui.text import count, tr
from ascend_tui.widgets.quiet import BLANK, Cell, Line, Quiet, cells

MARK: Cell = ("▌", "key")


@frozen
class Entry:
    """One entry: `key` tells it from the others, also when its lines say something new."""

    key: Hashable
    lines: tuple[Line, ...]


class Feed(Quiet):
    """Show entries below each other, a mark in the first column beside the current one."""

    def __init__(self, *, id: str | None = None) -> None:
        """Start empty."""
        super().__init__(id=id)
        self.entries: tuple[Entry, ...] = ()
        self.chosen: Hashable | None = None
        self.always_marked = False
        """Mark the current entry also while nobody has chosen."""
        self.note: Callable[[], str] | None = None
        """What the last line says beside the number of entries out of sight."""
        # As it was last laid out: the first line in sight, which entry was chosen, and in which row.
        self._top_line, self._seen_at = 0, 0
        self._held: Hashable | None = None

    @property
    def current(self) -> int:
        """Return the index of the chosen entry, else of the first."""
        if self.chosen is not None:
            for index, entry in enumerate(self.entries):
                if entry.key == self.chosen:
                    return index
        return 0

    def show(self, entries: Sequence[Entry]) -> None:
        """Show these entries; one that was chosen and is gone is chosen no more."""
        self.entries = tuple(entries)
        if self.chosen is not None and all(entry.key != self.chosen for entry in self.entries):
            self.chosen = None
        self._lay()

    def choose(self, key: Hashable | None) -> None:
        """Choose one entry; None follows the first again."""
        self.chosen = key
        self._lay()

    def move(self, by: int, pages: bool = False) -> None:
        """Choose another entry, further down for `by` > 0; beyond the first one nobody is chosen."""
        if not self.entries:
            return
        if self.chosen is None and not self.always_marked:
            # The first press shows where the choice stands.
            if by > 0:
                self.choose(self.entries[0].key)
            return
        step = max(1, self.size.height // max(len(self.entries[0].lines), 1)) if pages else 1
        index = self.current + by * step
        self.choose(None if index < 0 else self.entries[min(index, len(self.entries) - 1)].key)

    def on_resize(self, event: events.Resize) -> None:
        """Lay the same entries out anew."""
        self._lay()

    def _lay(self) -> None:
        columns, height = self.size
        if columns and height:
            self.show_rows(self.layout_rows(columns, height))

    def layout_rows(self, columns: int, height: int) -> list[list[Cell]]:
        """Return the rows on `columns` by `height` cells; the last says what is out of sight."""
        starts, total = [], 0
        for entry in self.entries:
            starts.append(total)
            total += len(entry.lines)
        note = self.note() if self.note else ""
        crowded = total > height or bool(note)
        room = max(height - crowded, 1)
        marked = self.current if self.entries and (self.chosen is not None or self.always_marked) else -1
        top = self._top(starts, total, room)
        rows: list[list[Cell]] = []
        for index, entry in enumerate(self.entries):
            for number, line in enumerate(entry.lines):
                if top <= starts[index] + number < top + room:
                    mark = MARK if index == marked else BLANK
                    rows.append([mark, *cells(line, columns - 1)])
        if crowded and height > 1:
            above = sum(start < top for start in starts)
            below = sum(start >= top + room for start in starts)
            hidden = tr("↑ {above} ↓ {below} more", above=count(above), below=count(below))
            words = "  ".join(filter(None, [hidden if above or below else "", note]))
            rows += [[BLANK] * columns for _ in range(room - len(rows))]
            rows.append(cells([(f" {words}", "dim")], columns))
        return rows

    def _top(self, starts: Sequence[int], total: int, room: int) -> int:
        """Return the first line in sight: the choice moves over a list that stands, and keeps its row."""
        if self.chosen is None or not starts:
            self._held, self._top_line = None, 0
            return 0
        first = starts[self.current]
        last = first + min(len(self.entries[self.current].lines), room)
        # What came in before a choice that stays pushes the choice's own lines down: follow them.
        top = first - self._seen_at if self._held == self.chosen else self._top_line
        top = max(min(top, first), last - room)
        top = max(0, min(top, total - room))
        # No entry is cut at the top; the chosen one starts there at the latest.
        top = next(start for start in starts if start >= top)
        self._held, self._seen_at, self._top_line = self.chosen, first - top, top
        return top
