"""The logs pane: one line for each incident; on the whole screen the story of one, with the raw lines."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from textual.widget import Widget

from ascend_tui.frame import TargetStatus
from ascend_tui.text import count, language, tr, width
from ascend_tui.widgets.braille import terminal_can_draw
from ascend_tui.widgets.feed import Entry
from ascend_tui.widgets.quiet import Line
from ascend_tui.widgets.story_pane import StoryPane, text_of

from .snapshot import Incident, LogsSnapshot, Metric, Source, Template
from .views import detail_view, table_stories
from .views.figures import fit_end, plain, when_of
from .views.holding import ORDERS, Places, keyed, next_order
from .views.list_view import TABLES, Around, all_lines, header, lines_of, nothing_fits
from .views.sieve import Sieve
from .views.words import closing_lines, empty_lines, mode_words, summary_words

_COPIED_CELLS = 100
_NEAR_S, _NEAR_STEPS = 300.0, 50
"""An alert leads to an incident no further away than this."""


class LogsPane(StoryPane):
    """Draw a LogsSnapshot."""

    TELLS = ("tee",)

    def body(self) -> Iterable[Widget]:
        """Start at the incidents, the worst first, without a filter."""
        widgets = tuple(super().body())
        self.sieve = Sieve()
        self._asked = "incidents"
        self._orders = {table: next(iter(orders)) for table, orders in ORDERS.items()}
        self._places = Places()
        self._every = 0
        self._shown: dict[Hashable, Any] = {}
        self._said: dict[Hashable, tuple[Any, Around, Entry]] = {}
        self._told_as: tuple[Any, tuple[Hashable, ...], list[Line]] = (None, (), [])
        self.feed.note = self._note
        return widgets

    def draw(self, snapshot: LogsSnapshot, status: TargetStatus) -> None:
        """Bring table, story and words up to this snapshot."""
        table = self._table(snapshot)
        self._shown = self._find(snapshot, table)
        around = self._around(status)
        entries = self._entries(around)
        rows = self.lay_out(len(entries), sum(len(one.lines) for one in entries))
        self.titles.say(header(table, around))
        self.feed.always_marked = self.zoomed
        self.feed.show(entries)
        if self.story.display:
            key, one = self._chosen()
            self.tell(key, self._story(snapshot, one, self.story_cells))
        self.words.say(
            *closing_lines(
                snapshot,
                self.cells,
                rows,
                self.startable(status),
                self._hints(snapshot, table),
                zoomed=self.zoomed,
                fault=self.sieve.words(),
                listed=bool(self._shown),
            )
        )

    def closing_rows(self, height: int) -> int:
        """Give the list more than other panes do: its lines are what this pane is for."""
        if self.zoomed:
            return super().closing_rows(height)
        return 5 if height >= 20 else 4 if height >= 14 else 3 if height >= 11 else 2 if height >= 7 else 1

    def mode(self, snapshot: LogsSnapshot) -> str:
        """Say how many incidents there are, which other table is shown, and how far behind it is."""
        table = self._table(snapshot)
        filtered = f"/{plain(fit_end(self.sieve.filter.text, 24))}" if self.sieve.filter.text else ""
        # Corners, the title and the line between the two take the rest; see Pane._draw_title.
        cells = self.outer_size.width - width(f"{self.digit} {self.title}") - 9
        cells -= width(filtered) + 3 if filtered else 0
        words = mode_words(snapshot, "" if table == "incidents" else tr(TABLES[table]), cells)
        return " · ".join(filter(None, [filtered, words]))

    def summary(self, snapshot: LogsSnapshot) -> str:
        """Return the gravest incident, else that there is none."""
        return summary_words(snapshot)

    def notice(self) -> str:
        """Leave out that data are waited for, where the place of the list says more of it."""
        snapshot, status = self.snapshot, self.view.status
        if not isinstance(snapshot, LogsSnapshot) or status is None or self._fault or not snapshot.sources:
            return super().notice()
        waits = (snapshot.state, snapshot.reason, status.state) == ("waiting", None, "live")
        return "" if waits else super().notice()

    # What the keys ask for.

    def next_table(self) -> str:
        """Show the next of incidents, metrics, kinds of lines and sources that has a line."""
        snapshot = self.snapshot
        if not isinstance(snapshot, LogsSnapshot):
            return ""
        names = [name for name in TABLES if name == "incidents" or _lines(snapshot, name)]
        if len(names) < 2:
            return ""
        self._show_table(names[(names.index(self._table(snapshot)) + 1) % len(names)])
        self.redraw()
        return tr(TABLES[self._asked])

    def next_order(self) -> str:
        """Order this table by the next thing, where it has more than one order."""
        if not isinstance(self.snapshot, LogsSnapshot):
            return ""
        table = self._table(self.snapshot)
        order = next_order(table, self._orders.get(table, ""))
        if not order:
            return ""
        self._orders[table] = order
        self.redraw()
        return tr("sorted: {how}", how=tr(ORDERS[table][order]))

    def move_cursor(self, by: int) -> None:
        """Choose the incident before or after in time; after the newest nobody is chosen."""
        if not isinstance(self.snapshot, LogsSnapshot) or self._table(self.snapshot) != "incidents":
            self.scroll_lines(-by)
            return
        if not self._shown:
            return
        in_time = sorted(self._shown, key=lambda key: _time_of(self._shown[key]))
        if self.feed.chosen is None:
            self.feed.choose(in_time[-1] if by < 0 else None)
        else:
            at = in_time.index(self._chosen()[0]) + by
            self.feed.choose(in_time[max(at, 0)] if at < len(in_time) else None)
        self.redraw()

    def go_to(self, step: int | None) -> None:
        """Choose the incident nearest to a step, also one that the filter hides; None chooses none."""
        if step is None or not isinstance(self.snapshot, LogsSnapshot):
            self.feed.choose(None)
            return
        self._choose_nearest(step, [one.wall for one in self.view.moments if one.step == step])

    def go_to_time(self, wall_s: float) -> None:
        """Choose the incident nearest to a time, also one that the filter hides."""
        self._choose_nearest(None, [wall_s])

    def _choose_nearest(self, step: int | None, walls: Sequence[float]) -> None:
        snapshot = self.snapshot
        if not isinstance(snapshot, LogsSnapshot):
            return
        found = keyed("incidents", snapshot.digest.incidents)
        away = {key: _away(one, step, walls) for key, one in found.items()}
        nearest = min(away, key=away.__getitem__, default=None)
        if nearest is None or not away[nearest][0] <= 1:
            return
        if self._asked != "incidents":
            self._show_table("incidents")
        if nearest not in self._find(snapshot, "incidents"):
            self.sieve.clear()
        # Its entry may not be shown yet; the next drawing finds it.
        self.feed.chosen = nearest
        self.redraw()

    def set_filter(self, text: str) -> None:
        """Show only what fits; of what cannot be understood it says so, and the filter before it holds."""
        self.sieve.set(text)
        self.redraw()

    @property
    def filter_example(self) -> str:
        """Return what may be typed."""
        return tr("words, /regular expression/, sev:error cat:oom rank:0-3 since:10m code:507015 17000-18000")

    @property
    def filter_text(self) -> str:
        """Return the filter that holds, as it was typed."""
        return self.sieve.filter.text

    def as_text(self) -> list[str]:
        """Return the pane as plain text, list and story whole and not only what is in sight."""
        lines: list[Line] = [self.one_line().rstrip()]
        snapshot, status = self.snapshot, self.view.status
        if isinstance(snapshot, LogsSnapshot) and status is not None:
            table = self._table(snapshot)
            around = self._around(status, _COPIED_CELLS)
            if self._shown:
                lines += all_lines(table, list(self._shown.values()), around)
            if self.zoomed or not self._shown:
                lines += ["", *self._story(snapshot, self._chosen()[1], _COPIED_CELLS)]
        return [*(text_of(line) for line in lines), *self.words.as_text()]

    # Which lines.

    def _table(self, snapshot: LogsSnapshot) -> str:
        """Return the table that is shown: the one asked for, while it has a line."""
        return self._asked if _lines(snapshot, self._asked) else "incidents"

    def _show_table(self, table: str) -> None:
        self._asked = table
        self.feed.choose(None)

    def _find(self, snapshot: LogsSnapshot, table: str) -> dict[Hashable, Any]:
        """Return the lines that the filter lets through, in their order."""
        every = keyed(table, _lines(snapshot, table))
        self._every = len(every)
        shown = self.sieve.through(every, self.view.wall_s)
        order = self._orders.get(table, "")
        keys = self._places.keys(table, order, shown, self.view.wall_s, self.feed.chosen)
        return {key: shown[key] for key in keys}

    def _around(self, status: TargetStatus, cells: int = 0) -> Around:
        hour = self.view.wall_s // 3600 * 3600
        # Beside a story the list is narrow, and as high as the screen.
        most = 4 if self.is_beside or cells else 2
        wide = cells or self.list_cells
        return Around(wide, most, hour, status.world_size, language(), terminal_can_draw())

    def _entries(self, around: Around) -> list[Entry]:
        """Return the list's entries; what is the same as before is not said anew."""
        said: dict[Hashable, tuple[Any, Around, Entry]] = {}
        for key, one in self._shown.items():
            known = self._said.get(key)
            if known is None or known[1] != around or (known[0] is not one and known[0] != one):
                known = (one, around, Entry(key, lines_of(one, around)))
            said[key] = known
        self._said = said
        return [entry for _, _, entry in said.values()]

    def _chosen(self) -> tuple[Hashable | None, Any]:
        """Return the line whose story is told, with its key."""
        if not self._shown:
            return None, None
        if self.feed.chosen in self._shown:
            return self.feed.chosen, self._shown[self.feed.chosen]
        return next(iter(self._shown.items()))

    def _story(self, snapshot: LogsSnapshot, one: Any, cells: int) -> list[Line]:
        status = self.view.status
        if isinstance(one, Incident):
            world_size = status.world_size if status else None
            # Of a source the story has the name only, and the rest of it changes all the time.
            names = tuple((source.kind, source.name) for source in snapshot.sources)
            where = (cells, world_size, language(), names)
            before, said_where, lines = self._told_as
            if said_where != where or (before is not one and before != one):
                lines = detail_view.lines_of(one, snapshot.sources, cells, world_size)
                self._told_as = (one, where, lines)
            return lines
        if isinstance(one, Metric):
            return table_stories.of_metric(one, cells, terminal_can_draw())
        if isinstance(one, Template):
            return table_stories.of_template(one, snapshot.sources, cells, snapshot.digest.lines)
        if isinstance(one, Source):
            return table_stories.of_source(one, cells)
        if self._every and self.sieve.filter.text:
            return nothing_fits(self._table(snapshot), self.sieve.filter.text, self._every, cells)
        return empty_lines(snapshot, cells)

    def _hints(self, snapshot: LogsSnapshot, table: str) -> list[tuple[str, str]]:
        """Return the keys of the tables, where they do something."""
        names = [name for name in TABLES if name == "incidents" or _lines(snapshot, name)]
        hints = [("enter", tr("story"))] if self._shown and not self.zoomed else []
        if len(names) > 1:
            hints.append(("v", tr(TABLES[names[(names.index(table) + 1) % len(names)]])))
        if table in ORDERS and len(self._shown) > 1:
            hints.append(("c", tr("sort")))
        if table == "incidents" and len(self._shown) > 1:
            hints.append(("[ ]", tr("by time")))
        return hints

    def _note(self) -> str:
        """Return what the list's last line says beside what is out of sight."""
        snapshot = self.snapshot
        if not isinstance(snapshot, LogsSnapshot):
            return ""
        words = []
        if self.sieve.filter.text:
            words.append(tr("{n} of {all} shown", n=count(len(self._shown)), all=count(self._every)))
        if snapshot.digest.dropped_incidents and self._table(snapshot) == "incidents":
            words.append(tr("{n} older ones let go", n=count(snapshot.digest.dropped_incidents)))
        return "  ".join(words)


def _lines(snapshot: LogsSnapshot, table: str) -> tuple[Any, ...]:
    found: tuple[Any, ...] = snapshot.sources if table == "sources" else getattr(snapshot.digest, table)
    return found


def _time_of(incident: Incident) -> tuple[float, float]:
    step = incident.last_step if incident.last_step is not None else incident.step
    return when_of(incident), -math.inf if step is None else step


def _away(incident: Incident, step: int | None, walls: Sequence[float]) -> tuple[float, float]:
    """Return how far an incident is from a step or a time, over 1 is too far, and how far its beginning is.

    The log's own steps and those of the training need not be counted alike: the nearer of both counts.
    """
    away = begun = math.inf
    first = incident.step
    if first is not None and step is not None:
        last = max(incident.last_step if incident.last_step is not None else first, first)
        away, begun = max(first - step, step - last, 0) / _NEAR_STEPS, abs(first - step) / _NEAR_STEPS
    if incident.first_wall_s is not None and incident.last_wall_s is not None:
        start, end = incident.first_wall_s, incident.last_wall_s
        for wall in walls:
            away = min(away, max(start - wall, wall - end, 0.0) / _NEAR_S)
            begun = min(begun, abs(start - wall) / _NEAR_S)
    return away, begun
