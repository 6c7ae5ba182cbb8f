"""Detach leaves what it names, and nothing else: the target before and after, from inside and outside."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainings import Place, kill_group, needs_ptrace, needs_torch, until

from ascend_tui.attach import attach
from ascend_tui.connection import ShimClient
from ascend_tui.inject import memory
from ascend_tui.plugin import load_all, probe_text
from ascend_tui.target import Target, forget_socket, read_target, socket_path
from soak.leftovers import look

pytestmark = [needs_ptrace, needs_torch]

HEAP = 64 << 20
"""How glibc aligns the heap of a thread."""
SHELL = "_ascend_tui_shim.shim.shell"
# A training with everything in it that a probe can hook, and that tells of itself when it is asked.
TRAINING = """
import atexit, builtins, gc, json, os, signal, sys, threading, time, warnings
from pathlib import Path
gc.disable()  # the imports make no garbage
import torch
from torch.nn.modules import module
from torch.optim import optimizer as optimizers
from torch.overrides import _len_torch_function_stack
from torch.utils._python_dispatch import _len_torch_dispatch_stack

folder, device, parent = Path(sys.argv[1]), sys.argv[2], os.getppid()
if device != "cpu":
    torch.npu.set_compile_mode(jit_compile=False)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(device)
optimizer = torch.optim.AdamW(net.parameters())
gc.freeze()
gc.unfreeze()
gc.enable()
scaler = torch.amp.GradScaler("cpu") if device == "cpu" else None
signal.signal(signal.SIGUSR1, lambda *_: None)

def hooks_of(thing):
    named = {name: value for name, value in vars(thing).items() if "hook" in name and hasattr(value, "keys")}
    return {name: sorted(map(repr, value)) for name, value in named.items()}

def who(*things):
    return [repr(one) for one in things]

def view():
    return {
        "modules": sorted(sys.modules),
        "names in __main__": sorted(globals()),
        "builtins": sorted(vars(builtins)),
        "path": sys.path,
        "finders": [repr(one) for one in sys.meta_path],
        "environment": dict(os.environ),
        "threads": sorted(one.name for one in threading.enumerate()),
        "threads known by number": len(threading._active) + len(threading._limbo),
        "native threads": len(os.listdir("/proc/self/task")),
        "global optimizer hooks": hooks_of(optimizers),
        "hooks of the optimizer": hooks_of(optimizer),
        "global module hooks": hooks_of(module),
        "hooks of the modules": [hooks_of(one) for one in net.modules()],
        "attributes of the optimizers": sorted(vars(torch.optim.Optimizer)) + sorted(vars(torch.optim.AdamW)),
        "step": who(torch.optim.AdamW.step, torch.optim.Optimizer.step, optimizer.step),
        "update": who(torch.amp.GradScaler.update, torch.nn.Module.__call__, torch.Tensor.backward),
        "attributes of the scaler": sorted(vars(scaler)) if scaler else [],
        "modes": [_len_torch_dispatch_stack(), _len_torch_function_stack()],
        "warnings": who(*warnings.filters, warnings.showwarning),
        "tracing": who(sys.gettrace(), sys.getprofile(), threading._trace_hook, threading._profile_hook),
        "exceptions": who(sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook),
        "gc": [gc.isenabled(), gc.get_threshold(), len(gc.callbacks), gc.get_freeze_count()],
        "atexit": atexit._ncallbacks(),
        "signals": {str(one): repr(signal.getsignal(one)) for one in signal.valid_signals()},
        "signal mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
        "timer": signal.getitimer(signal.ITIMER_REAL),
        "switch interval": sys.getswitchinterval(),
        "recursion": sys.getrecursionlimit(),
        "folder": [os.getcwd(), os.umask(os.umask(0o22))],
        "torch": [torch.get_num_threads(), torch.is_grad_enabled(), torch.is_anomaly_enabled()],
        "names in torch": sorted(vars(torch)),
        "objects of ours": sum("ascend_tui" in str(type(one).__module__) for one in gc.get_objects()),
    }

while os.getppid() == parent:
    optimizer.zero_grad()
    loss = net(torch.ones(4, 8, device=device)).square().mean()
    if scaler:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
    if (folder / "question").exists():
        (folder / "question").unlink()
        gc.collect()
        (folder / "new").write_text(json.dumps(view()))
        (folder / "new").rename(folder / "answer")
    time.sleep(0.002)
"""
PROBE = """
def setup(api):
    def seen(*args):
        return None

    modules, ops = api.on_module(seen, seen), api.on_op(seen)

    def start(arguments, steps, seconds):
        modules.arm(steps, seconds)
        ops.arm(steps, seconds)

    api.command("all", start, None, hooks=(modules, ops))
    api.on_step(seen, every=True)
    api.sample(10, lambda: {"one": 1})
"""


class Training:
    """The training above."""

    def __init__(self, folder: Path, place: Place) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINING, str(folder), place.device],
            env=place.environment(),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self.process.pid

    @property
    def target(self) -> Target:
        """What /proc says about it now."""
        return read_target(self.pid)

    def inside(self) -> dict[str, Any]:
        """Return what it sees in itself, at the end of one of its steps."""
        answer = self.folder / "answer"
        answer.unlink(missing_ok=True)
        (self.folder / "question").touch()
        assert until(lambda: answer.exists() or self.process.poll() is not None, 90), "no answer"
        assert self.process.poll() is None
        return dict(json.loads(answer.read_text()))

    def files(self) -> set[str]:
        """Return the files that are mapped into it."""
        return {one.path for one in memory.read_maps(self.pid) if one.path.startswith("/")}

    def outside(self) -> dict[str, Any]:
        """Return what the kernel shows: exactly what must be the same, and the mappings by kind."""
        view, maps = look(self.target), memory.read_maps(self.pid)
        return {
            "threads": view.threads,
            "descriptors": dict(view.descriptors),
            "sockets of ours": view.sockets,
            "path of the socket": view.path,
            "areas": dict(view.areas),
            "limits": [resource.prlimit(self.pid, one) for one in range(10)],
            "signals": signals(self.pid),
            "mappings": kinds_of(maps),
        }


def signals(pid: int) -> list[str]:
    """Return which signals are blocked, ignored and caught."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return [line for line in lines if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]


