"""Workers, pinned memory and the marks on the curve, of a real training; and that nothing of it stays."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import living
import pytest
from ascend_tui_plugins.memory.collector import MemoryCollector
from client import Client
from trainings import CPU, Place, Training, Watcher, descriptors, kill_group, needs_ptrace, needs_torch, until

from ascend_tui.attach import attach
from ascend_tui.controls import Outcome
from ascend_tui.frame import TargetFrame, json_lines
from ascend_tui.plugin import Loaded, Record, load
from ascend_tui.session import Session
from ascend_tui.target import TargetId, socket_path

pytestmark = [needs_ptrace, needs_torch]

MEMORY = Path(__file__).parents[2] / "plugins" / "memory"
MIB = 1 << 20
records: list[Record] = []


class Keeping(MemoryCollector):
    """The collector of the product, which also keeps what it was given."""

    def on_record(self, target: TargetId, record: Record) -> None:
        records.append(record)
        super().on_record(target, record)


class Living(Training):
    """living.py as a child process."""

    def __init__(self, folder: Path, place: Place, *arguments: str) -> None:
        self.folder, self.place = folder, place
        folder.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, living.__file__, str(folder), "--device", place.device, *arguments],
            env=place.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self.process.pid

    def same_bits(self) -> None:
        """Assert that it computed what a run computes in which nothing happens."""
        seen = self.hashes()
        assert len(seen) > 3
        quick = ("--steps", str(max(seen)), "--sleep", "0", "--workers", "0")
        calm = Living(self.folder.with_name("calm"), self.place, *quick)
        try:
            assert calm.process.wait(100) == 0
        finally:
            kill_group(calm.process)
        known = calm.hashes()
        assert [step for step, digest in seen.items() if known[step] != digest] == []


@contextmanager
def watched(training: Living) -> Iterator[Watcher]:
    """Watch a training with the memory plugin."""
    plugin = dataclasses.replace(load("memory"), collector=f"{__name__}:Keeping")
    del records[:]
    with Watcher(training.target, plugins=[Loaded("memory", plugin)]) as watcher:
        watcher.until(training.target, lambda one: one.status.state == "live" and bool(records))
        yield watcher


def marks(watcher: Watcher) -> list[tuple[str, str]]:
    """Return sign and label of all marks so far."""
    return [
        (mark.sign, mark.label.render())
        for frame in watcher.frames
        for one in frame.targets
        for mark in one.marks
    ]


def opened(training: Living) -> list[str]:
    """Return the files a training has open, without what its workers hand batches over by."""
    passed = ("/dev/shm/torch_", "socket:")
    return [one for one in descriptors(training.pid) if not one.startswith(passed)]


def hosts() -> list[dict[str, Any]]:
    """Return the records of the host so far."""
    return [dict(one.data) for one in records if one.kind == "host"]


def slow_step_is_told() -> bool:
    told = [one.data["seconds"] for one in list(records) if one.data.get("label") == "slow step"]
    return any(1.4 < seconds < 3.5 for seconds in told)


def moments_are_marked(training: Living, watcher: Watcher) -> None:
    """Have the training do what it does beside its steps, and see the marks of it."""
    aim = training.target
    # What a training does beside its steps.
    assert until(lambda: [one.data for one in records if one.kind == "phase"] == [{"training": True}], 20)
    (training.folder / "evaluate").touch()
    assert until(lambda: ("e", "training again") in marks(watcher), 20), marks(watcher)
    # A step that a busy machine draws out may have a mark of its own among them.
    told = [mark for mark in marks(watcher) if mark != ("o", "slow step")]
    assert told == [("e", "evaluation"), ("e", "training again")]
    for _ in range(3):
        # A save that a busy machine draws out over seconds is no burst: the next one is.
        (training.folder / "save").touch()
        if until(lambda: ("c", "checkpoint") in marks(watcher), 15):
            break
    assert ("c", "checkpoint") in marks(watcher), marks(watcher)
    for _ in range(3):
        # A save may have been a slow step already, and two are not told within ten seconds.
        (training.folder / "slow").touch()
        if until(slow_step_is_told, 12):
            break
    assert slow_step_is_told(), marks(watcher)
    assert until(lambda: ("o", "slow step") in marks(watcher), 20), marks(watcher)
    watcher.session.mark(aim.id)
    assert until(lambda: ("m", "mark") in marks(watcher), 20)
    for start, words in ((True, "memory.reuse starts"), (False, "memory.reuse ends")):
        assert watcher.ask("command", aim.id, "memory", "reuse", start).ok
        assert until(lambda words=words: ("r", words) in marks(watcher), 20), marks(watcher)
    lines = [line["marks"] for frame in watcher.frames for line in json_lines(frame)]
    assert [one["label"] for some in lines for one in some] == [label for _, label in marks(watcher)]


def test_workers_and_moments_are_seen_and_nothing_stays(tmp_path: Path, place: Place) -> None:
    with Living(tmp_path / "run", place) as training:
        before = training.own_view()
        open_before = opened(training)
        with watched(training) as watcher:
            aim = training.target
            assert until(lambda: len(hosts()) > 2, 20)
            first = hosts()[0]
            assert first["workers_count"] == 2
            assert {one["name"] for one in first["workers"]} <= {"python", "python3", "pt_data_worker"}
            assert len({one["pid"] for one in first["workers"]} - {training.pid}) == 2
            grown = lambda: hosts()[-1]["workers_rss_bytes"] - first["workers_rss_bytes"]  # noqa: E731
            assert until(lambda: grown() > 16 * MIB, 30), hosts()[-1]
            seen = watcher.until(aim, lambda one: len(one.plugins["memory"].workers) == 2)
            assert seen.plugins["memory"].current.workers_rss_bytes > 16 * MIB
            assert hosts()[-1]["available_bytes"] > MIB
            assert hosts()[-1].get("pinned_bytes") == (living.PINNED_BYTES if place.is_npu else None)
            if not place.is_npu:
                # Nothing of it is the device's, and it takes a while.
                moments_are_marked(training, watcher)
            removed: list[Outcome] = []
            watcher.session.remove(aim.id, removed.append)
            assert until(lambda: removed, 20)
            assert removed[0].ok
        after = training.own_view()
        # What CPython cannot take out: the sentinel of forks.
        after["modules"].remove("_ascend_tui_shim.shim.shell")
        assert after == before
        assert opened(training) == open_before
        assert training.outside_view()["sockets"] == 0
        assert training.goes_on()
        training.same_bits()


def test_a_monitor_that_comes_later_is_told_the_marks_of_before(tmp_path: Path) -> None:
    with Living(tmp_path / "run", CPU) as training:
        with watched(training) as watcher:
            assert until(lambda: any(one.kind == "phase" for one in records), 20)
            (training.folder / "evaluate").touch()
            assert until(lambda: ("e", "training again") in marks(watcher), 20)
            step = next(one.step for one in records if one.kind == "mark")
        plugin = Loaded("memory", load("memory"))
        frames: list[Any] = []
        session = Session([plugin], tick_s=0.1)
        session.add(training.target)
        session.start(frames.append)
        try:
            late = lambda: [one for frame in frames for some in frame.targets for one in some.marks]  # noqa: E731
            assert until(lambda: len(late()) == 2, 20)
            assert late()[0].step == step
            assert isinstance(frames[-1].targets[0], TargetFrame)
        finally:
            session.stop()


FAULTS = {
    "host": ("probe_host.py", "Host.read"),
    "writes": ("probe_host.py", "Checkpoints.look"),
    "looks": ("probe_phases.py", "Roots.learn"),
    "steps": ("probe_phases.py", "Moments.at_step"),
}


def test_a_fault_of_ours_ends_the_probe_and_not_the_training(tmp_path: Path) -> None:
    with Living(tmp_path / "run", CPU) as training:
        attach(training.target, name="test", writable=True).client.close()
        with Client(socket_path(training.target)) as client:
            client.hello()
            for name, (file, method) in FAULTS.items():
                fault = f"\n\ndef fails(*_):\n    raise KeyError('ours')\n\n\n{method} = fails\n"
                assert client.probe(name, (MEMORY / file).read_text() + fault)["ok"]
                client.event(event="probe", plugin=name, phase="failed")
            assert set(client.beat(lambda beat: len(beat["faults"]) == len(FAULTS))["faults"]) == set(FAULTS)
            assert training.goes_on()
            client.ask("detach")
        assert training.goes_on()
        training.same_bits()


def test_looking_at_the_stack_keeps_no_tensor_alive() -> None:
    code = """
