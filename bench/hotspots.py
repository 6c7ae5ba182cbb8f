"""What looking at the operators of a step costs: the step itself, the pause around it, and all of it.

Each step that is looked at is compared with its own neighbours on the same running training; the floor (A/A)
is the same with a step that was not looked at.  `all of it` is what the stretch from the step before to the
end of the work on it takes longer than as many steps before; over the time between two looks it is the
amortised share.  `on / off` are windows with the default sampling between two without, by the processor time
of the training thread, `afterwards` is the last window without against the first.  torch.profiler with
key_averages() is measured in a process of its own, on the same training.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ascend_tui.attach import attach
from ascend_tui.connection import ShimClient
from ascend_tui.plugin import load, probe_text
from bench.idle import _window
from bench.target import Training, median, percentile, table

MODELS = ("gpt", "conv", "tiny")
DEFAULT_S = 24.0
"""A window with the default sampling: it looks at one step in twenty seconds at most."""
PLAIN_S = 3.0
WORK_S = 0.15
"""How long the shim's thread may work on one step: what it takes from the training then is counted."""
NEIGHBOURS = 7
LEASE = {"steps": 1_000_000, "seconds": 3600.0}
PEER = """
import json, sys, time
import torch
from statistics import median
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from bench.training import Tokens, build

name, rounds = sys.argv[1], int(sys.argv[2])
torch.manual_seed(1)
torch.set_num_threads(1)
model, optimizer = build(name)
tokens, fixed = Tokens(), torch.randn(8, 32)
images, labels = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))

def step(number):
    began = time.perf_counter()
    optimizer.zero_grad()
    if name == "gpt":
        batch = torch.stack([tokens[4 * number + row] for row in range(4)])
        loss = functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    elif name == "conv":
        loss = functional.cross_entropy(model(images), labels)
    else:
        loss = model(fixed * (1.0 + number % 7)).pow(2).mean()
    loss.backward()
    optimizer.step()
    return time.perf_counter() - began

for number in range(10):
    step(number)
steps, pauses = [], []
for number in range(rounds):
    plain = [step(number) for _ in range(6)]
    one = profile(activities=[ProfilerActivity.CPU])
    began = time.perf_counter()
    one.__enter__()
    pause = time.perf_counter() - began
    took = step(number)
    began = time.perf_counter()
    one.__exit__(None, None, None)
    one.key_averages()
    pauses.append(pause + time.perf_counter() - began)
    plain += [step(number) for _ in range(6)]
    steps.append(took / median(plain))
print("told", json.dumps([steps, pauses]))
"""


def run(rounds: int) -> None:
    """Measure three models and print two tables."""
    looks, shares, peers = [], [], []
    for model in MODELS:
        with Training(model) as training:
            look, share = _measure(model, training, rounds)
        looks.append(look)
        shares.append(share)
        peers.append(_peer(model, rounds))
    head = ["model", "step", "looks", "step looked at / plain", "A/A floor", "pause ms", "of it told"]
    table("one step that is looked at (medians, quartiles in brackets)", [*head, "all of it ms"], looks)
    head = ["model", "every", "amortised", "told", "on / off", "A/A floor", "afterwards"]
    table("the default sampling", head, shares)
    head = ["model", "step profiled / plain", "start, stop and key_averages() ms"]
    table("torch.profiler, one step", head, peers)


