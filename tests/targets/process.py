"""A training that is started to be watched, and what it prints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ascend_tui.target import read_target, socket_path


class RunError(Exception):
    """A training that could not be run; the text says why."""


class Process:
    """A target and what it printed; use as a context."""

    def __init__(self, script: Path, output: Path, env: Mapping[str, str], arguments: Sequence[str]) -> None:
        self.output = output
        # Two that shared a file would write into each other's lines.
        with open(output, "xb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, str(script), *arguments],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        path = None
        with suppress(Exception):
            path = socket_path(read_target(self.process.pid))
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if path is not None:
            path.unlink(missing_ok=True)

    def lines(self) -> list[str]:
        """Return what it printed so far."""
        return self.output.read_text(errors="replace").splitlines()

    def wait_for(self, word: str, timeout_s: float) -> None:
        """Wait until it printed a line that begins so; raises RunError with its last words."""
        end = time.monotonic() + timeout_s
        while not any(line.startswith(word) for line in self.lines()):
            if self.process.poll() is not None or time.monotonic() > end:
                said = "\n".join(line for line in self.lines()[-400:] if not line.startswith("at "))
                raise RunError(f"the training did not come to {word!r}:\n{said[-3000:]}")
            time.sleep(0.05)
