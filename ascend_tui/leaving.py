"""Leave without leaving anything on: what `q`, `Q`, SIGTERM and a closed terminal have in common.

Textual restores the terminal on its own exit only: it handles neither SIGTERM nor SIGHUP.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Sequence

from ascend_tui.controls import Controls, Outcome
from ascend_tui.target import TargetId
from ascend_tui.text import say, tr

LEAVE_S = 5.0
"""How long to wait for the shims; the leases of what they run end by themselves."""


class Leaving:
    """Let go of every target, then close the screen."""

    def __init__(
        self,
        controls: Controls,
        deliver: Callable[[Outcome], None],
        close: Callable[[int], None],
    ) -> None:
        """`deliver` brings an outcome to `took` on the screen's thread, `close` ends the app."""
        self.controls = controls
        self.farewell: list[str] = []
        self._deliver = deliver
        self._close = close
        self._open: int | None = None
        self._code = 0

    def begin(self, targets: Sequence[TargetId], *, remove: bool = False, code: int = 0) -> str:
        """Ask every target to let go; return what to tell the user.  Asked twice, close at once."""
        if self._open is not None or not targets:
            self._close(self._code or code)
            return ""
        self._open, self._code = len(targets), code
        ask = self.controls.remove if remove else self.controls.release
        for target in targets:
            ask(target, self._deliver)
        return tr("removing the shim…") if remove else tr("stopping what was started here…")

    def took(self, outcome: Outcome) -> None:
        """Take one target's answer; the last one closes the screen."""
        self.farewell += outcome.lines
        if not outcome.ok:
            self.farewell.append(say(outcome.message))
        if self._open is not None:
            self._open -= 1
            if self._open == 0:
                self._close(self._code)

    def give_up(self) -> None:
        """Close although a shim has not answered."""
        if self._open:
            self.farewell.append(tr("a shim did not answer; what it runs ends with its lease"))
            self._close(self._code)

    def on_signals(self, leave: Callable[[int], None]) -> None:
        """Call `leave` with the exit code when the process is told to end or its terminal is gone."""

        def end(number: int) -> None:
            # The terminal may be gone: a write to it can block the orderly way out for ever.
            way_out = threading.Timer(LEAVE_S * 2, os._exit, (128 + number,))
            way_out.daemon = True
            way_out.start()
            leave(128 + number)

        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, end, number)
