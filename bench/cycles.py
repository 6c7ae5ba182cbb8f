"""Attach and detach again and again on one living training: is it ever harmed, does anything grow?"""

from __future__ import annotations

import os
import time
from pathlib import Path

from ascend_tui.attach import attach
from ascend_tui.plugin import load, probe_text
from bench.target import Training, median, percentile, table


def run(cycles: int) -> None:
    plugin = load("memory")
    stops, hellos = [], []
    with Training("tiny", "--workers", "2", "--hash-every", "500") as training:
        before = _inside(training.pid)
        early = None
        residue: set[str] = set()
        for number in range(cycles):
            attached = attach(training.target(), name="cycles", writable=True)
            client = attached.client
            client.request("probe", plugin="memory", source=probe_text(plugin), order=plugin.order)
            time.sleep(0.1)
            client.receive()
            residue |= set(client.request("detach")["residue"])
            client.close()
            stops += attached.stops_ms
            hellos.append(attached.hello_ms)
            if number == 9:
                early = _inside(training.pid)
        time.sleep(0.5)
        after = _inside(training.pid)
        count, hashes, alive = training.count(), training.hashes(), training.is_alive()
    with Training("tiny", "--workers", "2", "--hash-every", "500") as undisturbed:
        while undisturbed.count() < count and undisturbed.is_alive():
            time.sleep(0.2)
        reference = undisturbed.hashes()
    common = sorted(set(hashes) & set(reference))
    same = sum(hashes[step] == reference[step] for step in common)
    rows = [
        ["target alive", "yes" if alive else "NO"],
        ["checkpoints identical", f"{same}/{len(common)} over {count:,} steps"],
        [
            "thread stopped",
            f"p50 {median(stops):.2f} ms, p99 {percentile(stops, 0.99):.2f}, max {max(stops):.2f}",
        ],
        ["attach to hello", f"p50 {median(hellos):.0f} ms, p99 {percentile(hellos, 0.99):.0f}"],
        *[
            [
                f"{name}: before, after 10, after {cycles}",
                f"{before[name]}, {(early or before)[name]}, {after[name]}",
            ]
            for name in before
        ],
        *[["stays", one] for one in sorted(residue)],
    ]
    table(f"{cycles} attach/detach cycles on one training", ["what", "found"], rows)


def _inside(pid: int) -> dict[str, int]:
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {
        "threads": len(os.listdir(f"/proc/{pid}/task")),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "mappings": len(maps),
    }
