"""The whole shim inside real trainings in processes of their own: numbers unchanged, nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import client as raw
import pytest
from client import Client, target
from trainings import START_S, Place

pytest.importorskip("torch")

MEMORY = (Path(__file__).parents[2] / "plugins" / "memory" / "probe.py").read_text()
CHECK = """
def setup(api):
    torch_seen = []
    counts = {"modules": 0, "ops": 0, "before": 0}

    def module(module, inputs, output):
        counts["modules"] += 1
        return output * 0

    def op(func, args, kwargs, result):
        counts["ops"] += 1

    def before(*args):
        counts["before"] += 1
        return ()

    modules, ops = api.on_module(module, before), api.on_op(op, before)

    def start(arguments, steps, seconds):
        modules.arm(steps, seconds)
        if arguments.get("ops", True):
            ops.arm(steps, seconds)

    api.command("check", start, lambda: api.emit("counts", dict(counts)), hooks=(modules, ops))
    api.on_step(lambda step: None, every=True)
"""
LOOK = """
def setup(api):
    import gc, os, sys, threading

    def start(arguments, steps, seconds):
        torch = sys.modules["torch"]
        module, optim = sys.modules["torch.nn.modules.module"], sys.modules["torch.optim.optimizer"]
        return {
            "forward": len(module._global_forward_hooks) + len(module._global_forward_pre_hooks),
            "optimizer": len(optim._global_optimizer_post_hooks),
            "threads": sorted(one.name for one in threading.enumerate()),
            "fds": len(os.listdir("/proc/self/fd")),
        }

    api.command("look", start)
"""


def counts(client: Client) -> dict[str, int]:
    return [one["data"] for one in client.records if one["kind"] == "counts"][-1]


def end_of(process: Any, timeout_s: float = 60) -> str:
    process.hurry.touch()
    out, error = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, error
    # torch_npu warns of what its device cannot do, and at times says how its queue is.
    assert re.sub(r"^\[?[IW]\d+ .*\n", "", error, flags=re.M) == ""
    return re.search(r"^end (.*)$", out, re.M)[1]  # type: ignore[index]


@contextmanager
def undisturbed(tmp_path: Path, script: str, *arguments: object, place: Place) -> Iterator[Callable[[], str]]:
    """Run a target without the shim at the same time; gives a call for how it ended."""
    with target(tmp_path, script, *arguments, boot=False, place=place) as process:
        yield lambda: end_of(process)


def test_gpt_is_bit_identical_with_everything_armed_on_and_off(tmp_path: Path, place: Place) -> None:
    """The product's first promise, on a run with dropout and forked workers."""
    gpt = ("--steps", 100, "--workers", 2, "--hash-every", 50)
    with (
        target(tmp_path, "gpt.py", *gpt, "--sleep", 0.1, place=place) as process,
        undisturbed(tmp_path, "gpt.py", *gpt, place=place) as wanted,
    ):
        with Client(process.path) as client:
            client.hello()
            for name, source in (("memory", MEMORY), ("check", CHECK), ("look", LOOK)):
                assert client.probe(name, source)["ok"]
            client.beat(lambda beat: beat["step"] > 0, START_S)
            beat = client.beats[-1]
            assert beat["source"] == "optimizer"
            assert beat["hooked"]
            for _ in range(3):
                client.events.clear()
                assert client.start("check", "check", steps=5)["result"]["phase"] == "arming"
                assert (
                    client.event(event="command", name="check", phase="off", timeout_s=20)["reason"]
                    == "lease over"
                )
            assert counts(client)["modules"] > 15 * 10
            assert counts(client)["ops"] > 15 * 50
            client.start("check", "check", steps=1000)
            client.beat(lambda beat: [one for one in beat["commands"] if one["phase"] == "on"])
            client.stop("check", "check")
            state = client.beat(lambda beat: not beat["commands"])
            look = client.start("look", "look")["result"]["result"]
            assert look["forward"] == 0
            assert look["optimizer"] == 1
            assert state["faults"] == {}
            assert state["notes"] == []
            assert state["cost"]["share"] is not None
            assert {one["kind"] for one in client.records} >= {"time", "step", "counts"}
        assert end_of(process) == wanted()


