"""What "who holds it" costs: paired, interleaved, in one process, on the CPU and the simulated NPU.

Each round is ten plain steps, ten of the command and ten plain ones after it.  The armed ones against the
mean of their neighbours is the ratio of an armed step, the neighbours against each other are the floor of
the method (A/A); `afterwards` is those after the last round against those before the first: what is left
when it is over.  The report at the end is made on the shim's thread: `pause` is how much the slowest step
of the five after the armed ones took beyond a plain one.
"""

from __future__ import annotations

import time

from ascend_tui.attach import attach
from ascend_tui.connection import ShimClient
from ascend_tui.plugin import load, probe_text
from bench.reuse import OnDevice
from bench.target import Training, median, table
from tests.cann_sim.simulator import why_not

STEPS = 10
REPORT_STEPS = 5


def run(rounds: int) -> None:
    """Measure the models on the CPU and the larger one on the simulated NPU, and print one table."""
    rows = []
    for model in ("gpt", "tiny"):
        with Training(model) as training:
            rows.append(_measure(f"{model}, cpu", training, rounds))
    missing = why_not()
    if missing is None:
        with OnDevice("npu:0") as training:
            rows.append(_measure("gpt, npu:0 (simulated)", training, rounds))
    else:
        print(f"\nno simulated NPU: {missing}")
    head = ["training", "how", "step", "armed / not", "A/A floor", "afterwards", "pause"]
    table("who holds it, ten steps (medians over rounds, quartiles in brackets)", head, rows)


def _measure(name: str, training: Training, rounds: int) -> list[str]:
    client = attach(training.target(), name="bench", writable=True).client
    try:
        text = probe_text(load("memory"))
        client.request("probe", plugin="memory", source=text, order=10)
        ratios, floors, pauses = [], [], []
        first = _plain(training, client)
        how = ""
        for _ in range(rounds):
            before = _plain(training, client)
            lease = {"steps": STEPS, "seconds": 60.0}
            begun = training.count()
            reply = client.request("command", plugin="memory", name="holders", arguments={}, lease=lease)
            how = reply["result"]["how"]
            _until(training, client, begun + 3 + STEPS + REPORT_STEPS)
            steps = _steps(training, begun)
            # Armed at a boundary that comes after the request.
            armed, after = steps[2 : 1 + STEPS], steps[2 + STEPS : 2 + STEPS + REPORT_STEPS]
            following = _plain(training, client)
            plain = (before + following) / 2
            ratios.append(median(armed) / plain)
            floors.append(before / following)
            pauses.append(max(after) - plain)
        last = _plain(training, client)
        return [
            name,
            how,
            f"{last * 1e3:.2f} ms",
            f"{median(ratios):.3f} [{_quartiles(ratios)}]",
            f"{median(floors):.3f} [{_quartiles(floors)}]",
            f"{last / first:.3f}",
            f"{median(pauses) * 1e3:.0f} ms",
        ]
    finally:
        client.request("detach")
        client.close()


def _quartiles(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 4]:.3f}–{ordered[3 * len(ordered) // 4]:.3f}"


def _steps(training: Training, since: int) -> list[float]:
    ends = training.ends(max(1, since))
    return [later - earlier for earlier, later in zip(ends, ends[1:])]


def _plain(training: Training, client: ShimClient) -> float:
    """Return the median duration of ten steps in which nothing is armed, in seconds."""
    _until(training, client, training.count() + 2)
    begun = training.count()
    _until(training, client, begun + STEPS)
    return median(_steps(training, begun)[:STEPS])


def _until(training: Training, client: ShimClient, count: int) -> None:
    while training.count() < count and training.is_alive():
        client.receive()
        time.sleep(0.02)
