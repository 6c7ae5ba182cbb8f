"""The hotspots probe in trainings of their own: numbers unchanged, faults of ours harmless, nothing left."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from client import TARGETS, Client
from trainings import CPU, Place, kill_group, needs_ptrace, needs_torch, until

from ascend_tui.attach import attach
from ascend_tui.plugin import load, probe_text
from ascend_tui.target import read_target, socket_path

pytestmark = [needs_ptrace, needs_torch]

OF_SIMULATOR = ("HcclInterface.cpp", "NPUCachingAllocator.cpp")

# A training that reads its loss, has a data loader and a range open across steps, and tells of itself.
TRAINING = """
import gc, hashlib, json, os, sys, time
from pathlib import Path
import torch
from device import device_of, pause, say_end
from torch import nn
from torch.autograd import profiler, profiler_legacy
from torch.nn.modules import module
from torch.optim import optimizer as optimizers
from torch.overrides import _len_torch_function_stack
from torch.profiler import record_function
from torch.utils._python_dispatch import _len_torch_dispatch_stack
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data import dataloader

folder, parent = Path(sys.argv[1]), os.getppid()
torch.manual_seed(3)
torch.set_num_threads(1)
device = device_of(os.environ["DEVICE"])
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(16, 4)).to(device)
optimizer = torch.optim.AdamW(net.parameters())
data = TensorDataset(torch.randn(40, 8))

def names(space, *words):
    return {name: repr(one) for name, one in vars(space).items() if any(word in name for word in words)}

def view():
    return {
        "profiler": [torch._C._autograd._profiler_enabled(), profiler._is_profiler_enabled],
        "functions": [
            names(profiler, "profile", "record"),
            names(profiler_legacy, "profile"),
            names(torch.profiler.profiler, "profile", "prof"),
            names(profiler.profile, ""),
            names(profiler.record_function, ""),
            names(dataloader, "Iter", "profile"),
            names(dataloader._BaseDataLoaderIter, ""),
            names(torch.autograd, "profile", "backward"),
        ],
        "methods": {name: repr(getattr(torch.Tensor, name, None)) for name in (
            "item", "nonzero", "cpu", "numpy", "tolist", "backward", "to", "__bool__", "__float__")},
        "optimizer": names(torch.optim.Optimizer, "step", "profile") | names(torch.optim.AdamW, "step"),
        "synchronize": [repr(torch.cuda.synchronize), repr(getattr(torch, "npu", None))],
        "callbacks": len(gc.callbacks),
        "modules": [len(module._global_forward_hooks), len(module._global_forward_pre_hooks)],
        "optimizers": [
            len(optimizers._global_optimizer_post_hooks), len(optimizers._global_optimizer_pre_hooks)],
        "modes": [_len_torch_dispatch_stack(), _len_torch_function_stack()],
        "trace": [repr(sys.gettrace()), repr(sys.getprofile())],
        "grad": torch.is_grad_enabled(),
        "new": sorted(set(sys.modules) - known),
    }

known, step, asked, losses, span = set(), 0, folder / "steps", 0.0, None
batches = iter(DataLoader(data, 4))
if "twin" in sys.argv:
    # It makes as many steps as the other one has made.
    while not asked.exists() and os.getppid() == parent:
        time.sleep(0.01)
while not (asked.exists() and asked.read_text() in ("", str(step))) and os.getppid() == parent:
    batch = next(batches, None)
    if batch is None:
        batches = iter(DataLoader(data, 4))
        batch = next(batches)
    if step % 5 == 0:
        span = record_function("five steps")
        span.__enter__()
    optimizer.zero_grad()
    loss = net(batch[0].to(device)).square().mean()
    loss.backward()
    optimizer.step()
    losses += loss.item()
    if step % 5 == 4:
        span.__exit__(None, None, None)
    step += 1
    if (folder / "question").exists():
        (folder / "question").unlink()
        known = known or set(sys.modules)
        (folder / "new").write_text(json.dumps(view()))
        (folder / "new").rename(folder / "answer")
    pause(0.01)