def kinds_of(maps: list[memory.Mapping]) -> dict[str, int]:
    """Count the anonymous mappings by what they are; "other" is in MiB, and begun ones do not count."""
    pairs = list(zip(maps, maps[1:]))
    found = {"code": 0, "stacks": 0, "heaps": 0, "other": 0}
    for one, after in pairs:
        if after.path or "w" not in after.perms:
            continue
        if "x" in after.perms:
            found["code"] += 1
        elif after.start % HEAP == 0:
            found["heaps"] += 1
        elif one.perms == "---p" and one.end == after.start and not one.path:
            found["stacks"] += 1
        else:
            found["other"] += after.end - after.start >> 20
    return found


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Return the names whose values differ."""
    return {name for name in before if before[name] != after[name]}


def use_and_detach(client: ShimClient) -> list[str]:
    """Load every probe there is, hook whatever can be hooked, and detach in the middle of it."""
    for loaded in load_all():
        assert loaded.plugin is not None, loaded.failed
        source = probe_text(loaded.plugin)
        if source is not None:
            client.request("probe", plugin=loaded.name, source=source, order=loaded.plugin.order)
    client.request("probe", plugin="all", source=PROBE)
    lease = {"steps": 100_000, "seconds": 60.0}
    client.request("command", plugin="all", name="all", lease=lease)
    assert until(lambda: client.request("status")["step"] > 20, 30)
    residue = client.request("detach")["residue"]
    client.close()
    return list(residue)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory, place: Place) -> Iterator[Training]:
    running = Training(tmp_path_factory.mktemp("training"), place)
    # Of a process that had its number and was killed one may be there still.
    forget_socket(socket_path(running.target))
    try:
        running.inside()
        yield running
    finally:
        kill_group(running.process)


def settled(training: Training, before: dict[str, Any]) -> dict[str, Any]:
    """Return what the kernel shows once the shim's thread has ended."""
    names = ("threads", "descriptors", "sockets of ours", "path of the socket")
    until(lambda: not changed(before, training.outside()) & set(names), 5)
    return training.outside()


def test_after_a_detach_is_left_what_it_named_and_nothing_else(training: Training) -> None:
    within, outside, files = training.inside(), training.outside(), training.files()
    assert training.inside() == within, "the training itself changes"
    assert SHELL not in within["modules"]
    said: list[list[str]] = []
    # Each way in twice: what stays, stays once.
    for method in ("thread", "pending", "thread", "pending"):
        said.append(use_and_detach(attach(training.target, name="test", writable=True, method=method).client))
        shown = settled(training, outside)
        assert changed(outside, shown) <= {"mappings"}, (outside, shown)
        after, residue = training.inside(), "\n".join(said[-1])
        assert changed(within, after) - {"atexit"} == {"modules"}, {
            name: (within[name], after[name]) for name in changed(within, after)
        }
        assert after["atexit"] - within["atexit"] == residue.count("exit function")
        assert [name for name in within["modules"] if name not in after["modules"]] == []
        new = set(after["modules"]) - set(within["modules"])
        assert {name for name in new if not re.search(rf"\b{re.escape(name)}\b", residue)} == set()
        assert SHELL in new
        # A module of the standard library may be a file with code.
        for path in training.files() - files:
            assert Path(path).name.partition(".")[0].lstrip("_") in {name.lstrip("_") for name in new}, path
        more = {kind: shown["mappings"][kind] - count for kind, count in outside["mappings"].items()}
        # One page holds what calls from C into Python need, whoever needs it.
        assert more["code"] == int("thunk" in residue or "page with code" in residue)
        assert more["other"] <= 4
        if more["stacks"] > 0 or more["heaps"] > 0:
            assert "C library" in residue
        assert max(more["stacks"], more["heaps"]) <= 4
        if len(said) == 2:
            twice = shown
    # Whether the main thread had to be asked for something is a matter of the moment.
    assert {line for line in said[-1] if line not in said[1] and "thunk" not in line} == set()
    # Two more were seen between the second and the fourth time, and one more after thirty (python -m soak).
    assert shown["mappings"]["other"] <= twice["mappings"]["other"] + 2
    assert all(shown["mappings"][kind] <= twice["mappings"][kind] for kind in ("stacks", "heaps"))


def test_the_comparison_would_see_a_shim_that_stays(training: Training) -> None:
    within, outside = training.inside(), training.outside()
    client = attach(training.target, name="test", writable=True).client
    seen = {"modules", "threads", "native threads", "global optimizer hooks", "objects of ours"}
    # The shim looks for torch once in a second.
    assert until(lambda: changed(within, training.inside()) >= seen), changed(within, training.inside())
    shown = changed(outside, training.outside())
    assert shown >= {"threads", "descriptors", "sockets of ours", "path of the socket", "areas"}
    client.request("detach")
    client.close()
    assert not changed(outside, settled(training, outside)) - {"mappings"}
    assert not changed(within, training.inside())
