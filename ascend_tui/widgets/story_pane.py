"""A pane that is a list above its last words, and on the whole screen also the story of one line.

The story stands beside the list where there is room for both, else below it.  Where nothing is listed it
has the place of the list, and says why.  Nothing of this depends on what the words are, so that no tick
moves anything.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from textual.containers import Container, Vertical
from textual.widget import Widget

from ascend_tui.text import clean, tr
from ascend_tui.widgets.feed import Feed
from ascend_tui.widgets.quiet import Line
from ascend_tui.widgets.quiet_line import QuietLine
from ascend_tui.widgets.quiet_table import TablePane


class StoryPane(TablePane):
    """Lay list, story and last words out; what is in them is the subclass's."""

    DEFAULT_CSS = """
    StoryPane #middle { width: 100%; height: 1fr; layout: vertical; }
    StoryPane.-beside #middle { layout: horizontal; }
    StoryPane #list { width: 1fr; height: 1fr; }
    StoryPane #titles { height: 1; margin: 0 0 0 1; }
    StoryPane #feed { height: 1fr; }
    StoryPane #story { height: 1fr; margin: 0 0 0 1; }
    StoryPane #words { height: 3; margin: 0 1; }
    """
    filters = True
    BESIDE = 96
    """From this width on the story has room beside the list."""
    LIST_CELLS = 50
    """The width of a list that a story stands beside."""

    def body(self) -> Iterable[Widget]:
        """Set list and story above the last words."""
        self.titles = QuietLine(id="titles")
        self.feed = Feed(id="feed")
        self.list = Vertical(self.titles, self.feed, id="list")
        self.story = QuietLine(id="story")
        self.words = QuietLine(id="words")
        self.top = 0
        """The first line of the story that is in sight."""
        self.story_rows = 1
        self._listed = False
        self._told: Hashable | None = None
        return (Container(self.list, self.story, id="middle"), self.words)

    def closing_rows(self, height: int) -> int:
        """Return how many rows the last words have in a pane of `height` rows."""
        if self.zoomed:
            return 2 if height >= 14 else 1
        return 6 if height >= 16 else 4 if height >= 12 else 3 if height >= 8 else 1

    @property
    def cells(self) -> int:
        """Return the width of what goes over the whole pane."""
        return max(self.size.width - 2, 1)

    @property
    def is_beside(self) -> bool:
        """Tell whether the story stands beside the list."""
        return self.zoomed and self.size.width >= self.BESIDE

    @property
    def list_cells(self) -> int:
        """Return the width of a line of the list, what marks the chosen one left out."""
        wide = min(self.LIST_CELLS, self.size.width * 2 // 5) if self.is_beside else self.size.width
        return max(wide - 2, 8)

    @property
    def story_cells(self) -> int:
        """Return the width of the story."""
        beside = self.list_cells + 2 if self.is_beside and self._listed else 0
        return max(self.cells - beside, 8)

    def lay_out(self, listed: int, lines: int) -> int:
        """Give list and story their place; return how many rows the last words have.

        `listed` entries of `lines` lines in all are to be shown; beside or above a story they have less room.
        """
        height = self.size.height - bool(self.notice())
        words = self.closing_rows(height)
        self.words.styles.height = words
        middle = max(height - words, 1)
        self.set_class(self.is_beside, "-beside")
        self._listed = listed > 0
        self.list.display = self._listed
        self.story.display = self.zoomed or not self._listed
        is_split = self.zoomed and self._listed and not self.is_beside
        rows = min(max(middle // 3, 3), lines + 2, 10)
        self.list.styles.height = rows if is_split else "1fr"
        self.list.styles.width = self.list_cells + 2 if self.is_beside else "1fr"
        self.story.styles.width = self.story_cells
        self.story_rows = middle - (rows if is_split else 0)
        return words

    def tell(self, who: Hashable | None, lines: Sequence[Line]) -> None:
        """Show as much of a story as has room; that of another begins at its top."""
        if who != self._told:
            self._told, self.top = who, 0
        room = self.story_rows
        if len(lines) <= room:
            self.top = 0
            self.story.say(*lines)
            return
        room = max(room - 1, 0)
        self.top = max(0, min(self.top, len(lines) - room))
        below = len(lines) - self.top - room
        more = tr("↑ {above} ↓ {below} lines more", above=self.top, below=below)
        self.story.say(*lines[self.top : self.top + room], [(f"{more}  pgup pgdn", "dim")])

    def scroll_lines(self, by: int, pages: bool = False) -> None:
        """Choose another line of the list; by pages through its story, where that is seen."""
        if pages and self.zoomed:
            self.top += by * max(self.story_rows - 2, 1)
        else:
            self.feed.move(by, pages)
        self.redraw()


def text_of(line: Line) -> str:
    """Return a line as plain text, for the clipboard."""
    return clean(line if isinstance(line, str) else "".join(text for text, _ in line)).rstrip()
