"""The lines around an incident as they were written, with their numbers, the one that matters marked."""

from __future__ import annotations

from collections.abc import Sequence

from ascend_tui.text import fit, fold
from ascend_tui.widgets.quiet import Line

from ..snapshot import Raw, Source
from .figures import fit_end, plain, right, source_at, source_name

KEY = "▸"
_MOST_LINES, _MOST_CHARACTERS, _MOST_ROWS, _MOST_INDENT = 60, 600, 4, 12


def lines_of(context: Sequence[Raw], sources: Sequence[Source], cells: int) -> list[Line]:
    """Return each line on as many rows as it needs, four at most; what comes from elsewhere says so."""
    shown = list(context)[:_MOST_LINES]
    of_number = max([1, *(len(str(one.number)) for one in shown if one.number > 0)])
    room = max(cells - of_number - 4, 8)
    # Where all lines are of one source its name stands elsewhere in the story.
    is_mixed = len({one.source for one in shown}) > 1
    lines: list[Line] = []
    before: int | None = None
    for one in shown:
        if is_mixed and one.source != before:
            name = source_name(source_at(one.source, sources)) or f"#{one.source}"
            lines.append([(fit_end(name, max(cells - 2, 8)), "dim")])
            before = one.source
        text = plain(one.text, _MOST_CHARACTERS)
        # Folding would take it away, and a traceback is read by it.
        indent = " " * min(len(text) - len(text.lstrip(" ")), _MOST_INDENT, room // 4)
        parts = [indent + part for part in fold(text.strip(" "), room - len(indent))]
        if len(parts) > _MOST_ROWS:
            rest = " ".join(part.strip(" ") for part in parts[_MOST_ROWS - 1 :])
            parts = [*parts[: _MOST_ROWS - 1], indent + fit(rest, room - len(indent))]
        role = "bad" if one.is_key else ""
        mark = f"{KEY} " if one.is_key else "  "
        number = str(one.number) if one.number > 0 else ""
        for row, part in enumerate(parts):
            head = mark + right(number, of_number) if row == 0 else " " * (2 + of_number)
            lines.append([(head, "key" if one.is_key else "dim"), (f"  {part}", role)])
    return lines