RAISING = """
def setup(api):
    place = "PLACE"

    def broken(*args):
        raise ValueError(place)

    def good(*args):
        return None

    api.on_step(broken if place == "on_step" else good, every=True)
    hooks = (
        api.on_module(broken if place == "module" else good, broken if place == "before" else None),
        api.on_op(broken if place == "op" else good),
    )
    if place == "sample":
        api.sample(20, broken)

    def start(arguments, steps, seconds):
        if place == "command":
            broken()
        for one in hooks:
            one.arm(steps, seconds)

    api.command("go", start, broken if place == "stop" else good, hooks=hooks)
    api.on_close(broken)
    if place == "setup":
        broken()
"""
PLACES = ("on_step", "module", "before", "op", "sample", "command", "stop", "setup")
BREAK = """
def setup(api):
    import sys
    agent = sys.modules["_ascend_tui_shim.shim.shell"].agent

    def broken(*args, **kwargs):
        raise RuntimeError("internal")

    def start(arguments, steps, seconds):
        setattr(getattr(agent, arguments["part"]), arguments["name"], broken)

    api.command("break", start)
"""


def test_probes_and_parts_of_ours_that_raise_leave_the_numbers_alone(tmp_path: Path, place: Place) -> None:
    tiny = ("--steps", 400)
    with (
        target(tmp_path, "tiny.py", *tiny, "--sleep", 0.1, place=place) as process,
        undisturbed(tmp_path, "tiny.py", *tiny, place=place) as wanted,
    ):
        with Client(process.path) as client:
            client.hello()
            client.beat(lambda beat: beat["step"] > 0, START_S)
            for place in PLACES:
                name = "p_" + place
                client.probe(name, RAISING.replace("PLACE", place))
                client.start(name, "go", steps=3)
                event = client.event(event="probe", plugin=name, phase="failed")
                assert place in event["reason"], event
            faults = client.ask("status")["result"]["faults"]
            assert set(faults) == {"p_" + place for place in PLACES}
            # And now the switchboard itself.
            client.probe("check", CHECK)
            client.probe("break", BREAK)
            client.start("check", "check", steps=100000)
            client.beat(lambda beat: [one for one in beat["commands"] if one["phase"] == "on"])
            client.start("break", "break", arguments={"part": "switchboard", "name": "_call"})
            # In the middle of a step the hooks are not gone yet when that is told.
            over = ("off", "stopping")
            end = client.event(event="command", name="check", phase=over, timeout_s=20)
            assert "after a fault of the shim" in end["reason"]
            client.start("break", "break", arguments={"part": "switchboard", "name": "at_boundary"})
            assert any(
                "step hook off" in one for one in client.beat(lambda beat: len(beat["notes"]) > 1)["notes"]
            )
            client.events.clear()
            refused = client.start("check", "check", steps=5, seconds=5)
            assert refused["ok"]
            assert client.event(event="command", name="check", phase=over)
            assert client.ask("status")["ok"]
        assert end_of(process) == wanted()


def test_ctrl_c_is_the_trainings(tmp_path: Path, place: Place) -> None:
    with target(tmp_path, "tiny.py", "--steps", 0, place=place) as process:
        with Client(process.path) as client:
            client.hello()
            client.probe("check", CHECK)
            client.beat(lambda beat: beat["step"] > 0, START_S)
            client.start("check", "check", steps=100000)
            client.beat(lambda beat: beat["commands"])
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=20)
        assert error.rstrip().endswith("KeyboardInterrupt")
        assert process.returncode in (1, -signal.SIGINT, 130)


def test_conv_with_in_place_relu(tmp_path: Path, place: Place) -> None:
    steps = ("--steps", 60)
    with (
        target(tmp_path, "conv.py", *steps, "--sleep", 0.1, place=place) as process,
        undisturbed(tmp_path, "conv.py", *steps, place=place) as wanted,
    ):
        with Client(process.path) as client:
            client.hello()
            client.probe("check", CHECK)
            client.beat(lambda beat: beat["step"] > 0, START_S)
            client.start("check", "check", steps=5)
            client.event(event="command", name="check", phase="off", timeout_s=20)
            assert counts(client)["modules"] == 5 * 13
        assert end_of(process) == wanted()


