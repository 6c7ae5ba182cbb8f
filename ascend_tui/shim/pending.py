"""Run a few lines on the main thread between two bytecodes, as Python runs a signal handler."""

from __future__ import annotations

import time
from typing import Callable, Optional

from . import shell


class Pending:
    """A call for the main thread that is repeated until it returns True.

    It does not run while the main thread is blocked in native code.  3.9 and 3.10 may start it late
    when asked from another thread.
    """

    def __init__(self, call: Callable[[], bool]) -> None:
        self.done = False
        self.fault: Optional[str] = None
        self._call: Optional[Callable[[], bool]] = call
        self._queued = False
        self._asked = False

    def ask(self) -> None:
        """Ask for a run unless one is waiting already."""
        if self.done:
            return
        if not self._queued:
            self._queued, self._asked = True, False
            shell.queue.append(self._run)
        if not self._asked:
            # CPython has room for 32 calls; where it has none, the next tick asks again.
            self._asked = shell.ask_main_thread()

    def _run(self) -> None:
        self._queued = False
        call = self._call
        if call is None or self.done:
            return
        try:
            self.done = call()
        except Exception as error:
            self.fault = repr(error)

    def cancel(self) -> None:
        """Make a call that is still waiting do nothing."""
        self._call = None

    def wait(self, seconds: float) -> bool:
        """Ask again and again for at most `seconds`; return whether it ran and returned True."""
        end = time.monotonic() + seconds
        while not self.done and self.fault is None and time.monotonic() < end:
            self.ask()
            time.sleep(0.005)
        return self.done
