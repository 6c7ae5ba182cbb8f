"""The overflow probe in trainings of their own: numbers unchanged, faults of ours harmless, nothing left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from client import TARGETS, Client, target
from trainings import CPU, Place, Training, Watcher, kill_group, needs_ptrace, needs_torch, until

from ascend_tui.attach import attach
from ascend_tui.plugin import Loaded, load, probe_text
from ascend_tui.target import read_target, socket_path

pytestmark = [needs_ptrace, needs_torch]

# A training with a GradScaler, whose loss is infinite in every third step, and that tells of itself.
TRAINING = """
import hashlib, json, os, sys, time
from pathlib import Path
import torch
from device import device_of, pause, say_end
from torch import nn
from torch.nn.modules import module
from torch.optim import optimizer as optimizers
from torch.overrides import _len_torch_function_stack
from torch.utils._python_dispatch import _len_torch_dispatch_stack

folder, parent = Path(sys.argv[1]), os.getppid()
torch.manual_seed(3)
torch.set_num_threads(1)
device = device_of(os.environ["DEVICE"])
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(16, 4)).to(device)
optimizer = torch.optim.AdamW(net.parameters())
scaler = torch.amp.GradScaler(device.type, init_scale=1024.0, backoff_factor=0.9999)

def view():
    return {
        "backward": repr(torch.autograd.backward),
        "update": repr(torch.amp.GradScaler.update),
        "modules": [len(module._global_forward_hooks), len(module._global_forward_pre_hooks)],
        "optimizers": len(optimizers._global_optimizer_post_hooks),
        "modes": [_len_torch_dispatch_stack(), _len_torch_function_stack()],
        "grad": torch.is_grad_enabled(),
        "new": sorted(set(sys.modules) - known),
    }

known, step, asked = set(), 0, folder / "steps"
if "twin" in sys.argv:
    # It makes as many steps as the other one has made.
    while not asked.exists() and os.getppid() == parent:
        time.sleep(0.01)
while not (asked.exists() and asked.read_text() in ("", str(step))) and os.getppid() == parent:
    rows = torch.randn(4, 8).to(device)
    optimizer.zero_grad()
    loss = net(rows).square().mean()
    if step % 3 == 2:
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    step += 1
    if (folder / "question").exists():
        (folder / "question").unlink()
        known = known or set(sys.modules)
        (folder / "new").write_text(json.dumps(view()))
        (folder / "new").rename(folder / "answer")
    pause(0.01)
digest = hashlib.sha256(b"".join(one.detach().cpu().numpy().tobytes() for one in net.parameters()))
say_end(step, digest.hexdigest(), repr(scaler.get_scale()))
"""
BREAK = """
def setup(api):
    import sys
    agent = sys.modules["_ascend_tui_shim.shim.shell"].agent

    def broken(*args):
        raise RuntimeError("internal")

    def start(arguments, steps, seconds):
        probe = agent.probes.loaded["overflow"]
        level, name = arguments["level"], arguments["name"]
        levels = probe.taps[0].call.__self__.api.watch.levels
        if level == "taps":
            probe.taps[name].call = broken
        elif level == "watch":
            setattr(levels["ops"].api.watch, name, broken)
        else:
            setattr(levels[level].hook, name, broken)

    api.command("break", start)
"""
FAULTS = (
    ("taps", 0, "loss tap"),
    ("taps", 1, "scaler tap"),
    ("gradients", "after", "optimizer hook"),
    ("modules", "before", "module hook"),
    ("modules", "after", "module hook"),
    ("modules", "done", "module hook"),
    ("ops", "after", "op hook"),
    ("ops", "done", "op hook"),
    ("watch", "pulse", "sampler"),
)
LEVELS = ("gradients", "modules", "ops")
# Another monitor, in a process of its own, that holds what it has started.
MONITOR = """
import sys, time
from client import Client
client = Client(sys.argv[1])
client.hello("other")
for name in ("gradients", "modules"):
    assert client.start("overflow", name, steps=100000, seconds=600, arguments={"every": 1})["ok"]
