"""What reuse switched off costs: paired, interleaved, in one process, on the CPU and the simulated NPU.

Each round has three neighbouring windows on one running training with the shim in it: reuse on, off, on.
The off one against the mean of its neighbours is the ratio, the neighbours against each other are the floor
of the method (A/A).  `every step` has a budget of a half, so that the governor leaves hardly a step out;
`in budget` is what a user gets.  What the simulated NPU's driver takes says nothing of a card's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path

from ascend_tui.attach import attach
from ascend_tui.connection import ShimClient
from bench.target import Training, durations, median, table
from tests.cann_sim.simulator import simulator, why_not

ROOT = Path(__file__).parent.parent
WINDOW_S = 3.0
STEPS = 12
"""A window has at least so many steps, however slow the machine is."""
SETTLE_S = 0.5
BUDGETS = {"every step": 0.5, "in budget": 0.03}
# The gpt of bench/training.py, on a device.
PROGRAM = """
import mmap, struct, sys, time
import torch
from torch.nn import functional
from bench.training import MOST_STEPS, Tokens, build

device, out = sys.argv[1:]
if device != "cpu":
    torch.npu.set_compile_mode(jit_compile=False)
torch.manual_seed(1)
torch.set_num_threads(1)
with open(out, "wb+") as file:
    file.truncate(8 + 8 * MOST_STEPS)
    view = mmap.mmap(file.fileno(), 0)
model, _ = build("gpt")
model = model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = Tokens()
for step in range(1, MOST_STEPS):
    batch = torch.stack([tokens[4 * step + row] for row in range(4)]).to(device)
    optimizer.zero_grad()
    logits = model(batch[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    loss.item()
    struct.pack_into("<d", view, 8 * step, time.monotonic())
    struct.pack_into("<Q", view, 0, step)
"""


class OnDevice(Training):
    """The gpt on a device; use it as a context."""

    def __init__(self, device: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ascend-tui-bench-"))
        self.out = self.folder / "steps"
        # Its home is where its CANN puts log files; the folder of the steps holds nothing else.
        home = Path(tempfile.mkdtemp(prefix="ascend-tui-bench-home-"))
        env = dict(os.environ) if device == "cpu" else dict(simulator().environment(home=home))
        env["PYTHONPATH"] = str(ROOT)
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, device, str(self.out)],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._view = None


def run(rounds: int) -> None:
    """Measure on each device there is, and print one table."""
    rows = []
    missing = why_not()
    for device in ("cpu", "npu:0"):
        if device != "cpu" and missing is not None:
            print(f"\nno simulated NPU: {missing}")
            continue
        with OnDevice(device) as training:
            for name, share in BUDGETS.items():
                rows.append(_measure(device, training, name, share, rounds))
    head = [
        "device",
        "means",
        "thinned",
        "step",
        "off / on",
        "A/A floor",
        "a call",
        "said: slower",
        "given back",
    ]
    table("reuse off at step boundaries (medians over rounds, quartiles in brackets)", head, rows)


def _measure(device: str, training: Training, name: str, share: float, rounds: int) -> list[str]:
    client = attach(training.target(), name="bench", writable=True).client
    try:
        source = files("ascend_tui_plugins.memory").joinpath("probe_reuse.py").read_text("utf-8")
        client.request("probe", plugin="memory", source=source, order=10)
        client.request("budget", share=share)
        ratios, floors, steps = [], [], []
        said: list[dict] = []
        before = _window(training, client, said)
        for _ in range(rounds):
            lease = {"steps": 1000000, "seconds": 600.0}
            client.request("command", plugin="memory", name="reuse", arguments={}, lease=lease)
            off = _window(training, client, said)
            client.request("command", plugin="memory", name="reuse", action="stop")
            after = _window(training, client, said)
            ratios.append(2 * off / (before + after))
            floors.append(before / after)
            steps.append(after)
            before = after
        ends = [one for one in said if one["state"] == "on" and one["cost_us"] is not None]
        return [
            device if device == "cpu" else device + " (simulated)",
            ends[-1]["how"],
            f"{name}, every {median([one['every'] for one in ends]):.0f}.",
            f"{median(steps) * 1e3:.1f} ms",
            f"{median(ratios):.3f} [{_quartiles(ratios)}]",
            f"{median(floors):.3f} [{_quartiles(floors)}]",
            f"{median([one['cost_us'] for one in ends]):,.0f} us",
            f"{median([one['slower'] or 1.0 for one in ends]):.3f}",
            f"{median([one['returned_bytes'] for one in ends]) / 2**20:,.0f} MiB a window",
        ]
    finally:
        client.request("detach")
        client.close()


def _quartiles(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 4]:.3f}–{ordered[3 * len(ordered) // 4]:.3f}"


def _window(training: Training, client: ShimClient, said: list[dict]) -> float:
    """Return the mean duration of a window's steps in seconds; what the probe says goes to `said`."""
    _spend(client, SETTLE_S, said)
    start, first = time.monotonic(), training.count()
    _spend(client, WINDOW_S, said)
    while training.count() < first + STEPS and training.is_alive():
        _spend(client, 0.1, said)
    found = durations(training.ends(max(1, first)), start, time.monotonic())
    return sum(found) / len(found)


def _spend(client: ShimClient, seconds: float, said: list[dict]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for frame in client.receive():
            records = frame.get("records", [])
            said += [one["data"] for one in records if one["kind"] == "reuse"]
        time.sleep(min(0.1, max(0.0, end - time.monotonic())))
