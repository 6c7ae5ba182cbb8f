"""Where the panes lie: which are seen, in how many columns, and which are one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical

from ascend_tui.frozen import frozen
from ascend_tui.text import fit, tr
from ascend_tui.widgets.pane import Pane, View
from ascend_tui.widgets.quiet_line import QuietLine

WIDE, NARROW = 120, 80
_LEAST_ROWS = 9
"""Under this height a pane says less than its summary."""
_BAND_ROWS = 6
"""Height of a last pane that has a row of the wide layout to itself."""


@frozen
class Arrangement:
    """Which panes are seen, by index, and in how many columns; the others are one line each."""

    columns: int
    seen: tuple[int, ...]
    lines: tuple[int, ...]
    band: bool = False


def arrange(width: int, height: int, panes: int, recent: Sequence[int], zoomed: bool) -> Arrangement:
    """Lay `panes` panes out on `width` by `height` cells; `recent` are the chosen ones, newest first."""
    chosen = recent[0] if recent else 0
    everyone = tuple(range(panes))
    if panes <= 1 or zoomed:
        return Arrangement(1, everyone[chosen : chosen + 1], ())
    if width >= WIDE:
        columns, room = 2, panes
        rows = -(-panes // 2)
        band = panes % 2 == 1 and panes > 3
        if height < rows * _LEAST_ROWS - (_LEAST_ROWS - _BAND_ROWS) * band:
            room, band = 2 * max(1, (height - panes + 2) // _LEAST_ROWS), False
    else:
        columns, band = 1, False
        room = 2 if width >= NARROW and height - (panes - 2) >= 2 * _LEAST_ROWS else 1
    order = list(dict.fromkeys([*recent, *everyone]))
    seen = tuple(sorted(order[:room]))
    return Arrangement(columns, seen, tuple(index for index in everyone if index not in seen), band)


class Desk(Vertical):
    """Hold the panes and the lines of those that are not seen."""

    DEFAULT_CSS = """
    Desk { height: 1fr; }
    Desk #grid { layout: grid; height: 1fr; grid-gutter: 0; }
    Desk #empty { height: 1fr; padding: 1 2; }
    """

    def __init__(self, panes: Sequence[Pane]) -> None:
        """Lay these panes out; there may be none."""
        super().__init__(id="desk")
        self.panes = panes
        self.recent: list[int] = []
        self.zoomed = False
        self.arrangement = Arrangement(1, (), ())
        self._summaries = [QuietLine(classes="summary") for _ in panes]

    def compose(self) -> ComposeResult:
        """Put the grid above the summaries."""
        if not self.panes:
            yield QuietLine(id="empty")
            return
        with Container(id="grid"):
            yield from self.panes
        yield from self._summaries

    @property
    def chosen(self) -> Pane | None:
        """Return the pane that keys go to."""
        return self.panes[self.recent[0] if self.recent else 0] if self.panes else None

    def choose(self, index: int) -> None:
        """Make one pane the one that keys go to, and see it."""
        if index not in range(len(self.panes)):
            return
        self.recent = [index, *(old for old in self.recent if old != index)]
        for number, pane in enumerate(self.panes):
            pane.set_class(number == index and len(self.panes) > 1, "-chosen")
        self.lay()
        self.panes[index].focus(scroll_visible=False)

    def zoom(self) -> None:
        """Let the chosen pane fill the desk, or give the others their room back."""
        self.zoomed = not self.zoomed
        self.lay()

    def on_resize(self, event: events.Resize) -> None:
        """Choose the layout for the new size."""
        self.lay()

    def lay(self) -> None:
        """Bring panes and lines to where the present size wants them."""
        if not self.panes:
            self.query_one("#empty", QuietLine).say(*empty_words())
            return
        size = self.size
        found = arrange(size.width, size.height, len(self.panes), self.recent, self.zoomed)
        grid = self.query_one("#grid")
        rows = -(-len(found.seen) // found.columns)
        grid.styles.grid_size_columns = found.columns
        grid.styles.grid_size_rows = rows
        grid.styles.grid_rows = " ".join(["1fr"] * (rows - 1) + [str(_BAND_ROWS) if found.band else "1fr"])
        self.arrangement = found
        for index, pane in enumerate(self.panes):
            pane.display = index in found.seen
            pane.zoomed = self.zoomed
            last_alone = found.columns == 2 and len(found.seen) % 2 == 1 and index == found.seen[-1]
            pane.styles.column_span = 2 if last_alone else 1
            self._summaries[index].display = index in found.lines
        self.redraw()

    def go_to(self, plugin: str, step: int | None) -> None:
        """Choose the pane of a plugin, and bring a step into sight on every time axis."""
        for index, pane in enumerate(self.panes):
            pane.go_to(step)
            if pane.loaded.name == plugin:
                self.choose(index)

    def take(self, snapshots: Mapping[str, Any], view: View) -> None:
        """Give every pane its plugin's snapshot, and draw."""
        for pane in self.panes:
            pane.take(snapshots.get(pane.loaded.name), view)
        self.redraw()

    def redraw(self) -> None:
        """Draw every pane that is seen and the line of every one that is not."""
        for index, pane in enumerate(self.panes):
            pane.redraw()
            if index in self.arrangement.lines:
                self._summaries[index].say(fit(pane.one_line(), max(self.size.width - 2, 1)))


def empty_words() -> list[str]:
    """Say why there is nothing to see and what helps."""
    return [
        tr("No plugin is installed, so there is no pane to show."),
        tr("Reinstall ascend-tui-monitor, or run `ascend-tui doctor` to see what is missing."),
    ]
