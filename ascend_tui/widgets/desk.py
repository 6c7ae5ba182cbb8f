"""Where the panes lie: which are seen, in how many columns, and which are one line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical

from ascend_tui.frozen import frozen
from ascend_tui.target import TargetId
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


def arrange(
    width: int,
    height: int,
    panes: int,
    recent: Sequence[int],
    zoomed: bool,
    resting: Collection[int] = (),
) -> Arrangement:
    """Lay `panes` panes out on `width` by `height` cells; `recent` are the chosen ones, newest first.

    Those `resting` are one line each, but for the chosen one.
    """
    chosen = recent[0] if recent else 0
    everyone = tuple(range(panes))
    if zoomed:
        return Arrangement(1, everyone[chosen : chosen + 1], ())
    awake = [index for index in everyone if index == chosen or index not in resting]
    if len(awake) <= 1:
        lines = tuple(index for index in everyone if index not in awake)
        return Arrangement(1, tuple(awake), lines)
    height -= panes - len(awake)
    columns, room, band = _room(width, height, len(awake))
    order = list(dict.fromkeys([*recent, *awake]))
    seen = tuple(sorted([index for index in order if index in awake][:room]))
    return Arrangement(columns, seen, tuple(index for index in everyone if index not in seen), band)


def _room(width: int, height: int, panes: int) -> tuple[int, int, bool]:
    """Return in how many columns how many of the panes have room, and whether the last is a band."""
    if width < WIDE:
        both = width >= NARROW and height - (panes - 2) >= 2 * _LEAST_ROWS
        return 1, 2 if both else 1, False
    rows = -(-panes // 2)
    band = panes % 2 == 1 and panes > 3
    if height < rows * _LEAST_ROWS - (_LEAST_ROWS - _BAND_ROWS) * band:
        return 2, 2 * max(1, (height - panes + 2) // _LEAST_ROWS), False
    return 2, panes, band


@frozen
class _Call:
    """An urgent pane that came up by itself, of which target, and what was seen before."""

    who: tuple[TargetId | None, int]
    recent: tuple[int, ...]
    zoomed: bool


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
        self._resting = self._asleep()
        self._call: _Call | None = None
        # The urgent panes that the user has left for something else, until they are urgent no more.
        self._left: set[tuple[TargetId | None, int]] = set()

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
        """Make one pane the one that keys go to, and see it; the user's word."""
        if index not in range(len(self.panes)):
            return
        self._hang_up(was_answered=False)
        self._put_first([index, *(old for old in self.recent if old != index)])

    def zoom(self) -> None:
        """Let the chosen pane fill the desk, or give the others their room back."""
        if self._call is None:
            self.zoomed = not self.zoomed
            self.lay()
        else:
            recent = self.recent
            self._hang_up(was_answered=False)
            self._put_first(recent)

    def back(self) -> None:
        """Give the others their room back; a pane that came up by itself gives back the choice too."""
        self._hang_up(was_answered=False)
        self.zoomed = False
        self._put_first(self.recent)

    def _put_first(self, recent: list[int]) -> None:
        self.recent = recent
        chosen = recent[0] if recent else 0
        for number, pane in enumerate(self.panes):
            pane.set_class(number == chosen and len(self.panes) > 1, "-chosen")
        self.lay()
        if self.panes:
            self.panes[chosen].focus(scroll_visible=False)

    # What panes ask for by themselves.

    def _attend(self, target: TargetId | None) -> None:
        """See to it that a pane that is urgent is seen alone, once, and that one that rests takes no room."""
        resting = self._asleep()
        urgent = [i for i, pane in enumerate(self.panes) if pane.ask(pane.is_urgent)]
        self._left = {one for one in self._left if one[0] != target or one[1] in urgent}
        wanted = next(((target, i) for i in urgent if (target, i) not in self._left), None)
        present = self._call.who if self._call else None
        is_new = resting != self._resting
        self._resting = resting
        if wanted != present:
            self._hang_up(was_answered=True)
            if wanted is not None:
                self._call = _Call(wanted, tuple(self.recent), self.zoomed)
                self.recent = [wanted[1], *(old for old in self.recent if old != wanted[1])]
                self.zoomed = True
                self.panes[wanted[1]].is_called_up = True
            self._put_first(self.recent)
        elif is_new:
            self.lay()

    def _asleep(self) -> frozenset[int]:
        return frozenset(i for i, pane in enumerate(self.panes) if pane.ask(pane.rests, of_none=True))

    def _hang_up(self, was_answered: bool) -> None:
        """End what an urgent pane has brought about, and bring back what was before."""
        call, self._call = self._call, None
        if call is None:
            return
        if not was_answered:
            self._left.add(call.who)
        self.panes[call.who[1]].is_called_up = False
        self.recent, self.zoomed = list(call.recent), call.zoomed

    def on_resize(self, event: events.Resize) -> None:
        """Choose the layout for the new size."""
        self.lay()

    def lay(self) -> None:
        """Bring panes and lines to where the present size wants them."""
        if not self.panes:
            self.query_one("#empty", QuietLine).say(*empty_words())
            return
        size = self.size
        found = arrange(size.width, size.height, len(self.panes), self.recent, self.zoomed, self._resting)
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

    def go_to(self, plugin: str, step: int | None, wall_s: float | None = None) -> None:
        """Choose the pane of a plugin, and bring a step into sight on every time axis.

        Where the step is not known, the plugin's own pane shows what was at that time.
        """
        for index, pane in enumerate(self.panes):
            pane.go_to(step)
            if pane.loaded.name == plugin:
                if step is None and wall_s is not None:
                    pane.go_to_time(wall_s)
                self.choose(index)

    def take(self, snapshots: Mapping[str, Any], view: View) -> None:
        """Give every pane its plugin's snapshot, and draw."""
        for pane in self.panes:
            pane.take(snapshots.get(pane.loaded.name), view)
        self._attend(view.status.id if view.status else None)
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
