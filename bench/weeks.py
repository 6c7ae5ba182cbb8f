"""Three weeks of samples in a few minutes: what the memory collector keeps, and whether it grows slower.

18 million readings, as a probe sends them in three weeks at ten a second, every tenth of them after a
step.  The verdict is made once in ten simulated minutes and timed apart: live it is made after a hundred
samples at the latest.
"""

from __future__ import annotations

import asyncio
import random
import time
import tracemalloc
from statistics import median

from ascend_tui_plugins.memory import PLUGIN
from ascend_tui_plugins.memory.collector import MemoryCollector

from ascend_tui.app import MonitorApp
from ascend_tui.frame import Frame, TargetFrame, TargetStatus
from ascend_tui.plugin import Loaded, Record
from ascend_tui.target import TargetId
from bench.target import table

MIB = 1 << 20
ROWS = 6
VERDICT_EVERY = 6000
TARGET = TargetId(4_000_000, 1)


def run(samples: int) -> None:
    """Print what each stretch of the samples cost."""
    collector = MemoryCollector(lambda event: None)
    tracemalloc.start()
    feed(collector, 0, 1000)
    small = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    rows = []
    stretch = samples // ROWS
    for number in range(ROWS):
        first = max(1000, number * stretch)
        began = time.process_time()
        ticks = feed(collector, first, (number + 1) * stretch)
        spent_s = time.process_time() - began - sum(ticks) / 1e3
        each_us = spent_s / ((number + 1) * stretch - first) * 1e6
        rows.append(
            [
                f"{(number + 1) * stretch:,}",
                f"{each_us:.1f} us",
                f"{median(ticks):.1f} ms",
                f"{max(ticks):.1f} ms",
                collector.snapshot(TARGET).verdict.kind,
            ]
        )
    title = f"the memory collector over {samples / 864_000:.1f} days of samples at 10 Hz"
    table(title, ["samples so far", "a sample (CPU)", "a verdict (CPU)", "slowest", "verdict"], rows)
    print(f"  kept by Python objects: {held_mib(collector, small):.1f} MiB")
    snapshot_began = time.perf_counter()
    snapshot = collector.snapshot(TARGET)
    print(
        f"  snapshot: {(time.perf_counter() - snapshot_began) * 1e3:.1f} ms, verdict {snapshot.verdict.kind}"
    )
    print(f"  first picture on a new screen of 120x40: {asyncio.run(paint(snapshot)):.2f} s, imports aside")


def feed(collector: MemoryCollector, first: int, last: int) -> list[float]:
    """Give the collector the readings `first` to `last`; return the milliseconds of its ticks."""
    chooser, ticks = random.Random(first), []
    for number in range(first, last):
        step, at_s = number // 10, number / 10
        growth = 7168 * max(0, step - 1_000_000)
        data = {
            "device": "npu:0",
            "rss_bytes": 3000 * MIB + int(chooser.random() * MIB),
            "rss_peak_bytes": 3100 * MIB,
            "allocated_bytes": 1000 * MIB + growth,
            "allocated_peak_bytes": 1800 * MIB + growth,
            "active_bytes": 1010 * MIB + growth,
            "active_peak_bytes": 1900 * MIB + growth,
            "reserved_bytes": 2000 * MIB + growth,
            "reserved_peak_bytes": 2000 * MIB + growth,
            "inactive_split_bytes": 90 * MIB,
        }
        of_step = number % 10 == 9
        if of_step:
            data["device_used_bytes"] = 2600 * MIB + growth
            data["device_total_bytes"] = 65536 * MIB
        kind = "step" if of_step else "time"
        collector.on_record(TARGET, Record(number, "memory", kind, step, 1.7e9 + at_s, 500 + at_s, data))
        if number % VERDICT_EVERY == VERDICT_EVERY - 1:
            began = time.process_time()
            collector.on_tick(1.7e9 + at_s)
            ticks.append((time.process_time() - began) * 1e3)
    return ticks


def held_mib(collector: MemoryCollector, small: int) -> float:
    """Return the MiB of all that the collector reaches; `small` is what a thousand samples took."""
    import gc
    import sys

    seen: set[int] = set()
    waiting: list[object] = [vars(collector)["_targets"]]
    total = 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        if hasattr(one, "__module__") and not str(type(one).__module__).startswith(
            ("ascend_tui", "builtins")
        ):
            continue
        waiting.extend(gc.get_referents(one))
    return max(total, small) / MIB


async def paint(snapshot: object) -> float:
    """Return the seconds from a new app to its first picture with this snapshot."""
    controls = _Silent()
    began = time.perf_counter()
    app = MonitorApp(controls, [Loaded("memory", plugin=PLUGIN)])  # type: ignore[arg-type]
    async with app.run_test(size=(120, 40)) as pilot:
        status = TargetStatus(TARGET, "train.py", "live", device="npu:0", step=1_800_000, sample_age_s=0.1)
        controls.deliver(Frame(1.7e9, (TargetFrame(status, {"memory": snapshot}),)))  # type: ignore[attr-defined]
        await pilot.pause()
        return time.perf_counter() - began


class _Silent:
    """Controls that do nothing: there is no training behind this screen."""

    def start(self, on_frame: object) -> None:
        self.deliver = on_frame

    def stop(self) -> None:
        """Stop nothing."""

    def __getattr__(self, name: str) -> object:
        return lambda *arguments: None