import gc, sys, threading, time, weakref
gc.disable()
import torch
gc.enable()
space = {"__name__": "probe"}
exec(compile(open(sys.argv[1]).read(), "probe_phases.py", "exec"), space)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))
made = []
net[1].register_forward_pre_hook(lambda module, given: made.append(weakref.ref(given[0])))
me, code, seen, stop = threading.get_ident(), torch.nn.Module.__call__.__code__, set(), []

def look():
    while not stop:
        found = space["outermost"](me, code)
        seen.update(id(one) for one in found)
        found.clear()

thread = threading.Thread(target=look)
sys.setswitchinterval(1e-6)
thread.start()
kept, calls, end = 0, 0, time.monotonic() + 3
with torch.no_grad():
    while time.monotonic() < end or (not seen and time.monotonic() < end + 20):
        given = torch.ones(2, 4)
        watched = weakref.ref(given)
        result = net(given)
        del given, result
        kept += watched() is not None
        kept += made.pop()() is not None
        calls += 1
stop.append(True)
thread.join()
print(kept, id(net) in seen, calls > 100)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(MEMORY / "probe_phases.py")],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout.split() == ["0", "True", "True"], done.stderr


def test_no_device_is_started_by_asking(npu_code: Any) -> None:
    done = npu_code(
        "import sys, torch, torch_npu, types\n"
        "space = {'__name__': 'probe'}\n"
        "exec(compile(open(sys.argv[1]).read(), 'probe_host.py', 'exec'), space)\n"
        "api = types.SimpleNamespace(device=types.SimpleNamespace(kind='npu'))\n"
        "host = space['Host'](api, space['Family']())\n"
        "print(host.read()['pinned_bytes'], torch.npu.is_initialized())\n"
    )
    assert done.stdout.split() == ["0", "False"], done.stderr


@pytest.fixture
def npu_code(simulator: Any, tmp_path: Path) -> Any:
    """Return a call that runs Python code on the simulated NPU."""

    def run(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, str(MEMORY / "probe_host.py")],
            env=simulator.environment(home=tmp_path),
            capture_output=True,
            text=True,
            timeout=100,
        )

    return run