digest = hashlib.sha256(b"".join(one.detach().cpu().numpy().tobytes() for one in net.parameters()))
say_end(step, digest.hexdigest(), losses)
"""
# What a probe registered, by the names of its places; then one of them raises.
BREAK = """
def setup(api):
    import sys
    agent = sys.modules["_ascend_tui_shim.shim.shell"].agent

    def broken(*args):
        raise RuntimeError("internal")

    def places():
        probe = agent.probes.loaded["hotspots"]
        # A capture by torch_npu's profiler is a command of its own, which needs a card.
        found = [("hook", at, name) for at, hook in enumerate(probe.hooks)
                 if hook.after.__func__.__code__.co_filename != "probe_capture.py"
                 for name in ("before", "after", "done", "rest") if getattr(hook, name) is not None]
        for kind in ("every_step", "now_and_then"):
            found += [(kind, at, "") for at in range(len(getattr(probe, kind)))]
        found += [("sampler", at, "") for at in range(len(probe.samplers))]
        # What works on a record runs on the shim's thread.
        return [*found, ("sums", 0, "")]

    def start(arguments, steps, seconds):
        probe, found = agent.probes.loaded["hotspots"], places()
        if "place" in arguments:
            kind, at, name = arguments["place"]
            if kind == "hook":
                setattr(probe.hooks[at], name, broken)
            elif kind == "sampler":
                probe.samplers[at].call = broken
            elif kind == "sums":
                probe.hooks[0].after.__self__.api.sums = broken
            else:
                getattr(probe, kind)[at] = broken
                agent.probes.refresh()
        return found

    api.command("break", start)
"""


def probe() -> str:
    """Return the probe of the hotspots plugin, all its parts."""
    text = probe_text(load("hotspots"))
    assert text is not None
    return text


class Told:
    """The training above, or its twin, which nobody disturbs; `output` is all that it printed."""

    def __init__(self, folder: Path, place: Place, *arguments: str) -> None:
        self.folder, self.hurry, self.output = folder, folder / "hurry", folder / "output"
        folder.mkdir(parents=True, exist_ok=True)
        paths = {"PYTHONPATH": str(TARGETS), "HURRY": str(self.hurry), "DEVICE": place.device}
        with self.output.open("xb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-c", TRAINING, str(folder), *arguments],
                env={**place.environment(), **paths},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *_: object) -> None:
        kill_group(self.process)

    def view(self) -> dict[str, Any]:
        """Return what it sees in itself at the end of a step."""
        answer = self.folder / "answer"
        answer.unlink(missing_ok=True)
        (self.folder / "question").touch()
        assert until(lambda: answer.exists() or self.process.poll() is not None, 90), "no answer"
        assert self.process.poll() is None, self.output.read_text()
        return dict(json.loads(answer.read_text()))

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Put the shim in, with the probe; gives a raw client."""
        attach(read_target(self.process.pid), name="first", writable=True).client.close()
        with Client(socket_path(read_target(self.process.pid))) as one:
            one.hello()
            # Of what is asked for nothing is left out to keep the training fast.
            assert one.ask("budget", share=0.5)["ok"]
            assert one.probe("hotspots", probe())["ok"]
            yield one

    def end(self, steps: str = "") -> str:
        """Let it end after so many steps, or now; return what it says then, which is all it ever said."""
        draft = self.folder / "new"
        draft.write_text(steps)
        draft.rename(self.folder / "steps")
        assert self.process.wait(120) == 0
        # What torch_npu has to say of the simulator, with us and without.
        lines = self.output.read_text().splitlines()
        (line,) = [one for one in lines if not any(file in one for file in OF_SIMULATOR)]
        return str(re.fullmatch(r"end (.*)", line)[1])  # type: ignore[index]


def samples(client: Client) -> list[dict[str, Any]]:
    return [one for one in client.records if one["plugin"] == "hotspots" and one["kind"] == "sample"]