def test_steps_of_a_gan_and_a_scaler_are_iterations(tmp_path: Path, place: Place) -> None:
    for name in ("gan", "scaler"):
        (tmp_path / name).mkdir()
    arguments = ("--steps", 400, "--sleep", 0.02)
    with (
        target(tmp_path / "gan", "gan.py", *arguments, place=place) as gan,
        target(tmp_path / "scaler", "scaler.py", *arguments, place=place) as scaler,
        Client(gan.path) as of_gan,
        Client(scaler.path) as of_scaler,
    ):
        of_gan.hello()
        of_scaler.hello()
        for one in (of_gan, of_scaler):
            first = one.beat(lambda beat: beat["step"] > 5, START_S)
            last = one.beat(lambda beat, first=first: beat["step"] > first["step"] + 50, 30)
            # Twenty milliseconds and more for an iteration; counted by optimizers it would be half.
            assert (last["step"] - first["step"]) / (last["mono"] - first["mono"]) < 50
        ratio = (last["step"] - first["step"]) / (last["skipped"] - first["skipped"])
        assert ratio == pytest.approx(5, rel=0.15)
        end_of(gan)
        end_of(scaler)


def test_inference_steps_while_armed_and_a_lease_without_steps_ends(tmp_path: Path, place: Place) -> None:
    with (
        target(tmp_path, "inference.py", "--seconds", 12, place=place) as process,
        Client(process.path) as client,
    ):
        client.hello()
        client.probe("check", CHECK)
        client.probe("look", LOOK)
        client.beat(lambda beat: beat["torch"], START_S)
        client.start("check", "check", steps=5, seconds=1.0)
        end = client.event(event="command", name="check", phase="off")
        assert end["reason"] == "lease over before a step ended"
        client.events.clear()
        client.start("check", "check", steps=5, seconds=20)
        assert (
            client.event(event="command", name="check", phase="off", timeout_s=20)["reason"] == "lease over"
        )
        assert counts(client)["modules"] >= 5 * 3
        assert client.beat()["source"] == "module"
        assert client.start("look", "look")["result"]["result"]["forward"] == 0
        assert process.poll() is None


WITHOUT_TORCH = """
import sys, time
time.sleep(2.5)
print("end", [name for name in sys.modules if name.partition(".")[0] in ("torch", "numpy")])
"""


def test_process_without_torch(tmp_path: Path) -> None:
    script = tmp_path / "idle.py"
    script.write_text(WITHOUT_TORCH)
    with target(tmp_path, script) as process:
        with Client(process.path) as client:
            assert client.hello()["torch"] == {}
            client.probe("memory", MEMORY)
            client.until(lambda _: any(one["kind"] == "time" for one in client.records))
            assert client.beat()["hooked"] is False
        assert end_of(process) == "[]"


STUCK = """
import ctypes, gc, os, sys, time
gc.disable()  # the imports make no garbage
import torch
device = os.environ["DEVICE"]
layer = torch.nn.Linear(4, 4).to(device)
one = torch.optim.SGD(layer.parameters(), lr=0.1)
gc.freeze()
gc.unfreeze()
gc.enable()
wait = ctypes.CDLL(None).sleep
import torch.optim.optimizer
sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(
    lambda *args: wait(3600) if one.stuck else None
)
one.stuck = False
while not os.path.exists(sys.argv[1]):
    layer(torch.ones(1, 4, device=device)).sum().backward()
    one.step()
    time.sleep(0.05)
one.stuck = True
layer(torch.ones(1, 4, device=device)).sum().backward()
one.step()
"""


def test_main_blocked_in_native_code_inside_a_step_leaves_what_detach_says(
    tmp_path: Path, place: Place
) -> None:
    script = tmp_path / "stuck.py"
    script.write_text(STUCK)
    go = tmp_path / "go"
    with target(tmp_path, script, go, place=place) as process, Client(process.path) as client:
        client.hello()
        # Another global hook is there: ours needs a moment without a step, and finds it.
        client.probe("check", CHECK)
        client.beat(lambda beat: beat["step"] > 5, START_S)
        client.start("check", "check", steps=10, seconds=60)
        while client.ask("status")["result"]["commands"][0]["phase"] != "on":
            time.sleep(0.01)
        go.write_text("")
        client.beat(lambda beat: (beat["since_step_s"] or 0) > 1.5, 30)
        residue = client.ask("detach", timeout_s=20)["result"]["residue"]
        assert any("optimizer hook that does nothing" in one for one in residue)
        assert any("dispatch mode that passes through" in one for one in residue)
        assert process.poll() is None


