"""The overflow pane: a stream of incidents, numbers and verdict; on the whole screen the story of one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from textual.containers import Container
from textual.widget import Widget

from ascend_tui.frame import TargetStatus
from ascend_tui.plugin import Command, Message
from ascend_tui.text import count, fold, language, tr, width
from ascend_tui.widgets.feed import Entry, Feed
from ascend_tui.widgets.pane import Pane
from ascend_tui.widgets.quiet import Line
from ascend_tui.widgets.quiet_line import QuietLine

from . import detail_view
from .figures import fit_end, plain, sentence
from .filtering import Filter, parse, steps_of
from .levels_view import hottest_lines, level_lines, nothing_fits
from .snapshot import Incident, OverflowSnapshot
from .stream import entry_lines, step_cells
from .words import CLAMPS, closing_lines, mode_words, numbers_line, summary_words

_BESIDE = 96
"""From this width on the story has room beside the list."""
_LIST_CELLS = 46


class OverflowPane(Pane):
    """Draw an OverflowSnapshot."""

    DEFAULT_CSS = """
    OverflowPane #middle { width: 100%; height: 1fr; layout: vertical; }
    OverflowPane.-beside #middle { layout: horizontal; }
    OverflowPane #feed { height: 1fr; }
    OverflowPane #story { height: 1fr; margin: 0 0 0 1; }
    OverflowPane #numbers { height: 1; margin: 0 1; }
    OverflowPane #words { height: 3; margin: 0 1; }
    """
    TELLS = ("gradients", "modules", "ops")
    filters = True

    def body(self) -> Iterable[Widget]:
        """Set list and story above the numbers and the last words."""
        self.feed = Feed(id="feed")
        self.story = QuietLine(id="story")
        self.numbers = QuietLine(id="numbers")
        self.words = QuietLine(id="words")
        self.filter = Filter()
        self.top = 0
        self._told: Hashable | None = None
        self._shown: dict[Hashable, Incident] = {}
        self._said: dict[Hashable, tuple[Incident, tuple[Any, ...], Entry]] = {}
        self.feed.note = self._note
        return (Container(self.feed, self.story, id="middle"), self.numbers, self.words)

    def draw(self, snapshot: OverflowSnapshot, status: TargetStatus) -> None:
        """Bring list, story, numbers and words up to this snapshot."""
        self._shown = {key: one for key, one in _keyed(snapshot.incidents) if self.filter.fits(one)}
        rows = self._share_rows()
        can = self.startable(status)
        self.feed.always_marked = self.zoomed
        self.feed.show(self._entries(snapshot, status.rank))
        self._tell(snapshot, can)
        self.numbers.say(numbers_line(snapshot, self._cells))
        self.words.say(*closing_lines(snapshot, self._cells, rows, can, self.zoomed))

    def mode(self, snapshot: OverflowSnapshot) -> str:
        """Say what is watched and how often, and what could not be."""
        commands = self.loaded.plugin.commands if self.loaded.plugin else ()
        steps = next((one.lease.steps for one in commands if one.name == "ops"), None)
        thinning = self.view.status.cost.thinning if self.view.status else 1
        # Corners, the title and the line between the two take the rest; see Pane._draw_title.
        cells = self.outer_size.width - width(f"{self.digit} {self.title}") - 9
        filtered = f"/{plain(fit_end(self.filter.text, 24))}" if self.filter.text else ""
        words = mode_words(snapshot.levels, steps, thinning, cells - (width(filtered) + 3 if filtered else 0))
        return " · ".join(filter(None, [filtered, words]))

    def summary(self, snapshot: OverflowSnapshot) -> str:
        """Return the gravest incident and its source."""
        return summary_words(snapshot)

    def notice(self) -> str:
        """Say what is missing with the plugin's own note, where the snapshot has no better word."""
        snapshot = self.snapshot
        if isinstance(snapshot, OverflowSnapshot) and snapshot.state == "degraded" and not self._fault:
            why = next(iter(snapshot.notes), None) or next(
                (one.why for one in snapshot.levels if one.why), None
            )
            return tr("degraded: {reason}", reason=sentence(why) if why else "")
        return super().notice()

    def scroll_lines(self, by: int, pages: bool = False) -> None:
        """Choose another incident; by pages through its story, where that is seen."""
        if pages and self.zoomed:
            self.top += by * max(self._story_rows - 2, 1)
        else:
            self.feed.move(by, pages)
        self.redraw()

    def move_cursor(self, by: int) -> None:
        """Choose the incident before or after in time."""
        self.scroll_lines(-by)

    def go_to(self, step: int | None) -> None:
        """Choose the incident of a step, also one that the filter hides; None follows the newest."""
        if step is None or not isinstance(self.snapshot, OverflowSnapshot):
            self.feed.choose(None)
            return
        for fits in (_is_at, _began_at, _covers):
            for key, one in _keyed(self.snapshot.incidents):
                if fits(one, step):
                    if not self.filter.fits(one):
                        self.filter = Filter()
                    # Its entry may not be shown yet; the next drawing finds it.
                    self.feed.chosen = key
                    self.redraw()
                    return

    def set_filter(self, text: str) -> None:
        """Show only incidents of these modules and steps; an empty text shows all."""
        self.filter = parse(text)
        self.redraw()

    @property
    def filter_example(self) -> str:
        """Return what may be typed."""
        return tr("module path, step or steps: layers.12 17000-18000")

    @property
    def filter_text(self) -> str:
        """Return the filter as it was typed."""
        return self.filter.text

    def as_text(self) -> list[str]:
        """Return the pane as plain text, the story whole and not only what is in sight of it."""
        lines = [self.one_line().rstrip()]
        incident = self._incident()
        if self.feed.display:
            lines += self.feed.as_text()
        if self.story.display:
            whole: Sequence[Line] = self.story.lines
            if incident is not None and isinstance(self.snapshot, OverflowSnapshot):
                whole = detail_view.lines_of(incident, 100, _limits(self.snapshot))
            lines += [_text_of(line) for line in whole]
        return [*lines, *self.numbers.as_text(), *self.words.as_text()]

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

    def _share_rows(self) -> int:
        """Give list and story their place, and return how many rows the last words have.

        Nothing here depends on what the words are, so that no tick moves anything.
        """
        height = self.size.height - bool(self.notice())
        words = 5 if height >= 16 else 3 if height >= 12 else 2 if height >= 8 else 1
        if self.zoomed:
            words = 2 if height >= 14 else 1
        self.words.styles.height = words
        middle = max(height - words - 1, 1)
        self.set_class(self._is_beside, "-beside")
        has_list = bool(self._shown)
        # While nothing is listed, what is watched stands in its place.
        self.story.display = self.zoomed or not has_list
        self.feed.display = has_list
        listed = middle
        if self.zoomed and not self._is_beside:
            listed = min(max(middle // 3, 2), sum(2 for _ in self._shown), 8)
        self.feed.styles.height = listed if has_list and self.story.display and not self._is_beside else "1fr"
        self.feed.styles.width = max(self._list_cells - (2 if self._is_beside else 1), 1)
        self.story.styles.width = self._story_cells
        self._story_rows = middle - (listed if has_list and not self._is_beside else 0)
        return words

    def _entries(self, snapshot: OverflowSnapshot, rank: int | None) -> list[Entry]:
        """Return the list's entries; what is the same as before is not said anew, of hundreds that costs."""
        cells = max(self._list_cells - (3 if self._is_beside else 2), 8)
        of_step = step_cells(snapshot.incidents)
        place = (cells, of_step, rank, language())
        entries: dict[Hashable, tuple[Incident, tuple[Any, ...], Entry]] = {}
        for key, one in self._shown.items():
            before = self._said.get(key)
            if before is not None and before[1] == place and before[0] == one:
                entries[key] = before
            else:
                entries[key] = (one, place, Entry(key, entry_lines(one, cells, of_step, rank)))
        self._said = entries
        return [entry for _, _, entry in entries.values()]

    def _tell(self, snapshot: OverflowSnapshot, can: Mapping[str, Command]) -> None:
        """Show the story of the chosen incident, or what is watched where there is none."""
        if not self.story.display:
            return
        cells = self._story_cells
        incident = self._incident()
        if incident is not None:
            key = list(self._shown)[self.feed.current]
            if key != self._told:
                self._told, self.top = key, 0
            lines = detail_view.lines_of(incident, cells, _limits(snapshot))
        else:
            lines = self._nothing(snapshot, can, cells)
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

    def _nothing(self, snapshot: OverflowSnapshot, can: Mapping[str, Command], cells: int) -> list[Line]:
        if snapshot.incidents and self.filter.text:
            return nothing_fits(self.filter.text, len(snapshot.incidents), cells)
        lines = level_lines(snapshot, cells, can) if self.zoomed and snapshot.levels else []
        hottest = hottest_lines(snapshot.hottest, cells, self._story_rows - len(lines) - bool(lines))
        if self.zoomed and lines and hottest:
            lines.append("")
        lines += hottest
        if self.zoomed:
            for message in _limits(snapshot):
                lines += [[(part, "dim")] for part in fold(sentence(message), cells)]
        return lines

    def _incident(self) -> Incident | None:
        """Return the incident that is told."""
        return list(self._shown.values())[self.feed.current] if self._shown else None

    def _note(self) -> str:
        """Return what the list's last line says beside what is out of sight."""
        snapshot = self.snapshot
        if not isinstance(snapshot, OverflowSnapshot):
            return ""
        words = []
        if self.filter.text:
            words.append(
                tr("{n} of {all} shown", n=count(len(self._shown)), all=count(len(snapshot.incidents)))
            )
        if snapshot.dropped:
            words.append(tr("{n} older ones let go", n=count(snapshot.dropped)))
        return "  ".join(words)


def _keyed(incidents: Sequence[Incident]) -> Iterable[tuple[Hashable, Incident]]:
    """Return the incidents, the newest first, each under a key that stays while its count grows."""
    twins: dict[Hashable, int] = {}
    keyed: list[tuple[Hashable, Incident]] = []
    for one in incidents:
        seen = one.first_seen
        key = (one.kind, steps_of(one)[0], (seen.path, seen.part, seen.op) if seen else one.headline.text)
        twins[key] = twins.get(key, 0) + 1
        keyed.append(((key, twins[key]), one))
    return reversed(keyed)


def _limits(snapshot: OverflowSnapshot) -> list[Message]:
    """Return what has to be known of all that is shown: what cannot be seen, and how."""
    return [*([CLAMPS] if snapshot.saturates else []), *snapshot.notes, *snapshot.unseen]


def _is_at(incident: Incident, step: int) -> bool:
    return incident.step == step


def _began_at(incident: Incident, step: int) -> bool:
    return incident.first_step == step


def _covers(incident: Incident, step: int) -> bool:
    first, last = steps_of(incident)
    return first <= step <= last


def _text_of(line: Line) -> str:
    return (line if isinstance(line, str) else "".join(text for text, _ in line)).rstrip()