def start(client: Client, name: str = "sample", **arguments: Any) -> None:
    steps, seconds = (100_000, 600) if name == "sample" else (3, 60)
    answer = client.start("hotspots", name, steps=steps, seconds=seconds, arguments=arguments)
    assert answer["ok"], answer


def wait_for_samples(client: Client, count: int) -> None:
    wanted = len(samples(client)) + count
    client.until(lambda _: len(samples(client)) >= wanted, 60)


def faults(client: Client) -> Any:
    state = client.ask("status")["result"]
    assert state["notes"] == []
    return state["faults"]


def is_as_before(training: Told, before: dict[str, Any]) -> None:
    """Compare what the training sees in itself; what is new in `sys.modules` is named elsewhere."""
    after = training.view()
    assert [name for name in after if name != "new" and after[name] != before[name]] == [], after
    # No part of torch, and nothing slow to import, comes in by our hooks.
    assert [
        name for name in after["new"] if name.split(".")[0] in ("torch", "torch_npu", "numpy", "decimal")
    ] == []


def test_a_training_of_which_every_step_is_looked_at_is_the_same_and_nothing_is_left(
    tmp_path: Path, place: Place
) -> None:
    with Told(tmp_path / "one", place) as one, Told(tmp_path / "twin", place, "twin") as twin:
        twin.hurry.touch()
        before = one.view()
        assert one.view() == before
        with one.client() as client:
            client.beat(lambda beat: beat["step"] > 20, 60)
            start(client, every=1)
            wait_for_samples(client, 20)
            start(client, "profile")
            wait_for_samples(client, 3)
            assert faults(client) == {}
            client.stop("hotspots", "sample")
            steps = client.ask("status")["result"]["step"]
            assert until(lambda: client.ask("status")["result"]["step"] > steps + 3, 20)
            # Off is off, also while the shim stays.
            view = one.view()
            assert [view["profiler"], view["functions"], view["methods"]] == [
                before["profiler"],
                before["functions"],
                before["methods"],
            ]
            start(client, every=1)
            wait_for_samples(client, 3)
            residue = "\n".join(client.ask("detach", timeout_s=20)["result"]["residue"])
        for word in ("profiler", "record of operators", "module hooks", "dispatch mode", "optimizer hook"):
            assert word not in residue
        is_as_before(one, before)
        end = one.end()
        assert twin.end(end.split()[0]) == end


def test_a_fault_of_ours_in_any_place_ends_the_plugin_and_not_the_training(tmp_path: Path) -> None:
    with Told(tmp_path / "one", CPU) as one, Told(tmp_path / "twin", CPU, "twin") as twin:
        twin.hurry.touch()
        before = one.view()
        with one.client() as client:
            client.probe("break", BREAK)
            places = client.start("break", "break")["result"]["result"]
            assert places
            for place in places:
                assert client.probe("hotspots", probe())["ok"]
                client.events.clear()
                start(client, every=5)
                wait_for_samples(client, 2)
                assert client.start("break", "break", arguments={"place": place})["ok"]
                # Some is in use in a profile on request only; it may have failed by now.
                client.start("hotspots", "profile")
                assert until(lambda: "hotspots" in faults(client), 20), place
                assert faults(client)["hotspots"].endswith("RuntimeError('internal')"), place
                step = client.ask("status")["result"]["step"]
                assert until(lambda step=step: client.ask("status")["result"]["step"] > step + 5, 20), place
                view = one.view()
                assert (view["profiler"], view["modes"]) == (before["profiler"], before["modes"]), place
            client.ask("detach", timeout_s=20)
        is_as_before(one, before)
        end = one.end()
        assert twin.end(end.split()[0]) == end


def test_a_training_that_ends_in_a_step_that_is_looked_at_says_nothing_of_it(tmp_path: Path) -> None:
    with Told(tmp_path / "one", CPU) as one:
        one.view()
        with one.client() as client:
            start(client, every=1)
            wait_for_samples(client, 3)
            # All that it ever says is checked there.
            one.end()