FORKING = """
import gc, multiprocessing, os, sys, time
gc.disable()  # the imports make no garbage
import torch
torch.set_num_threads(1)
device = os.environ["DEVICE"]

def train(tell):
    hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
    modules = torch.nn.modules.module._global_forward_hooks
    stack = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    update = torch.amp.GradScaler.update.__module__
    links = ["/proc/self/fd/" + one for one in os.listdir("/proc/self/fd")]
    fds = [os.readlink(one) for one in links if os.path.islink(one)]
    fds = [one for one in fds if "socket" in one or "statm" in one]
    import threading
    layer = torch.nn.Linear(4, 4)
    # torch_npu asks the device before it takes the foreach way, and a forked child has none.
    one = torch.optim.SGD(layer.parameters(), lr=0.1, foreach=False)
    for _ in range(50):
        loss = layer(torch.ones(1, 4)).sum()
        if device == "cpu":
            loss.backward()
        else:
            # With an accelerator autograd has threads, and torch refuses a backward in a forked child.
            layer.weight.grad, layer.bias.grad = torch.ones(4, 4), torch.ones(4)
        one.step()
    tell.send((len(hooks), len(modules), len(stack), update, fds, threading.active_count()))
    if os.environ.get("STAY"):
        time.sleep(60)

if __name__ == "__main__":
    # The child trains on the CPU: a device that was started before a fork cannot be used after it.
    layer = torch.nn.Linear(4, 4).to(device)
    one = torch.optim.SGD(layer.parameters(), lr=0.1)
    gc.freeze()
    gc.unfreeze()
    gc.enable()
    here, there = multiprocessing.get_context("fork").Pipe()
    end = time.monotonic() + 60
    answers = []
    while time.monotonic() < end and not os.path.exists(os.environ["GO"]):
        layer(torch.ones(1, 4, device=device)).sum().backward()
        one.step()
        time.sleep(0.005)
    layer(torch.ones(1, 4, device=device)).sum().backward()
    child = multiprocessing.get_context("fork").Process(target=train, args=(there,))
    child.start()
    print("child", child.pid, here.recv(), flush=True)
    if os.environ.get("STAY"):
        os._exit(0)
    child.join()
    print("end", child.exitcode)
"""


@pytest.mark.parametrize("stays", [False, True], ids=["joined", "orphan"])
def test_forked_child_has_nothing_of_ours_and_trains(tmp_path: Path, stays: bool, place: Place) -> None:
    script = tmp_path / "forking.py"
    script.write_text(FORKING)
    go = tmp_path / "go"
    env = {"GO": str(go), "STAY": "1" if stays else ""}
    with target(tmp_path, script, env=env, place=place) as process:
        with Client(process.path) as client:
            client.hello()
            client.probe("check", CHECK)
            client.beat(lambda beat: beat["step"] > 5, START_S)
            client.start("check", "check", steps=100000)
            client.beat(lambda beat: [one for one in beat["commands"] if one["phase"] == "on"])
            go.write_text("")
            line = process.stdout.readline()
            while not line.startswith("child"):
                line = process.stdout.readline()
            _, pid, answer = line.split(" ", 2)
            # Optimizer hooks, module hooks, modes, GradScaler, descriptors, threads of the child.
            # (The pipe of multiprocessing is a pair of sockets.)
            hooks, modules, stack, update, fds, threads = eval(answer)
            assert (hooks, modules, stack, update, threads) == (0, 0, 0, "torch.amp.grad_scaler", 1)
            assert len([one for one in fds if "socket" in one]) <= 2
            assert not [one for one in fds if "statm" in one]
        try:
            if stays:
                process.wait(20)
                assert os.path.exists(f"/proc/{pid}")
                # The child holds no listener: nobody hangs in a connection to a dead training.
                with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
                    Client(process.path, timeout_s=0)
            else:
                # Not communicate(): what readline() has taken from the pipe already is lost to it.
                rest = process.stdout.read()
                assert (process.wait(30), rest.strip().endswith("end 0")) == (0, True), rest
        finally:
            if stays:
                os.kill(int(pid), signal.SIGKILL)