def _measure(model: str, training: Training, rounds: int) -> tuple[list[str], list[str]]:
    client = attach(training.target(), name="bench", writable=True).client
    try:
        client.request("probe", plugin="hotspots", source=probe_text(load("hotspots")), order=30)
        # Nothing is to be left out: every look is what is measured.
        client.request("budget", share=0.5)
        first = before = _window(training, client, PLAIN_S)["processor"]
        # Between two of them lie plain steps, and the time that the work on one takes.
        _command(client, "start", every=max(2 * NEIGHBOURS + 2, int(3 * WORK_S / before)))
        looks = Looks(training, client).take(max(12, 4 * rounds))
        _command(client, "stop")
        ratios, floors = [], []
        _window(training, client, 1.0)
        before = _window(training, client, PLAIN_S)["processor"]
        for _ in range(max(2, rounds // 3)):
            _command(client, "start")
            on = _window(training, client, DEFAULT_S)["processor"]
            _command(client, "stop")
            after = _window(training, client, PLAIN_S)["processor"]
            ratios.append(2 * on / (before + after))
            floors.append(before / after)
            before = after
        return looks.cells(model), looks.shares(model, ratios, floors, before / first)
    finally:
        client.request("detach")
        client.close()


class Looks:
    """Steps that were looked at, each with its neighbours."""

    def __init__(self, training: Training, client: ShimClient) -> None:
        self.training, self.client = training, client
        self.samples: list[dict[str, Any]] = []
        self.apart: list[int] = []

    def take(self, count: int) -> Looks:
        """Wait for so many; the first ones are left out, because they load what is needed."""
        end = time.monotonic() + 20.0 + 10.0 * count
        while len(self.samples) < count + 2 and time.monotonic() < end and self.training.is_alive():
            for frame in self.client.receive():
                self.samples += [one["data"] for one in frame.get("records", ()) if one["kind"] == "sample"]
            made = self.training.count()
            step = self.client.request("status")["step"]
            if self.training.count() == made:
                self.apart.append(step - made)
            time.sleep(0.05)
        if len(self.samples) < count // 2:
            raise RuntimeError(f"only {len(self.samples)} steps were looked at")
        time.sleep(1.0)
        self.samples = self.samples[2:]
        self._compare()
        return self

    def _compare(self) -> None:
        ends, offset = self.training.ends(), round(median([float(one) for one in self.apart]))
        took = [0.0, 0.0, *(later - earlier for earlier, later in zip(ends, ends[1:]))]
        looked = {one["step"] - offset for one in self.samples}
        self.alone, self.floors, self.pauses, self.told = [], [], [], []
        self.whole, self.plain = [], []
        for sample in self.samples:
            step = sample["step"] - offset
            near = [
                took[at]
                for at in range(step - NEIGHBOURS, step + NEIGHBOURS)
                if 1 < at < len(took) and not any(one - 1 <= at <= one + 2 for one in looked)
            ]
            if len(near) < 6 or step + 2 >= len(took):
                continue
            plain = median(near)
            self.plain.append(plain)
            self.alone.append(sample["window_us"] / 1e6 / plain)
            self.floors.append(took[step - 4] / plain)
            # The end of the pause before is in the step before, as the training counts them.
            self.pauses.append(took[step - 1] + took[step] - plain - sample["window_us"] / 1e6)
            self.told.append(sample["pause_us"] / 1e6)
            last = min(step + 1 + int(WORK_S / plain), len(took) - 1)
            stretch = took[step - 1 : last + 1]
            before = took[max(2, step - 1 - len(stretch)) : step - 1]
            self.whole.append(sum(stretch) - sum(before) * len(stretch) / len(before))

    def cells(self, model: str) -> list[str]:
        """Return the line of the first table."""
        return [
            model,
            f"{median(self.plain) * 1e3:.2f} ms",
            str(len(self.plain)),
            f"{median(self.alone):.4f} [{_quartiles(self.alone)}]",
            f"{median(self.floors):.4f} [{_quartiles(self.floors)}]",
            f"{median(self.pauses) * 1e3:.1f}, p90 {percentile(self.pauses, 0.9) * 1e3:.1f}",
            f"{median(self.told) * 1e3:.1f}, p90 {percentile(self.told, 0.9) * 1e3:.1f}",
            f"{median(self.whole) * 1e3:.1f}",
        ]

    def shares(self, model: str, ratios: list[float], floors: list[float], after: float) -> list[str]:
        """Return the line of the second table."""
        plain = median(self.plain)
        every = median([float(one["every"]) for one in self.samples])
        # Never sooner than twenty seconds after the last look.
        apart_s = max(every * plain, 20.0)
        told = median([one["cost_us"] / 1e6 for one in self.samples])
        return [
            model,
            f"{every:.0f} steps, {apart_s:.0f} s",
            f"{100 * median(self.whole) / apart_s:.3f} %",
            f"{100 * told / apart_s:.3f} %",
            f"{median(ratios):.4f} [{_quartiles(ratios)}]",
            f"{median(floors):.4f} [{_quartiles(floors)}]",
            f"{after:.4f}",
        ]


def _peer(model: str, rounds: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PEER, model, str(max(6, rounds))],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("told "))
    steps, pauses = json.loads(line.partition(" ")[2])
    return [
        model,
        f"{median(steps):.4f} [{_quartiles(steps)}]",
        f"{median(pauses) * 1e3:.0f}, p90 {percentile(pauses, 0.9) * 1e3:.0f}",
    ]


def _command(client: ShimClient, action: str, **arguments: int) -> None:
    more = {"plugin": "hotspots", "name": "sample", "action": action, "lease": LEASE}
    client.request("command", arguments=arguments, **more)


def _quartiles(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 4]:.4f}–{ordered[3 * len(ordered) // 4]:.4f}"
