"""What is said of the time of trainings whose truth is known, shortly; `make hotspots` runs all of them."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from client import TARGETS
from trainings import needs_ptrace, needs_torch

from tests.hotspots import judging
from tests.hotspots.cases import case, truth
from tests.hotspots.replaying import dump, replay
from tests.hotspots.running import run

pytestmark = [needs_ptrace, needs_torch]


def judged(name: str, device: str = "cpu", **other: Any) -> judging.Row:
    """Run a case for fewer samples than the table does."""
    short = dataclasses.replace(case(name), **{"samples": 3, **other})
    return judging.judge(run(short, device, tick_s=0.25))


@pytest.mark.parametrize("name", ["item", "mask"])
def test_a_call_that_synchronises_is_named_with_its_line_and_its_calls_a_step(name: str) -> None:
    row = judged(name)
    assert row.holds, row


def test_the_wait_for_data_is_what_was_planted(tmp_path: Path) -> None:
    done = run(dataclasses.replace(case("loader"), samples=3), "cpu", tick_s=0.25)
    row = judging.judge(done)
    assert row.holds, row
    # What the screen said live is what the same records say later.
    again = judging.judge(replay(dump(done, tmp_path)))
    assert (again.said, again.numbers) == (row.said, row.numbers)
    # With another truth it would not be right: what is tested here is the judge.
    other = truth("cast_storm", syncs="item", calls={"aten::linear": 8}, changed="aten::mm")
    patient = {**done.truth, "waited_s": [0.0] * len(done.truth["waited_s"]), "traces": [[1], [2]]}
    lied = dataclasses.replace(done.case, truths={"cpu": other})
    wrong = judging.judge(dataclasses.replace(done, case=lied, truth=patient)).wrong
    for word in ("none of", "also data_wait", "no sync at", "aten::linear 9", "data 0.", "slower", "traces"):
        assert any(word in one for one in wrong), (word, wrong)


def test_kernels_of_a_card_take_the_time_that_was_planted(simulator: Any) -> None:
    row = judged("perceptron", "npu")
    assert row.holds, row


@pytest.mark.parametrize("name", ["profiler", "profiler_inside"])
def test_the_training_s_own_traces_are_as_complete_as_without_us(name: str) -> None:
    # Where two steps of six are profiled a key may find no step of its own for long.
    # Every 7th step, so that it is not always the same one of the six.
    row = judged(name, samples=2, steps=150, profiles=int(name == "profiler_inside"))
    # What is said of its times beside other tests is for the table to judge; this is about harm.
    harm = [one for one in row.wrong if any(word in one for word in ("traces", "output", "parameters"))]
    assert not harm, row
    assert row.samples >= 2


# The sums of our own code and of torch, of the same record, and of kineto's of the steps beside it.
SHARES = """
import json, sys
from collections import Counter
import torch
from nets import Gpt
from torch.autograd import ProfilerConfig, ProfilerState, profiler_legacy
from torch.autograd.profiler_util import EventList
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

class Api: pass
api, space = Api(), {"__name__": "probe"}
exec(compile(open(sys.argv[1]).read(), "probe", "exec"), space)
space["setup"](api)
torch.manual_seed(1)
torch.set_num_threads(1)
net = Gpt(64, 128, 64)
optimizer = torch.optim.AdamW(net.parameters())

def step():
    rows = torch.randint(64, (8, 65))
    optimizer.zero_grad()
    functional.cross_entropy(net(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()).backward()
    optimizer.step()

def shares(found):
    whole = sum(found.values())
    return {name: us / whole for name, us in found.items()}

unmeasured = torch._C._profiler._ExperimentalConfig()
config = ProfilerConfig(ProfilerState.CPU, False, False, False, False, False, unmeasured)
ours, same, beside = Counter(), Counter(), Counter()
for _ in range(10):
    step()
for _ in range(5):
    step()
    torch.autograd._enable_profiler_legacy(config)
    step()
    step()
    records = torch.autograd._disable_profiler_legacy()
    began_ns = int(records[0][0].start_us() * 1e3)
    sums = api.sums([list(one) for one in records], [], began_ns, began_ns + 10**10, False)
    ours.update({name: one.self_us for name, one in sums.sums.items()})
    events = EventList(profiler_legacy._parse_legacy_records(records), use_device=None)
    events._build_tree()
    same.update({one.key: one.self_cpu_time_total for one in events.key_averages()})
    step()
    with profile(activities=[ProfilerActivity.CPU]) as other:
        step()
        step()
    beside.update({one.key: one.self_cpu_time_total for one in other.key_averages()})
print("shares", json.dumps([shares(ours), shares(same), shares(beside)]))
"""


def test_shares_are_those_of_torch_s_own_table(root: Path) -> None:
    file = root / "plugins" / "hotspots" / "probe_events.py"
    done = subprocess.run(
        [sys.executable, "-c", SHARES, str(file)],
        env={**os.environ, "PYTHONPATH": str(TARGETS)},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("shares "))
    ours, same, beside = json.loads(line.partition(" ")[2])
    assert set(ours) == set(same) == set(beside)
    assert ours == pytest.approx(same, abs=1e-3)
