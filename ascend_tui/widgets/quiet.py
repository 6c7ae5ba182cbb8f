"""The widget under every live part of the screen: it repaints only what changed.

Over SSH bytes are the cost of a monitor.  A stock widget repaints whole for one changed digit;
this one keeps the cells it shows, compares, and asks for the changed spans only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Union

from rich.cells import cell_len
from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from ascend_tui.text import clean

Span = tuple[str, str]
"""Text and its role, one of ROLES."""
Line = Union[str, Sequence[Span]]
Cell = tuple[str, str]
"""One cell of the terminal: what stands in it, and its role.  The second cell of a wide
character is empty."""

ROLES = ("", "dim", "bold", "good", "warn", "bad", "first", "second", "third", "key")
BLANK: Cell = (" ", "")


def cells(line: Line, columns: int) -> list[Cell]:
    """Lay a line out on exactly `columns` cells."""
    laid: list[Cell] = []
    for text, role in [(line, "")] if isinstance(line, str) else line:
        for character in clean(text):
            size = cell_len(character)
            if len(laid) + size > columns:
                break
            if size:
                laid.append((character, role))
                laid += [("", role)] * (size - 1)
            elif laid:
                laid[-1] = (laid[-1][0] + character, laid[-1][1])
    return laid + [BLANK] * (columns - len(laid))


def changed(old: Sequence[Cell], new: Sequence[Cell]) -> tuple[int, int] | None:
    """Return the first and last but one column that differ, None when none does."""
    if old == new:
        return None
    if len(old) != len(new):
        return 0, max(len(old), len(new))
    start, end = 0, len(new)
    while old[start] == new[start]:
        start += 1
    while old[end - 1] == new[end - 1]:
        end -= 1
    # A wide character is repainted whole, whichever of its halves changed.
    while start > 0 and (not old[start][0] or not new[start][0]):
        start -= 1
    while end < len(new) and (not old[end][0] or not new[end][0]):
        end += 1
    return start, end


class Quiet(Widget):
    """Show rows of cells; `show_rows` repaints the spans that differ and nothing else."""

    COMPONENT_CLASSES = {f"quiet--{role or 'plain'}" for role in ROLES}  # noqa: RUF012
    DEFAULT_CSS = """
    Quiet {
        width: 1fr;
        .quiet--plain { color: $foreground; }
        .quiet--dim { color: $foreground 60%; }
        .quiet--bold { text-style: bold; }
        .quiet--good { color: $success; }
        .quiet--warn { color: $warning; }
        .quiet--bad { color: $error; text-style: bold; }
        .quiet--first { color: $accent; }
        .quiet--second { color: $primary-lighten-2; }
        .quiet--third { color: $warning; }
        .quiet--key { color: $accent; text-style: bold; }
        &:ansi .quiet--second { color: ansi_cyan; }
        &:ansi .quiet--dim { color: ansi_default; text-style: dim; }
    }
    """
    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        """Start with no rows."""
        super().__init__(id=id, classes=classes)
        self.rows: list[list[Cell]] = []

    def show_rows(self, rows: Iterable[list[Cell]]) -> None:
        """Show these rows from now on.

        The cost on the wire is the changed spans; a row costs from the widget's left edge to the
        end of its span, since that is how Textual paints a part of a widget.
        """
        old, self.rows = self.rows, list(rows)
        if not self.is_attached:
            return
        regions = []
        for y in range(max(len(old), len(self.rows))):
            before = old[y] if y < len(old) else []
            after = self.rows[y] if y < len(self.rows) else []
            if span := changed(before, after):
                regions.append(Region(span[0], y, span[1] - span[0], 1))
        if regions:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        """Draw one row, a segment per run of one role: every segment costs a colour sequence."""
        row = self.rows[y] if y < len(self.rows) else []
        segments: list[Segment] = []
        start = 0
        while start < len(row):
            role, end = row[start][1], start + 1
            # A blank takes the role of the run it stands in: it shows none, and a switch costs.
            while end < len(row) and (row[end][1] == role or row[end][0] == " "):
                end += 1
            text = "".join(character for character, _ in row[start:end])
            segments.append(Segment(text, self.get_component_rich_style(f"quiet--{role or 'plain'}")))
            start = end
        return Strip(segments, len(row)).adjust_cell_length(self.size.width, self.rich_style)

    def as_text(self) -> list[str]:
        """Return the rows as plain text, for the clipboard."""
        return ["".join(character for character, _ in row).rstrip() for row in self.rows]
