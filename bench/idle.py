"""What an attached, idle monitor with the memory curve costs: paired, interleaved, ratios.

Each round has three windows on the same running training, in random order: attached, detached, and
detached again.  The first two give the ratio, the last two the floor of the method (A/A).  Within a
window the total time per step counts, not the median: work that hits one step in many must show.
"""

from __future__ import annotations

import random
import time

from ascend_tui.attach import attach
from ascend_tui.plugin import load, probe_text
from bench.target import Training, durations, median, table

SETTLE_S = 0.3


def run(rounds: int, window_s: float) -> None:
    rows = []
    for model in ("gpt", "tiny"):
        with Training(model) as training:
            rows.append([model, *_measure(training, rounds, window_s)])
    head = ["model", "step", "attached / not", "A/A floor", "twice floor", "in our hook", "rounds"]
    table("attached and idle, memory curve on (mean step time, median of paired ratios)", head, rows)


def _measure(training: Training, rounds: int, window_s: float) -> list[str]:
    ratios, floors, hooks = [], [], []
    step_s = 0.0
    chooser = random.Random(7)
    for _ in range(rounds):
        order = ["on", "off", "off again"]
        chooser.shuffle(order)
        means = {}
        for name in order:
            means[name], hook_us = _window(training, name == "on", window_s)
            if hook_us is not None:
                hooks.append(hook_us)
        ratios.append(means["on"] / means["off"])
        floors.append(means["off again"] / means["off"])
        step_s = means["off"]
    # The floor is how far from 1 two equal windows lie.
    spread = median([abs(one - 1.0) for one in floors])
    return [
        f"{step_s * 1e3:.2f} ms",
        f"{median(ratios):.4f} (quartiles {_quartiles(ratios)})",
        f"{median(floors):.4f} (typical distance {spread:.4f})",
        "within" if abs(median(ratios) - 1) <= 2 * max(spread, abs(median(floors) - 1)) else "above",
        f"{median(hooks):.1f} us/step",
        str(rounds),
    ]


def _quartiles(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 4]:.4f}–{ordered[3 * len(ordered) // 4]:.4f}"


def _window(training: Training, attached: bool, window_s: float) -> tuple[float, float | None]:
    client = None
    if attached:
        client = attach(training.target(), name="bench", writable=True).client
        plugin = load("memory")
        client.request("probe", plugin="memory", source=probe_text(plugin), order=plugin.order)
    time.sleep(SETTLE_S)
    first = training.count()
    start = time.monotonic()
    hook_us = None
    while time.monotonic() - start < window_s:
        if client is None:
            time.sleep(0.1)
            continue
        # A real monitor reads what it is sent.
        for frame in client.receive():
            if frame["type"] == "beat":
                hook_us = frame["cost"]["hook_us"]
        time.sleep(0.1)
    stop = time.monotonic()
    if client is not None:
        client.request("detach")
        client.close()
    steps = durations(training.ends(max(1, first)), start, stop)
    return sum(steps) / len(steps), hook_us