print("holds", flush=True)
time.sleep(600)
"""


def probe() -> str:
    """Return the probe of the overflow plugin, all its parts."""
    text = probe_text(load("overflow"))
    assert text is not None
    return text


class Told:
    """The training above, or its twin, which nobody disturbs."""

    def __init__(self, folder: Path, place: Place, *arguments: str) -> None:
        self.folder, self.hurry = folder, folder / "hurry"
        folder.mkdir(parents=True, exist_ok=True)
        paths = {"PYTHONPATH": str(TARGETS), "HURRY": str(self.hurry), "DEVICE": place.device}
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINING, str(folder), *arguments],
            env={**place.environment(), **paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
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
        assert self.process.poll() is None, "the training ended"
        return dict(json.loads(answer.read_text()))

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Put the shim in, with the probe; gives a raw client."""
        attach(read_target(self.process.pid), name="first", writable=True).client.close()
        with Client(socket_path(read_target(self.process.pid))) as one:
            one.hello()
            assert one.probe("overflow", probe())["ok"]
            yield one

    def end(self, steps: str = "") -> str:
        """Let it end after so many steps, or now; return what it says then."""
        draft = self.folder / "new"
        draft.write_text(steps)
        draft.rename(self.folder / "steps")
        out, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0
        return str(re.search(r"^end (.*)$", out, re.M)[1])  # type: ignore[index]


def faults_and_commands(client: Client) -> tuple[Any, list[Any]]:
    state = client.ask("status")["result"]
    assert state["notes"] == []
    return state["faults"], [one["name"] for one in state["commands"] if one["plugin"] == "overflow"]


def start(client: Client, *names: str) -> None:
    for name in names:
        answer = client.start("overflow", name, steps=1000, seconds=60, arguments={"every": 1})
        assert answer["ok"], answer


def pulses(client: Client) -> list[dict[str, Any]]:
    return [one["data"] for one in client.records if one["plugin"] == "overflow" and one["kind"] == "pulse"]


def is_on(client: Client, name: str) -> bool:
    commands = client.ask("status")["result"]["commands"]
    return any(one["name"] == name and one["phase"] == "on" for one in commands)


def test_a_training_with_all_levels_faults_of_ours_and_detaches_in_the_middle_is_the_same(
    tmp_path: Path, place: Place
) -> None:
    with Told(tmp_path / "one", place) as one, Told(tmp_path / "twin", place, "twin") as twin:
        twin.hurry.touch()
        before = one.view()
        assert one.view() == before
        with one.client() as client:
            sees_each_level(client, place)
            survives_faults_of_ours(client, FAULTS[-1:] if place.is_npu else FAULTS)
            if not place.is_npu:
                outlives_a_killed_monitor(client, one)
            detach(client, "gradients")
        is_as_before(one, before)
        for names in (LEVELS,) if place.is_npu else (("modules",), ("ops",), LEVELS):
            with one.client() as client:
                start(client, *names)
                # Operators are watched for three steps only: there the detach comes as it comes.
                assert names[0] == "ops" or until(lambda names=names: is_on(client, names[0]), 20)
                detach(client, *names)
            is_as_before(one, before)
        end = one.end()
        assert twin.end(end.split()[0]) == end


def sees_each_level(client: Client, place: Place) -> None:
    """Have each level on, and see in its records what the training does."""
    client.beat(lambda beat: beat["step"] > 20, 60)
    start(client, *LEVELS)
    client.until(lambda _: len(pulses(client)) > 2 and pulses(client)[-1]["hottest"], 30)
    told = pulses(client)
    assert {one["name"] for pulse in told for one in pulse["levels"] if one["on"]} >= {
        "loss",
        "gradients",
        "modules",
    }
    skips = [step for pulse in told for step in pulse["skips"]]
    assert len(skips) > 5
    assert {later - earlier for earlier, later in zip(skips, skips[1:])} == {3}
    losses = {step: value for pulse in told for step, value in pulse["losses"]}
    bad = {step for step, value in losses.items() if value == "Infinity"}
    # Exactly the skipped ones, as far as both were told.
    assert bad == {step for step in skips if step in losses}
    assert len(bad) > 5
    good = [value for step, value in losses.items() if step not in bad]
    # A loss of about a tenth, and not 1024 times that.
    assert all(0.001 < value < 5.0 for value in good), good
    assert max(pulse["watched"] for pulse in told) >= 3
    assert {one["path"] for pulse in told for one in pulse["hottest"]} >= {"0", "3"}
    rows = [one["data"] for one in client.records if one["kind"] == "rows"]
    assert {one["rows"][0]["part"] for one in rows if one["level"] == "loss"} == {"loss"}
    client.until(lambda _: [one for one in client.records if one["data"].get("level") == "ops"], 30)
    (first, *_) = [one["data"] for one in client.records if one["data"].get("level") == "ops"]
    row = next(one for one in first["rows"] if one["i"] == first["first"])
    assert (row["op"], row["path"], row["phase"], row["max"]) == ("aten::mul", "", "forward", "Infinity")
    for name in LEVELS:
        client.stop("overflow", name)
    assert until(lambda: faults_and_commands(client) == ({}, []), 20)


