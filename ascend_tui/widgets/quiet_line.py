"""A few lines of text that change in place."""

from __future__ import annotations

from textual import events

from ascend_tui.text import width
from ascend_tui.widgets.quiet import Line, Quiet, cells


class QuietLine(Quiet):
    """Show lines of text, each cut at the right edge."""

    DEFAULT_CSS = "QuietLine { height: 1; }"

    def __init__(self, *, right: bool = False, id: str | None = None, classes: str | None = None) -> None:
        """Start empty; `right` sets the lines against the right edge."""
        super().__init__(id=id, classes=classes)
        self.right = right
        self.lines: tuple[Line, ...] = ()

    def say(self, *lines: Line) -> None:
        """Show these lines."""
        self.lines = lines
        self._lay()

    def on_resize(self, event: events.Resize) -> None:
        """Lay the same lines out anew."""
        self._lay()

    def _lay(self) -> None:
        columns = self.size.width
        if columns:
            self.show_rows(cells(self._aligned(line, columns), columns) for line in self.lines)

    def _aligned(self, line: Line, columns: int) -> Line:
        if not self.right:
            return line
        spans = [(line, "")] if isinstance(line, str) else list(line)
        return [(" " * (columns - sum(width(text) for text, _ in spans)), ""), *spans]