CYCLES = """
import gc, json, os, sys, threading, time
gc.disable()  # the imports make no garbage
import torch
import torch.optim.optimizer
boots = open(sys.argv[1]).read()
path = sys.argv[2]
torch.set_num_threads(1)
device = os.environ["DEVICE"]
layer = torch.nn.Linear(4, 4).to(device)
one = torch.optim.SGD(layer.parameters(), lr=0.1)
gc.freeze()
gc.unfreeze()
gc.enable()
optim, module = sys.modules["torch.optim.optimizer"], torch.nn.modules.module
stop = False

def look():
    gc.collect()
    return {
        "threads": sorted(one.name for one in threading.enumerate()),
        "fds": len(os.listdir("/proc/self/fd")),
        "modules": sorted(sys.modules),
        "forward": [len(module._global_forward_hooks), len(module._global_forward_pre_hooks)],
        "optimizer": len(optim._global_optimizer_post_hooks),
        "update": id(vars(torch.amp.GradScaler)["update"]),
        "stack": len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()),
        "flags": [torch.utils._python_dispatch._is_in_torch_dispatch_mode],
        "interval": sys.getswitchinterval(),
        "main": sorted(vars(sys.modules["__main__"])),
        "objects": len(gc.get_objects()),
    }

def step(count):
    for _ in range(count):
        layer(torch.ones(1, 4, device=device)).sum().backward()
        one.step()
        time.sleep(0.001)

step(5)
print(json.dumps(look()), flush=True)
for line in sys.stdin:
    if line.strip() == "attach":
        exec(boots)
        print("{}", flush=True)
    elif line.strip() == "look":
        print(json.dumps(look()), flush=True)
    else:
        step(int(line))
        print("{}", flush=True)
"""


def test_fifty_attaches_leave_what_one_leaves_and_what_it_says(tmp_path: Path, place: Place) -> None:
    import json

    path, text, script = tmp_path / "s" / "x.sock", tmp_path / "shim.txt", tmp_path / "cycles.py"
    text.write_text(raw.text(path))
    script.write_text(CYCLES)
    process = subprocess.Popen(
        [sys.executable, str(script), str(text), str(path)],
        env={**place.environment(), "DEVICE": place.device},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def tell(line: str) -> dict[str, Any]:
        process.stdin.write(line + "\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        return json.loads(process.stdout.readline())  # type: ignore[union-attr]

    def cycle(check: bool) -> list[str]:
        tell("attach")
        with Client(path) as client:
            client.hello()
            client.probe("memory", MEMORY)
            client.probe("check", CHECK)
            if check:
                client.beat(lambda beat: beat["hooked"], 20)
                client.start("check", "check", steps=1000)
                tell("30")
            residue = client.ask("detach", timeout_s=20)["result"]["residue"]
            assert client.frame() is None or client.frame() is None
        return residue

    try:
        before = json.loads(process.stdout.readline())  # type: ignore[union-attr]
        residue = cycle(check=True)
        time.sleep(0.2)
        once = tell("look")
        for name in ("threads", "fds", "forward", "optimizer", "update", "stack", "flags", "interval"):
            assert once[name] == before[name], name
        assert set(once["main"]) - set(before["main"]) == {"line"}
        ours = [name for name in once["modules"] if name.startswith("_ascend_tui")]
        assert ours == ["_ascend_tui_shim.shim.shell"]
        assert any("_ascend_tui_shim.shim.shell" in one for one in residue)
        new = set(once["modules"]) - set(before["modules"]) - set(ours)
        said = [one for one in residue if "standard library" in one]
        named = set(re.findall(r"[\w.]+", said[0].partition(": ")[2])) if said else set()
        assert new == named
        assert any("fork callback" in one for one in residue)
        assert not any("optimizer hook" in one or "mode" in one or "GradScaler" in one for one in residue), (
            residue
        )
        for number in range(9 if place.is_npu else 49):
            last = cycle(check=number % 10 == 0)
        time.sleep(0.2)
        end = tell("look")
        for name in ("threads", "fds", "forward", "optimizer", "update", "stack", "modules", "main"):
            assert end[name] == once[name], name
        assert len(last) <= len(residue) + 1
        # A cycle that is not collected would leave thousands of objects each time.
        assert end["objects"] < once["objects"] + 2000
    finally:
        process.kill()
        process.communicate()
