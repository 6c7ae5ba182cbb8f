"""A training started for a benchmark, and what its step times say."""

from __future__ import annotations

import mmap
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ascend_tui.target import Target, read_target


class Training:
    """One running bench/training.py; use it as a context."""

    def __init__(self, model: str, *options: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ascend-tui-bench-"))
        self.out = self.folder / "steps"
        script = Path(__file__).with_name("training.py")
        command = [sys.executable, str(script), model, str(self.out), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._view: mmap.mmap | None = None

    def __enter__(self) -> Training:
        end = time.monotonic() + 120
        while self.count() < 20:
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError("the training did not start")
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for path in self.folder.iterdir():
            path.unlink()
        self.folder.rmdir()

    @property
    def pid(self) -> int:
        return self.process.pid

    def target(self) -> Target:
        return read_target(self.pid)

    def count(self) -> int:
        """Return the number of finished steps."""
        if self._view is None:
            if not self.out.exists() or self.out.stat().st_size == 0:
                return 0
            with self.out.open("rb") as file:
                self._view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        return int(struct.unpack_from("<Q", self._view, 0)[0])

    def ends(self, since: int = 1) -> list[float]:
        """Return the monotonic times at which steps ended, from step number `since` on."""
        count = self.count()
        assert self._view is not None
        return list(struct.unpack_from(f"<{count - since + 1}d", self._view, 8 * since))

    def hashes(self) -> dict[int, str]:
        """Return the parameters' digests by step."""
        lines = (self.out.parent / "steps.hash").read_text().splitlines()
        return {int(step): sha for step, sha in (line.split() for line in lines if " " in line)}

    def is_alive(self) -> bool:
        return self.process.poll() is None


def durations(ends: list[float], start: float, stop: float) -> list[float]:
    """Return the durations in seconds of the steps that lie wholly in a window."""
    return [b - a for a, b in zip(ends, ends[1:]) if a >= start and b <= stop]


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values: list[float]) -> float:
    return statistics.median(values)


def table(title: str, head: list[str], rows: list[list[str]]) -> None:
    """Print one table."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    print(f"\n{title}")
    for row in [head, ["-" * width for width in widths], *rows]:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    sys.stdout.flush()


def busy() -> str:
    """Say how loaded the machine was: a figure taken beside other work is worth less."""
    one, five, _ = os.getloadavg()
    return f"{os.cpu_count()} cores, load {one:.1f} (5 min {five:.1f})"
