"""A log that grows fast, its reader beside: how old is the oldest line not digested, and is that said?"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from pathlib import Path

from ascend_tui_plugins.logs.collector import LogsCollector

from ascend_tui.target import read_target
from bench.log_mix import healthy
from bench.target import percentile, table

LOOK_S = 0.1
SAID_S = 2.0
"""What is further behind than this has to be said."""

# The text is made before the clock starts; a writer that made its lines would be what is measured.
_WRITER = r"""
import sys, time
rate, seconds = int(sys.argv[1]), float(sys.argv[2])
with open(sys.argv[3], "rb") as file:
    # Not splitlines: a progress bar's state ends no line.
    lines = [line + b"\n" for line in file.read().split(b"\n")[:-1]]
times = open(sys.argv[4], "w")
sys.stdin.readline()
out = sys.stdout.buffer
began, done = time.time(), 0
while time.time() - began < seconds:
    wanted = int((time.time() - began) * rate)
    if wanted > done:
        at = done % len(lines)
        part = lines[at:at + wanted - done]
        out.write(b"".join(part))
        out.flush()
        done += len(part)
        times.write(f"{time.time()} {done}\n")
    time.sleep(0.01)
times.close()
sys.stdin.readline()
"""


def run(rate: int, seconds: float) -> None:
    """Print how far behind the reader was while the writer wrote."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "lines").write_bytes(b"".join(healthy(5, 40_000_000)))
        with (folder / "out.log").open("wb") as out:
            writer = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _WRITER,
                    str(rate),
                    str(seconds),
                    str(folder / "lines"),
                    str(folder / "times"),
                ],
                stdin=subprocess.PIPE,
                stdout=out,
            )
        assert writer.stdin is not None
        time.sleep(2)
        collector = LogsCollector(lambda event: None)
        target = read_target(writer.pid).id
        collector.on_target(target)
        time.sleep(1)
        seen: list[tuple[float, int, float]] = []
        ending = threading.Event()
        spent = time.process_time()
        began = time.monotonic()
        writer.stdin.write(b"go\n")
        writer.stdin.flush()
        while not ending.wait(LOOK_S) and time.monotonic() - began < seconds + 5:
            found = collector.snapshot(target)
            seen.append((time.time(), found.digest.lines, found.behind_s))
        spent = time.process_time() - spent
        collector.close()
        writer.stdin.write(b"end\n")
        writer.stdin.close()
        writer.wait()
        written = [tuple(map(float, line.split())) for line in (folder / "times").read_text().splitlines()]
        size = (folder / "out.log").stat().st_size
    counts = [count for _, count in written]
    behind, unsaid, told = [], 0, 0
    for at, lines, behind_s in seen:
        place = bisect_right(counts, lines)
        if at < written[0][0] or (at > written[-1][0] and place >= len(written)):
            continue
        late = max(0.0, at - written[place][0]) if place < len(written) else 0.0
        behind.append(late)
        told += behind_s > 0
        unsaid += late > SAID_S and behind_s == 0
    last = seen[-1][1]
    table(
        f"a log that grows by {counts[-1] / (written[-1][0] - written[0][0]):,.0f} lines/s,"
        f" {size / 1e6 / seconds:.1f} MB/s, for {seconds:.0f} s",
        [
            "behind: median",
            "p99",
            "most",
            "said behind",
            f"over {SAID_S:.0f} s and not said",
            "reader's CPU",
            "digested",
        ],
        [
            [
                f"{percentile(behind, 0.5):.2f} s",
                f"{percentile(behind, 0.99):.2f} s",
                f"{max(behind):.2f} s",
                f"{told} of {len(behind)} looks",
                str(unsaid),
                f"{100 * spent / seconds:.0f} %",
                f"{last:,} of {counts[-1]:,.0f} lines",
            ]
        ],
    )
