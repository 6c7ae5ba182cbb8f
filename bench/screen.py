"""What the screen costs: bytes on the wire, processor, memory, and how soon it shows something.

The real program in a real pty of 120x40, attached to a real training.  htop stands beside where it
is installed.
"""

from __future__ import annotations

import fcntl
import os
import pty
import shutil
import signal
import struct
import sys
import termios
import threading
import time
from pathlib import Path

from bench.target import Training, table

SETTLE_S = 4.0


class Pty:
    """A program in a pty whose output is counted as it comes."""

    def __init__(self, command: list[str], columns: int = 120, rows: int = 40) -> None:
        self.began = time.monotonic()
        self.chunks: list[tuple[float, bytes]] = []
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            environment = {
                **os.environ,
                "TERM": "xterm-256color",
                "COLORTERM": "truecolor",
                "LANG": "C.UTF-8",
            }
            os.execvpe(command[0], command, environment)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.master, 1 << 16)
            except OSError:
                return
            if not data:
                return
            self.chunks.append((time.monotonic(), data))
            if b"\x1b[?2026$p" in data:
                os.write(self.master, b"\x1b[?2026;2$y")

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def bytes_between(self, start: float, stop: float) -> list[int]:
        """Return the bytes of each whole second between two monotonic times."""
        seconds = [0] * max(1, int(stop - start))
        for at, data in list(self.chunks):
            index = int(at - start)
            if at >= start and index < len(seconds):
                seconds[index] += len(data)
        return seconds

    def first(self, *needles: str) -> float | None:
        """Return after how many seconds the output first held one of the needles."""
        seen = b""
        for at, data in list(self.chunks):
            seen += data
            if any(needle.encode() in seen for needle in needles):
                return at - self.began
        return None

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.master)


def run(seconds: int) -> None:
    rows = []
    with Training("gpt") as training:
        command = [str(Path(sys.executable).with_name("ascend-tui")), "attach", str(training.pid)]
        screen = Pty([*command, "--theme", "ansi-dark"])
        time.sleep(SETTLE_S)
        paint, sample = screen.first("ascend-tui"), screen.first("MiB", "GiB")
        typical, cpu = _watch(screen, seconds)
        screen.type(" ")
        time.sleep(2.5)
        frozen, _ = _watch(screen, max(4, seconds // 3))
        screen.type(" ")
        time.sleep(1.0)
        # Zooming and resizing tabs repaint everything: the worst second a user can make.
        start = time.monotonic()
        for _ in range(4):
            screen.type("z")
            time.sleep(0.5)
        repaint = screen.bytes_between(start, start + 2.0)
        rows.append(
            [
                "ascend-tui, ansi-dark, 1 Hz",
                f"{sum(typical) / len(typical):.0f} B/s (most {max(typical)})",
                f"{sum(frozen) / len(frozen):.0f} B/s",
                f"{max(repaint)} B/s",
                f"{cpu:.1f} %",
                f"{screen.rss_mb():.0f} MB",
                f"{paint:.2f} s" if paint else "-",
                f"{sample:.2f} s" if sample else "-",
            ]
        )
        screen.close()
        if shutil.which("htop"):
            peer = Pty(["htop", "-d", "10"])
            time.sleep(2.0)
            typical, cpu = _watch(peer, seconds)
            rows.append(
                [
                    "htop, 1 s",
                    f"{sum(typical) / len(typical):.0f} B/s (most {max(typical)})",
                    "-",
                    "-",
                    f"{cpu:.1f} %",
                    f"{peer.rss_mb():.0f} MB",
                    f"{peer.chunks[0][0] - peer.began:.2f} s",
                    "-",
                ]
            )
            peer.close()
    head = ["program", "typical", "frozen", "zoom keys 2/s", "CPU", "RSS", "first paint", "first sample"]
    table("the screen at 120x40, attached to the gpt training", head, rows)


def _watch(screen: Pty, seconds: int) -> tuple[list[int], float]:
    start, cpu = time.monotonic(), screen.cpu_s()
    time.sleep(seconds)
    spent = (screen.cpu_s() - cpu) / (time.monotonic() - start) * 100
    return screen.bytes_between(start, time.monotonic()), spent
