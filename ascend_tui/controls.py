"""What the screen asks of the session behind it: the one seam between drawing and doing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ascend_tui.frame import Frame
from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message
from ascend_tui.target import TargetId


@frozen
class Outcome:
    """How a request ended.  `lines` are for the terminal after the screen is gone (a residue)."""

    ok: bool
    message: Message
    lines: tuple[str, ...] = ()


Done = Callable[[Outcome], None]
"""Called once, from any thread."""


class Controls(Protocol):
    """The session as the screen sees it; no method blocks."""

    def start(self, on_frame: Callable[[Frame], None]) -> None:
        """Begin to deliver one frame per tick, from the session's own thread."""

    def stop(self) -> None:
        """Close the connections; the shims stay."""

    def set_tick(self, seconds: float) -> None:
        """Change the time between two frames."""

    def command(self, target: TargetId, plugin: str, name: str, start: bool, done: Done) -> None:
        """Start or stop a plugin's command."""

    def mark(self, target: TargetId) -> None:
        """Note this moment, for every time axis and the recording."""

    def release(self, target: TargetId, done: Done) -> None:
        """Stop what this monitor started; the idle shim stays for the next attach."""

    def remove(self, target: TargetId, done: Done) -> None:
        """Take the shim out of the target."""
