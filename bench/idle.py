"""What an attached, idle monitor with all its panes costs: paired, interleaved, ratios.

Each round has three neighbouring windows on one running training: detached, attached, detached. The
attached one against the mean of its neighbours is the ratio, the neighbours against each other are
the floor of the method (A/A). Two clocks are read. `processor`: the nanoseconds that the training
thread ran, per step; it leaves out what else the machine did, and also a wait for the interpreter.
`wall`: the mean duration of a step; work that hits one step in many shows in it.
"""

from __future__ import annotations

import time
from pathlib import Path

from ascend_tui.attach import attach
from ascend_tui.connection import ShimClient
from ascend_tui.plugin import load_all, probe_text
from bench.target import Training, durations, median, table

SETTLE_S = 0.4
WINDOWS_S = {"gpt": 3.0, "tiny": 0.8}


def run(rounds: int) -> None:
    rows = []
    for model, window_s in WINDOWS_S.items():
        count = rounds if model == "tiny" else max(3, rounds // 3)
        with Training(model) as training:
            rows += _measure(model, training, count, window_s)
    head = ["model", "step", "clock", "attached / not", "A/A floor", "half of A/A within", "in our hook"]
    table("attached and idle, all panes on (medians over rounds, quartiles in brackets)", head, rows)


def _measure(model: str, training: Training, rounds: int, window_s: float) -> list[list[str]]:
    clocks: dict[str, tuple[list[float], list[float]]] = {"processor": ([], []), "wall": ([], [])}
    hooks: list[float] = []
    steps: list[float] = []
    before = _window(training, None, window_s)
    for _ in range(rounds):
        client = attach(training.target(), name="bench", writable=True).client
        for one in load_all():
            if one.plugin and one.plugin.probe:
                text, name = probe_text(one.plugin), one.name
                client.request("probe", plugin=name, source=text, order=one.plugin.order)
        on = _window(training, client, window_s)
        hooks.append(client.request("status")["cost"]["hook_us"])
        client.request("detach")
        client.close()
        after = _window(training, None, window_s)
        for name, (ratios, floors) in clocks.items():
            ratios.append(2 * on[name] / (before[name] + after[name]))
            floors.append(before[name] / after[name])
        steps.append(after["wall"])
        before = after
    return [
        [
            model,
            f"{median(steps) * 1e3:.2f} ms",
            name,
            f"{median(ratios):.4f} [{_quartiles(ratios)}]",
            f"{median(floors):.4f} [{_quartiles(floors)}]",
            f"±{median([abs(one - 1.0) for one in floors]):.4f}",
            f"{median(hooks):.1f} us/step = {median(hooks) / median(steps) / 1e4:.3f} %",
        ]
        for name, (ratios, floors) in clocks.items()
    ]


def _quartiles(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 4]:.4f}–{ordered[3 * len(ordered) // 4]:.4f}"


def _at_a_step(training: Training) -> tuple[int, float, float]:
    """Wait for the end of a step; return its number, the time, and how long the training thread has run."""
    count = training.count()
    while training.count() == count:
        time.sleep(0.0003)
    ran = Path(f"/proc/{training.pid}/task/{training.pid}/schedstat").read_text().split()[0]
    return training.count(), time.monotonic(), int(ran) / 1e9


def _window(training: Training, client: ShimClient | None, window_s: float) -> dict[str, float]:
    _spend(client, SETTLE_S)
    first, start, ran_before = _at_a_step(training)
    _spend(client, window_s)
    last, stop, ran_after = _at_a_step(training)
    steps = durations(training.ends(max(1, first)), start, stop)
    return {"processor": (ran_after - ran_before) / (last - first), "wall": sum(steps) / len(steps)}


def _spend(client: ShimClient | None, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if client is not None:
            client.receive()  # a real monitor reads what it is sent
        time.sleep(min(0.1, max(0.0, end - time.monotonic())))