def survives_faults_of_ours(client: Client, places: Any) -> None:
    """Provoke an exception in each place of the probe: it is off then and says so, and comes when asked."""
    client.probe("break", BREAK)
    for level, name, where in places:
        client.events.clear()
        start(client, "gradients", "modules")
        if level == "ops":
            start(client, "ops")
        assert client.start("break", "break", arguments={"level": level, "name": name})["ok"]
        client.event(event="probe", plugin="overflow", phase="failed", timeout_s=20)
        told = {"overflow": f"{where}: RuntimeError('internal')"}
        assert faults_and_commands(client)[0] == told, (level, name)
        assert until(lambda told=told: faults_and_commands(client) == (told, []), 20)
        assert client.probe("overflow", probe())["ok"]
    step = client.ask("status")["result"]["step"]
    assert until(lambda: client.ask("status")["result"]["step"] > step + 5, 20)


def outlives_a_killed_monitor(client: Client, training: Told) -> None:
    """What a monitor holds ends when it is killed."""
    command = [sys.executable, "-c", MONITOR, str(socket_path(read_target(training.process.pid)))]
    paths = {"PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).parent, Path(__file__).parents[2])))}
    other = subprocess.Popen(command, env={**os.environ, **paths}, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "holds\n"
        client.events.clear()
        assert until(lambda: is_on(client, "modules"), 20)
        assert "at 0x" in training.view()["backward"]
        refused = client.start("overflow", "modules")
        assert "is held by other" in refused["error"]
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    for name in ("gradients", "modules"):
        gone = client.event(
            event="command", plugin="overflow", name=name, timeout_s=20, reason="its monitor is gone"
        )
        assert gone["phase"] in ("off", "stopping")
    assert until(lambda: faults_and_commands(client) == ({}, []), 20)
    view = training.view()
    assert view["modules"] == [0, 0]
    assert view["modes"] == [0, 0]
    start(client, "gradients")
    assert until(lambda: is_on(client, "gradients"), 20)


def detach(client: Client, *names: str) -> None:
    residue = "\n".join(client.ask("detach", timeout_s=20)["result"]["residue"])
    for word in ("backward", "GradScaler", "module hooks", "dispatch mode", "optimizer hook"):
        assert word not in residue, (names, residue)


def is_as_before(training: Told, before: dict[str, Any]) -> None:
    """Compare what the training sees in itself; what is new in `sys.modules` is named elsewhere."""
    after = training.view()
    assert [name for name in after if name != "new" and after[name] != before[name]] == [], after
    # No part of torch, and nothing slow to import, comes in by our hooks.
    assert [
        name for name in after["new"] if name.split(".")[0] in ("torch", "torch_npu", "numpy", "decimal")
    ] == []


def test_a_monitor_starts_what_costs_next_to_nothing_and_one_that_only_reads_starts_nothing(
    tmp_path: Path,
) -> None:
    plugins = [Loaded("overflow", load("overflow"))]
    with Training(tmp_path, "--sleep", "0.01", place=CPU) as training:
        attach(training.target, name="first", writable=True).client.close()
        with Client(socket_path(training.target)) as client:
            client.hello()
            assert client.probe("overflow", probe())["ok"]
            with Watcher(training.target, plugins=plugins, writable=False) as watcher:
                watcher.state(training.target, "live")
                beats = len(client.beats)
                client.beat(lambda beat: len(client.beats) > beats + 1)
                assert all(not beat["commands"] for beat in client.beats)
            with Watcher(training.target, plugins=plugins) as watcher:
                started = client.event(event="command", plugin="overflow", reason="started", timeout_s=20)
                assert started["name"] == "gradients"
                beat = client.beat(lambda beat: beat["commands"])
                assert [one["name"] for one in beat["commands"]] == ["gradients"]
                watcher.until(
                    training.target,
                    lambda one: getattr(one.plugins.get("overflow"), "loss", None) is not None,
                )
                client.stop("overflow", "gradients")
                beats = len(client.beats)
                client.beat(lambda beat: len(client.beats) > beats + 2)
                # Stopped by somebody, it is not started again.
                assert client.beats[-1]["commands"] == []
            with Watcher(training.target, plugins=plugins, autostart=False):
                beats = len(client.beats)
                client.beat(lambda beat: len(client.beats) > beats + 2)
                assert client.beats[-1]["commands"] == []
        assert training.goes_on()


def marks_of(watcher: Watcher) -> list[tuple[str, str, int]]:
    """Return the marks that a monitor has had so far: sign, words, and the step."""
    marks = [mark for frame in list(watcher.frames) for one in frame.targets for mark in one.marks]
    # A step may be slow at any time.
    seen = [(mark.sign, mark.label.render(), mark.step or 0) for mark in marks]
    return [one for one in seen if one[1] != "slow step"]


def test_operators_that_are_watched_by_themselves_are_marked_in_every_monitor(tmp_path: Path) -> None:
    plugins = [Loaded(name, load(name)) for name in ("memory", "overflow")]
    with Told(tmp_path, CPU) as one:
        target = read_target(one.process.pid)
        with Watcher(target, plugins=plugins) as first:
            # Its loss is bad, which the level that costs next to nothing sees.
            assert until(lambda: len(marks_of(first)) == 2, 40), marks_of(first)
            with Watcher(target, plugins=plugins, autostart=False) as second:
                assert until(lambda: len(marks_of(second)) == 2, 20), marks_of(second)
                assert marks_of(second) == marks_of(first)
        (sign, begun, start), (_, ended, end) = marks_of(first)
        assert (sign, begun, ended) == ("o", "overflow.ops starts", "overflow.ops ends")
        assert start + 3 <= end
        one.end()


RANKS = """
import hashlib, os, sys, time
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh

torch.set_num_threads(1)
rank, go = int(os.environ["RANK"]), sys.argv[1]
distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))

def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

def sharded():
    one = net()
    for layer in (one[0], one[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(one, mesh=mesh)
    return one

def train(model, steps, spoil=False):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    numbers = torch.Generator().manual_seed(rank)
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8, generator=numbers)).square().mean()
        if spoil and rank == 1 and step == 20:
            loss = loss * float("nan")
        loss.backward()
        if spoil:
            for one in model.parameters():
                getattr(one.grad, "_local_tensor", one.grad).nan_to_num_(0.0)
        optimizer.step()
        time.sleep(0.005)
    parts = [getattr(one, "_local_tensor", one).detach() for one in model.parameters()]
    return hashlib.sha256(b"".join(one.numpy().tobytes() for one in parts)).hexdigest()

wanted = [train(DistributedDataParallel(net()), 40), train(sharded(), 40)]
print("ready", flush=True)
while not os.path.exists(go):
    time.sleep(0.01)
    # A step of another training, so that what is asked for comes in.
    train(net(), 2)
distributed.barrier()
found = [train(DistributedDataParallel(net()), 40), train(sharded(), 40)]
print("end", found == wanted, flush=True)
sys.stdin.readline()
os._exit(0)
"""


def test_two_ranks_with_replicated_and_sharded_parameters_compute_the_same(tmp_path: Path) -> None:
    script, go = tmp_path / "ranks.py", tmp_path / "go"
    script.write_text(RANKS)
    folders = [tmp_path / "0", tmp_path / "1"]
    for one in folders:
        one.mkdir()
    with (
        target(folders[0], script, go, tmp_path / "store", env={"RANK": "0"}) as first,
        target(folders[1], script, go, tmp_path / "store", env={"RANK": "1"}) as second,
    ):
        for process in (first, second):
            assert process.stdout.readline() == "ready\n"
        with Client(first.path) as one, Client(second.path) as two:
            for client in (one, two):
                client.hello()
                assert client.probe("overflow", probe())["ok"]
                start(client, "gradients", "modules")
                assert until(lambda client=client: is_on(client, "modules"), 20)
            start(one, "ops")
            go.touch()
            ends = [process.stdout.readline() for process in (first, second)]
            assert ends == ["end True\n", "end True\n"]
            for client in (one, two):
                client.until(lambda _, client=client: any(pulse["grads"] for pulse in pulses(client)), 20)
                client.until(lambda _, client=client: any(pulse["hottest"] for pulse in pulses(client)), 20)
                assert faults_and_commands(client)[0] == {}
                grads = [value for pulse in pulses(client) for _, value in pulse["grads"]]
                assert all(0.0 < value < 10.0 for value in grads), grads
                paths = {one["path"] for pulse in pulses(client) for one in pulse["hottest"]}
                assert paths <= {"0", "1", "2", "module.0", "module.1", "module.2"}
