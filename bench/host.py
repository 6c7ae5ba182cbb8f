"""What the readings of the host cost the shim's thread: workers, written bytes, phases; by processor time.

They run on that thread and not in the training, which loses no more than this of the interpreter's time; the
whole, in ratios of step times, is in `idle`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ascend_tui.plugin import load
from bench.target import median, percentile, table

WORKERS = (0, 8, 64)


class _Device:
    kind = "cpu"


class _Api:
    """What the probes ask for: a torch with modules, and steps that end."""

    device = _Device()
    step = 100
    since_step_s = 0.01
    step_s = 0.1
    torch: Any = None


def run(rounds: int) -> None:
    import torch

    host, phases = _names("probe_host.py"), _names("probe_phases.py")
    api = _Api()
    api.torch = torch
    rows = []
    for workers in WORKERS:
        with _children(workers):
            reading = host["Host"](api, host["Family"]())

            def read(reading: Any = reading) -> None:
                reading.due_s = 0.0
                reading.read()

            cost_us = median(_times(read, rounds))
            hz = 1.0 / max(1.0, cost_us / 1e6 * host["REST_PER_COST"])
            rows.append(_row(f"host, {workers} workers", _times(read, rounds), hz))
    rows.append(
        _row("written bytes", _times(host["Checkpoints"](host["Family"]()).look, rounds), host["WRITES_HZ"])
    )
    moments = phases["Moments"](api)
    moments.roots.looks_left = 0
    moments.roots.look_due_s = float("inf")
    net = torch.nn.Linear(1, 1)
    moments.roots.known = [[phases["weakref"].ref(net), True] for _ in range(2)]
    rows.append(_row("phase and pace", _times(moments.look, rounds), phases["LOOKS_HZ"]))
    with _deep_stack(torch) as thread:
        roots = phases["Roots"](api)
        roots.thread = thread
        hz = phases["MOST_LOOKS"] / 60
        rows.append(_row("look at a stack, in the first minute", _times(roots.learn, rounds), hz))
    head = ["reading", "p50", "p99", "times a second", "of one core"]
    table("the readings of the host, on the shim's thread (processor time)", head, rows)


def _names(file: str) -> dict[str, Any]:
    from importlib.resources import files

    package = str(load("memory").probe).partition(":")[0]
    space: dict[str, Any] = {"__name__": "probe"}
    exec(compile(files(package).joinpath(file).read_text(), file, "exec"), space)
    return space


def _times(call: Callable[[], Any], rounds: int) -> list[float]:
    """Return the processor time of each call in microseconds."""
    found = []
    for _ in range(rounds):
        began = time.thread_time_ns()
        call()
        found.append((time.thread_time_ns() - began) / 1e3)
        time.sleep(0.002)  # The caches are the training's between two readings.
    return found


def _row(name: str, times: list[float], hz: float) -> list[str]:
    share = median(times) * hz / 1e4
    return [
        name,
        f"{median(times):.0f} us",
        f"{percentile(times, 0.99):.0f} us",
        f"{hz:.2g}",
        f"{share:.4f} %",
    ]


@contextmanager
def _children(count: int) -> Iterator[None]:
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        pids.append(pid)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@contextmanager
def _deep_stack(torch: Any) -> Iterator[int]:
    """Run modules within modules on a thread that waits in the innermost one; give its identity."""
    inside, leave = threading.Event(), threading.Event()

    class Waits(torch.nn.Module):  # type: ignore[misc]
        def forward(self, given: Any) -> Any:
            inside.set()
            leave.wait()
            return given

    net: Any = Waits()
    while _depth(net) < 18:
        net = torch.nn.Sequential(net)
    thread = threading.Thread(target=net, args=(None,))
    thread.start()
    inside.wait()
    try:
        yield int(thread.ident or 0)
    finally:
        leave.set()
        thread.join()


def _depth(net: Any) -> int:
    return 1 + max((_depth(one) for one in net.children()), default=0)


if __name__ == "__main__":
    run(50 if "--quick" in sys.argv else 300)
