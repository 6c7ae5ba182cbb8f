"""How fast an attach is and what it does to the training meanwhile, beside py-spy and memray.

All of them hit the same running training in turn; between them the same window without any attach
is the control.  `pause` is the longest step in the window minus the control's median of that.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ascend_tui.attach import attach
from bench.target import Training, durations, median, percentile, table

WINDOW_S = 1.5


def run(rounds: int) -> None:
    tools: dict[str, Callable[[Training], dict[str, float]]] = {
        "no attach (control)": lambda training: {},
        "ascend-tui thread": lambda training: _ours(training, "thread"),
        "ascend-tui pending": lambda training: _ours(training, "pending"),
    }
    spy = _tool("py-spy")
    if spy:
        tools["py-spy dump"] = lambda training: _timed([spy, "dump", "--pid", str(training.pid)])
    memray = _tool("memray")
    if memray and shutil.which("gdb"):
        tools["memray attach (gdb)"] = lambda training: _memray(memray, training)
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in tools}
    steps: dict[str, list[float]] = {name: [] for name in tools}
    with Training("tiny", "--workers", "2") as training:
        for _ in range(rounds):
            for name, act in tools.items():
                first = training.count()
                start = time.monotonic()
                try:
                    figures = act(training)
                except (OSError, subprocess.SubprocessError) as error:
                    figures = {"failed": 1.0}
                    print(f"  {name}: {error}", file=sys.stderr)
                time.sleep(max(0.0, WINDOW_S - (time.monotonic() - start)))
                window = durations(training.ends(max(1, first)), start, time.monotonic())
                seen[name].append({**figures, "worst": max(window)})
                steps[name] += window
                if not training.is_alive():
                    raise RuntimeError(f"the training died under {name}")
    control = percentile(steps["no attach (control)"], 0.99)
    rows = []
    for name in tools:
        figures = seen[name]
        p99 = percentile(steps[name], 0.99)
        rows.append(
            [
                name,
                _ms(figures, "elapsed"),
                _ms(figures, "stop"),
                f"{p99 * 1e3:.2f} ms ({(p99 - control) * 1e3:+.2f})",
                f"{median([one['worst'] for one in figures]) * 1e3:.1f} ms",
                f"{max(one['worst'] for one in figures) * 1e3:.1f} ms",
                f"{sum(1 for one in figures if 'failed' not in one)}/{len(figures)}",
            ]
        )
    head = [
        "tool",
        "attach to hello",
        "thread stopped",
        "p99 step (to control)",
        "worst step p50",
        "max",
        "ok",
    ]
    table("attach window on the tiny training with 2 fork workers", head, rows)


def _ms(figures: list[dict[str, float]], name: str) -> str:
    values = [one[name] for one in figures if name in one]
    if not values:
        return "-"
    return f"{median(values) * 1e3:.1f} ms (max {max(values) * 1e3:.1f})"


def _ours(training: Training, method: str) -> dict[str, float]:
    attached = attach(training.target(), name="bench", writable=True, method=method)
    attached.client.request("detach")
    attached.client.close()
    return {"elapsed": attached.hello_ms / 1e3, "stop": max(attached.stops_ms) / 1e3}


def _tool(name: str) -> str | None:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def _timed(command: list[str]) -> dict[str, float]:
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return {"elapsed": time.monotonic() - began}


def _memray(memray: str, training: Training) -> dict[str, float]:
    out = str(training.folder / "memray.bin")
    found = _timed(
        [memray, "attach", "--duration", "1", "--method", "gdb", "-o", out, "-f", str(training.pid)]
    )
    Path(out).unlink(missing_ok=True)
    return found
