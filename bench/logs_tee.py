"""What the tee of the logs plugin costs: `python -m bench.logs_tee [--quick]`.

A line is printed many times without and with the tee, in turns; the difference of neighbours is what a
print costs more, that of two turns without is the floor of the method (A/A).  `full` is while more is printed
than may be sent, so that lines are only counted.  The streams lead to /dev/null, where a write is cheapest.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from ascend_tui.plugin import load, probe_text
from bench.target import busy, median, table

LINE = "step 1200 loss 2.3456 grad_norm 1.2340 lr 3.0e-04 tokens/s 12345 mem 12.3 GiB (rank 0)"
PRINTS = 2000
KINDS = {
    "a line at a time (stderr, a terminal)": "line",
    "in blocks (stdout into a pipe or a file)": "block",
    "unbuffered (python -u)": "unbuffered",
}


def run(rounds: int) -> None:
    """Measure all kinds of streams and print one table."""
    space: dict[str, Any] = {"__name__": "_ascend_tui_probe_logs"}
    exec(compile(probe_text(load("logs")) or "", "<ascend-tui-probe-logs>", "exec"), space)
    number = os.open(os.devnull, os.O_WRONLY)
    head = ["stream", "us per print", "with the tee", "full", "A/A floor"]
    rows = [[name, *_measure(space["Lane"], number, kind, rounds)] for name, kind in KINDS.items()]
    os.close(number)
    table("the tee (medians over rounds, us per print, and what it is more)", head, rows)


def _measure(lane: Callable[..., Any], number: int, kind: str, rounds: int) -> list[str]:
    raw = io.FileIO(number, "w", closefd=False)
    stream = (
        io.TextIOWrapper(raw, "utf-8", write_through=True)
        if kind == "unbuffered"
        else io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", line_buffering=kind == "line")
    )
    without, more, full, floors = [], [], [], []
    before = _prints(stream)
    for _ in range(rounds):
        one = lane("stdout", raw, "utf-8", "null")
        one.put_in()
        one.room = 1 << 40
        on = _prints(stream)
        one.pieces.clear()
        one.room = 0
        counted = _prints(stream)
        one.take_out()
        after = _prints(stream)
        without.append(after)
        more.append(on - (before + after) / 2)
        full.append(counted - (before + after) / 2)
        floors.append(before - after)
        before = after
    return [
        f"{median(without):.2f}",
        f"+{median(more):.2f}",
        f"+{median(full):.2f}",
        f"{median(floors):+.2f}",
    ]


def _prints(stream: Any) -> float:
    begun = time.perf_counter_ns()
    for _ in range(PRINTS):
        print(LINE, file=stream)
    return (time.perf_counter_ns() - begun) / PRINTS / 1e3


if __name__ == "__main__":
    print(busy())
    run(10 if "--quick" in sys.argv else 60)
