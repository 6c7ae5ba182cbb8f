"""The footer: the keys that mean something now, from the bindings themselves.

Textual's own footer cuts at the right edge, where `quit` stands, and is rebuilt with every change
of focus; this one leaves out whole keys, the rarest first, and repaints what differs.
"""

from __future__ import annotations

from collections.abc import Sequence

from ascend_tui.frozen import frozen
from ascend_tui.text import width
from ascend_tui.widgets.quiet import Span
from ascend_tui.widgets.quiet_line import QuietLine


@frozen
class Hint:
    """One entry of the footer; where room is short the highest `drop` goes first."""

    key: str
    word: str
    drop: int = 1


class KeyLine(QuietLine):
    """Show as many hints as fit."""

    DEFAULT_CSS = "KeyLine { height: 1; padding: 0 1; }"

    def show(self, hints: Sequence[Hint]) -> None:
        """Show these hints, in this order."""
        kept = list(hints)
        room = self.size.width or 78
        while kept and sum(width(hint.key) + width(hint.word) + 3 for hint in kept) - 2 > room:
            kept.remove(max(reversed(kept), key=lambda hint: hint.drop))
        line: list[Span] = []
        for hint in kept:
            line += [("  " if line else "", ""), (hint.key, "key"), (f" {hint.word}", "dim")]
        self.say(line)
