"""What the levels of the overflow watch cost: paired, interleaved, the field's own tools beside.

Each round has, for every level, a window with it on between two without.  The one with it against the mean
of its neighbours is the ratio, the neighbours against each other are the floor of the method (A/A).  The
clock is the processor time of the training thread per step.  Operators are watched in three steps: those are
measured one by one, on the wall clock, and `afterwards` is the last plain window against the first.  torch's
anomaly mode is switched by a signal, in another process of the same training; msprobe, where it is installed,
stays in its process for good, so that its ratio is to the windows before it came.
"""

from __future__ import annotations

import signal
import time
from importlib.util import find_spec

from ascend_tui.attach import attach
from ascend_tui.connection import ShimClient
from ascend_tui.plugin import load, probe_text
from bench.idle import _window
from bench.target import Training, median, table

MODELS_S = {"gpt": 3.0, "conv": 2.0, "tiny": 0.8}
LEVELS = {
    "loss and gradients": ("gradients", {}),
    "modules, every step": ("modules", {"every": 1}),
    "modules, every 10th": ("modules", {"every": 10}),
}
OP_STEPS = 3
LEASE = {"steps": 1_000_000, "seconds": 3600.0}


def run(rounds: int) -> None:
    """Measure all levels on three models and print one table."""
    rows = []
    for model, window_s in MODELS_S.items():
        with Training(model) as training:
            rows += _levels(model, training, rounds, window_s)
        with Training(model, "--peers") as training:
            rows += _peers(model, training, rounds, window_s)
    head = ["model", "step", "what", "on / off", "A/A floor", "afterwards"]
    table("watching for overflow (medians over rounds, quartiles in brackets)", head, rows)


def _levels(model: str, training: Training, rounds: int, window_s: float) -> list[list[str]]:
    client = attach(training.target(), name="bench", writable=True).client
    try:
        client.request("probe", plugin="overflow", source=probe_text(load("overflow")), order=20)
        # Nothing is to be left out: every step is what is measured.
        client.request("budget", share=0.5)
        ratios: dict[str, list[float]] = {name: [] for name in (*LEVELS, "operators")}
        floors: list[float] = []
        first = before = _window(training, client, window_s)["processor"]
        for _ in range(rounds):
            for what, (name, arguments) in LEVELS.items():
                _command(client, name, "start", arguments)
                on = _window(training, client, window_s)["processor"]
                _command(client, name, "stop")
                after = _window(training, client, window_s)["processor"]
                ratios[what].append(2 * on / (before + after))
                floors.append(before / after)
                before = after
            ratios["operators"].append(_operators(training, client))
            before = _window(training, client, window_s)["processor"]
        step = f"{before * 1e3:.2f} ms"
        floor = f"{median(floors):.4f} [{_quartiles(floors)}]"
        return [
            [model, step, what, f"{median(found):.4f} [{_quartiles(found)}]", floor, f"{before / first:.4f}"]
            for what, found in ratios.items()
        ]
    finally:
        client.request("detach")
        client.close()


def _operators(training: Training, client: ShimClient) -> float:
    """Return the median ratio of the three watched steps to the ten before them."""
    begun = training.count()
    _until(training, client, begun + 12)
    asked = training.count()
    _command(client, "ops", "start", lease={"steps": OP_STEPS, "seconds": 60.0})
    _until(training, client, asked + 20)
    ends = training.ends(max(1, begun))
    steps = [later - earlier for earlier, later in zip(ends, ends[1:])]
    plain = median(steps[: asked - begun])
    # Which of the next steps were watched is seen by their time: the dearest three.
    watched = sorted(steps[asked - begun : asked - begun + 12])[-OP_STEPS:]
    return median(watched) / plain


def _peers(model: str, training: Training, rounds: int, window_s: float) -> list[list[str]]:
    ratios, floors = [], []
    before = _window(training, None, window_s)["processor"]
    for _ in range(rounds):
        training.process.send_signal(signal.SIGUSR1)
        on = _window(training, None, window_s)["processor"]
        training.process.send_signal(signal.SIGUSR1)
        after = _window(training, None, window_s)["processor"]
        ratios.append(2 * on / (before + after))
        floors.append(before / after)
        before = after
    step = f"{before * 1e3:.2f} ms"
    floor = f"{median(floors):.4f} [{_quartiles(floors)}]"
    rows = [[model, step, "torch anomaly mode", f"{median(ratios):.4f} [{_quartiles(ratios)}]", floor, ""]]
    if find_spec("msprobe") is None:
        return [*rows, [model, step, "msprobe statistics L0", "not installed", "", ""]]
    training.process.send_signal(signal.SIGUSR2)
    on = _window(training, None, 3 * window_s)["processor"]
    training.process.send_signal(signal.SIGUSR2)
    after = _window(training, None, window_s)["processor"]
    return [
        *rows,
        [model, step, "msprobe statistics L0", f"{on / before:.4f}", floor, f"{after / before:.4f}"],
    ]


def _command(
    client: ShimClient, name: str, action: str, arguments: object = None, lease: object = None
) -> None:
    client.request(
        "command",
        plugin="overflow",
        name=name,
        action=action,
        arguments=arguments or {},
        lease=lease or LEASE,
    )


def _until(training: Training, client: ShimClient, count: int) -> None:
    while training.count() < count and training.is_alive():
        client.receive()
        time.sleep(0.02)


def _quartiles(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 4]:.4f}–{ordered[3 * len(ordered) // 4]:.4f}"
