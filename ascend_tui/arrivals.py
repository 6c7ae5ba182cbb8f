"""What reaches the screen from the session's threads."""

from __future__ import annotations

from textual.message import Message

from ascend_tui.controls import Outcome
from ascend_tui.frame import Frame


class FrameArrived(Message):
    """A tick is over.  A newer one replaces one that waits, so that a slow terminal skips ticks."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        super().__init__()

    def can_replace(self, message: Message) -> bool:
        """Give way to a newer frame."""
        return isinstance(message, FrameArrived)


class OutcomeArrived(Message):
    """A request to the session ended; `leaving` when the screen waits for it to close."""

    def __init__(self, outcome: Outcome, leaving: bool) -> None:
        self.outcome = outcome
        self.leaving = leaving
        super().__init__()
