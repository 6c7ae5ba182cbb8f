"""A terminal for tests: a real pty, a reader that answers what Textual asks, and a pyte screen."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyte

APP = Path(__file__).with_name("screen_app.py")
# Keyboard protocol requests that pyte does not know and would print.
_UNKNOWN = re.compile(rb"\x1b\[[<>=][0-9;]*[a-zA-Z]")


class Terminal:
    """Run screen_app.py in a pty of `columns` by `rows`."""

    def __init__(self, *options: str, columns: int = 120, rows: int = 40, **environment: str) -> None:
        self.seen = bytearray()
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
            settings = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "COLORTERM": "truecolor", **environment}
            os.execve(sys.executable, [sys.executable, str(APP), *options], {**kept, **settings})
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.size = (columns, rows)
        self.status: int | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            if not data:
                return
            self.seen += data
            if b"\x1b[?2026$p" in data:
                os.write(self.master, b"\x1b[?2026;2$y")

    def type(self, keys: str) -> None:
        """Send key presses."""
        os.write(self.master, keys.encode())

    def signal(self, number: int) -> None:
        """Send a signal to the app."""
        os.kill(self.pid, number)

    def hang_up(self) -> None:
        """Close the terminal under the app, as a lost connection does."""
        os.close(self.master)

    def wait_for(self, condition: Callable[[], bool], seconds: float = 15.0) -> None:
        """Wait until `condition` holds."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds} s; the screen was:\n" + "\n".join(self.lines()))
            time.sleep(0.02)

    def wait_quiet(self, seconds: float = 0.25) -> None:
        """Wait until nothing was written for some time."""
        before = -1
        while before != len(self.seen):
            before = len(self.seen)
            time.sleep(seconds)

    def wait_exit(self, seconds: float = 15.0) -> int:
        """Return the exit code, negative for a signal."""

        def ended() -> bool:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            return bool(pid)

        self.wait_for(ended, seconds)
        assert self.status is not None
        return self.status

    def lines(self) -> list[str]:
        """Return the screen as a terminal shows it after all bytes so far."""
        screen = pyte.Screen(*self.size)
        stream = pyte.ByteStream(screen)
        stream.feed(_UNKNOWN.sub(b"", bytes(self.seen)))
        return [line.rstrip() for line in screen.display]

    def close(self) -> None:
        """End the app, if it still runs."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        with contextlib.suppress(OSError):
            os.close(self.master)
