"""A step captured by torch_npu.profiler in real trainings on the simulated NPU, and what is left of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ascend_tui_plugins.hotspots import decode, files
from ascend_tui_plugins.hotspots.captured import Captures

from ascend_tui.attach import attach
from ascend_tui.plugin import load, probe_text
from ascend_tui.target import read_target, socket_path
from tests.attach.client import Client
from tests.attach.trainings import kill_group, needs_ptrace, needs_torch, until
from tests.cann_sim.simulator import Simulator

pytestmark = [needs_ptrace, needs_torch]

# A training that holds a step open, begins a profiler of its own, and tells of itself, all when asked.
TRAINING = """
import atexit, gc, hashlib, json, logging, multiprocessing, os, sys, time
from pathlib import Path
import torch, torch_npu
from torch_npu.profiler import profiler_interface
from torch_npu.profiler._profiler_path_creator import ProfPathCreator

folder, parent = Path(sys.argv[1]), os.getppid()
torch.npu.set_compile_mode(jit_compile=False)
torch.set_num_threads(1)
torch.manual_seed(3)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to("npu:0")
optimizer = torch.optim.AdamW(net.parameters())
npu, shown = torch_npu.profiler, []

def shapes_of(space):
    return {name: repr(one) for name, one in vars(space).items() if not name.startswith("__")}

def view():
    return {
        "events": shapes_of(torch_npu.npu.Event),
        "interface": shapes_of(profiler_interface),
        "autograd": {name: repr(one) for name, one in vars(torch.autograd.profiler).items()
            if "prof" in name},
        "enabled": torch._C._autograd._profiler_enabled(),
        "paths": {name: repr(one) for name, one in vars(ProfPathCreator()).items()},
        "exits": atexit._ncallbacks(),
        "callbacks": len(gc.callbacks),
        "environment": dict(os.environ),
        "loggers": sorted(logging.root.manager.loggerDict),
        "start": multiprocessing.get_start_method(allow_none=True),
        "threads": sorted(
            Path(f"/proc/self/task/{one}/comm").read_text() for one in os.listdir("/proc/self/task")),
        "modules": sorted(one for one in sys.modules if one.startswith(("torch", "multiprocessing"))),
        "children": [
            one for task in Path("/proc/self/task").iterdir()
            for one in (task / "children").read_text().split()],
    }

def ask(name):
    path = folder / name
    text = path.read_text() if path.exists() else None
    if text is not None:
        path.unlink()
    return text

def is_held(step):
    # From the step on whose number stands there.
    try:
        if step < int((folder / "hold").read_text() or 0):
            return False
    except FileNotFoundError:
        return False
    (folder / "new").write_text(str(step))
    (folder / "new").rename(folder / "held")
    return True

def one_of_its_own(where):
    return npu.profile(
        activities=[npu.ProfilerActivity.CPU, npu.ProfilerActivity.NPU],
        on_trace_ready=npu.tensorboard_trace_handler(where, analyse_flag=False))

step, own, last = 0, None, None
while os.getppid() == parent:
    if last is None and (folder / "last").exists():
        last = int((folder / "last").read_text() or step)
    if last is not None and step >= last:
        break
    if "twin" in sys.argv and last is None:
        time.sleep(0.01)
        continue
    rows = torch.randn(4, 8).to("npu:0")
    optimizer.zero_grad()
    loss = net(rows).square().mean()
    where = ask("handler")
    if where is not None:
        shown.append(npu.tensorboard_trace_handler(where, analyse_flag=False))
    where = ask("own")
    if where is not None:
        own = one_of_its_own(where)
        own.start()
    loss.backward()
    while is_held(step) and os.getppid() == parent:
        time.sleep(0.005)
    optimizer.step()
    step += 1
    if own is not None and (folder / "over").exists():
        own.stop()
        own = None
        ask("over")
    if ask("question") is not None:
        (folder / "new").write_text(json.dumps(view()))
        (folder / "new").rename(folder / "answer")
    if "twin" not in sys.argv:
        time.sleep(0.01)
bits = b"".join(one.detach().cpu().numpy().tobytes() for one in net.parameters())
print("end", step, hashlib.sha256(bits).hexdigest(), flush=True)
"""
# A place of the probe raises from now on.
BREAK = """
ONCE = '''
def _start_profiler(*args):
    global _start_profiler
    _start_profiler = globals().pop("original")
    raise RuntimeError("internal")
'''

def setup(api):
    import sys
    agent = sys.modules["_ascend_tui_shim.shim.shell"].agent

    def broken(*args):
        raise RuntimeError("internal")

    def start(arguments, steps, seconds):
        capture = agent.probes.loaded["hotspots"].commands["capture"].start.__self__
        place = arguments["place"]
        if place in ("after", "rest"):
            setattr(capture.hook, place, broken)
        else:
            library = sys.modules["torch_npu.profiler.profiler_interface"]
            library.__dict__["original"] = library._start_profiler
            exec(ONCE, library.__dict__)

    api.command("break", start)
"""


class Told:
    """One of these trainings."""

    def __init__(self, folder: Path, simulator: Simulator, *words: str, **extra: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        with (folder / "out").open("xb") as out, (folder / "err").open("xb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-c", TRAINING, str(folder), *words],
                env={**simulator.environment(home=folder), **extra},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *_: object) -> None:
        kill_group(self.process)

    def tell(self, name: str, text: str = "") -> None:
        """Leave a request."""
        (self.folder / "draft").write_text(text)
        (self.folder / "draft").rename(self.folder / name)

    def took(self, name: str) -> bool:
        """Wait until a request was seen."""
        return until(lambda: not (self.folder / name).exists(), 30)

    def view(self) -> dict[str, Any]:
        """Return what it sees in itself."""
        answer = self.folder / "answer"
        answer.unlink(missing_ok=True)
        self.tell("question")
        assert until(lambda: answer.exists() or self.process.poll() is not None, 90), "no answer"
        assert self.process.poll() is None, (self.folder / "err").read_text()
        return dict(json.loads(answer.read_text()))

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Put the shim in, with the probe; gives a raw client."""
        attach(read_target(self.process.pid), name="first", writable=True).client.close()
        with Client(socket_path(read_target(self.process.pid))) as one:
            one.hello()
            text = probe_text(load("hotspots"))
            assert text is not None
            assert one.probe("hotspots", text)["ok"]
            one.beat(lambda beat: beat["step"] > 3, 60)
            yield one
            if socket_path(read_target(self.process.pid)).exists():
                one.ask("detach", timeout_s=20)

    def end(self, steps: str = "") -> str:
        """Let it end; return all that it printed."""
        self.tell("last", steps)
        assert self.process.wait(100) == 0
        return (self.folder / "out").read_text()


def capture(client: Client, folder: Path, **more: Any) -> Any:
    return client.start(
        "hotspots", "capture", **{"steps": 3, "seconds": 60, "arguments": {"folder": str(folder)}, **more}
    )


def told(client: Client, *states: str, after: int = 0) -> dict[str, Any]:
    """Wait for a record of a capture in one of these states."""

    def found() -> list[dict[str, Any]]:
        return [
            one["data"]
            for one in client.records
            if one["kind"] == "captured" and one["data"]["state"] in states and one["seq"] > after
        ]

    client.until(lambda _: bool(found()), 100)
    return found()[-1]


def last_seq(client: Client) -> int:
    return max((one["seq"] for one in client.records), default=0)


def same(before: dict[str, Any], after: dict[str, Any]) -> None:
    # The shim has one exit function, from its first record on and for the life of the process.
    assert after["exits"] - before["exits"] in (0, 1)
    before = {**before, "exits": after["exits"]}
    assert {name: one for name, one in after.items() if one != before[name]} == {}


def same_again(before: dict[str, Any], training: Told) -> None:
    # A thread of the shim that has answered its last request is listed until it has ended.
    until(lambda: training.view()["threads"] == before["threads"], 10)
    same(before, training.view())


@pytest.fixture(scope="module")
def training(simulator: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """One training for the cases below; the last one compares its numbers with an undisturbed one's."""
    with Told(tmp_path_factory.mktemp("training"), simulator) as one:
        yield one


def test_a_step_is_captured_and_analysed_and_nothing_is_left(training: Told, tmp_path: Path) -> None:
    before = training.view()
    with training.client() as client:
        inside = training.view()
        for _ in range(2):
            seq = last_seq(client)
            assert capture(client, tmp_path)["result"]["result"] == {"folder": str(tmp_path)}
            recorded = told(client, "recorded", after=seq)
            again = capture(client, tmp_path)
            assert not again["ok"]
            assert "not done yet" in again["error"]
            done = told(client, "analysed", "failed", after=seq)
            assert done["state"] == "analysed", done
            assert (done["folder"], done["step"]) == (recorded["folder"], recorded["step"])
            assert 0 < done["pause_us"] < 5e6
            assert done["step_us"] > 0
            assert done["cpu_s"] > 0
            assert {"operator_details.csv", "trace_view.json"} <= set(done["files"])
            # What the library has to say of the simulator.
            assert "CANN" in done["why"]
        same(inside, training.view())
        assert client.ask("status")["result"]["faults"] == {}
        table = files.read(Path(done["folder"]) / "ASCEND_PROFILER_OUTPUT" / "operator_details.csv")
        names = {row.name: row.calls for row in table.rows}
        # Exactly one step; what begins in it and ends behind it, as the optimizer's call does, is no row.
        assert names["aten::addmm"] == 2
        assert names["Optimizer.zero_grad#AdamW.zero_grad"] == 1
        assert "Optimizer.step#AdamW.step" not in names
        assert "torch's record" not in "\n".join(client.ask("detach", timeout_s=20)["result"]["residue"])
    same_again(before, training)


def test_the_monitor_reads_what_was_captured(training: Told, tmp_path: Path) -> None:
    with training.client() as client:
        seq = last_seq(client)
        capture(client, tmp_path)
        data = told(client, "analysed", "failed", after=seq)
    captures = Captures()
    captures.take(decode.captured(data, 0), training.process.pid)
    assert until(lambda: captures.poll(), 30)
    found = captures.present
    assert found is not None
    assert (found.state, found.clock) == ("read", "host")
    assert "aten::addmm" in {row.name for row in captures.rows}


def test_what_cannot_be_is_refused(training: Told, tmp_path: Path) -> None:
    with training.client() as client:
        # On a file nothing can be made, whoever asks.
        (tmp_path / "file").touch()
        for folder, why in (
            (tmp_path / "file" / "x", "cannot be written"),
            ("somewhere", "absolute path"),
            (tmp_path / "a=b", "letters, digits"),
        ):
            answer = capture(client, Path(folder))
            assert not answer["ok"]
            assert why in answer["error"]
        training.tell("own", str(tmp_path / "own"))
        assert training.took("own")
        answer = capture(client, tmp_path)
        assert "own profiler is on" in answer["error"]
        training.tell("over")
        assert training.took("over")
        assert client.ask("status")["result"]["faults"] == {}


def test_a_folder_that_the_training_has_named_for_later_stays_its_own(training: Told, tmp_path: Path) -> None:
    with training.client() as client:
        training.tell("handler", str(tmp_path / "theirs"))
        assert training.took("handler")
        seq = last_seq(client)
        capture(client, tmp_path / "ours")
        assert told(client, "analysed", "failed", after=seq)["state"] == "analysed"
        assert training.view()["paths"]["_dir_path"] == repr(str(tmp_path / "theirs"))


@contextmanager
def held(training: Told) -> Iterator[int]:
    """Hold a step open; gives its number."""
    (training.folder / "held").unlink(missing_ok=True)
    training.tell("hold")
    assert until((training.folder / "held").exists, 30)
    yield int((training.folder / "held").read_text())
    (training.folder / "hold").unlink()


@contextmanager
def captured_step(training: Told, client: Client, folder: Path) -> Iterator[None]:
    """Hold a step open that is being captured."""
    with held(training) as step:
        assert capture(client, folder)["ok"]
        training.tell("hold", str(step + 1))
        assert until(lambda: (training.folder / "held").read_text() == str(step + 1), 30)
        assert list(folder.glob("*_ascend_pt"))
        yield


def test_a_profiler_of_the_training_that_begins_meanwhile_has_all_of_it(
    training: Told, tmp_path: Path
) -> None:
    with training.client() as client:
        seq = last_seq(client)
        with held(training):
            assert capture(client, tmp_path / "ours")["ok"]
            # In the next step, with ours on.
            training.tell("own", str(tmp_path / "theirs"))
        assert training.took("own")
        done = told(client, "failed", after=seq)
        assert "another profiler began" in done["why"]
        training.tell("over")
        assert training.took("over")
        assert client.ask("status")["result"]["faults"] == {}
        (theirs,) = (tmp_path / "theirs").glob("*_ascend_pt")
        assert {"FRAMEWORK", "profiler_info.json", "profiler_metadata.json"} <= {
            one.name for one in theirs.iterdir()
        }


@pytest.mark.parametrize("place", ["library", "after", "rest"])
def test_a_fault_ends_the_capture_and_not_the_training(training: Told, tmp_path: Path, place: str) -> None:
    before = training.view()
    with training.client() as client:
        client.probe("break", BREAK)
        seq = last_seq(client)
        assert client.start("break", "break", arguments={"place": place})["ok"]
        assert capture(client, tmp_path)["ok"]
        if place == "library":
            why = told(client, "failed", after=seq)["why"]
            assert "does not begin: internal" in why
            assert client.ask("status")["result"]["faults"] == {}
        else:
            client.event(event="probe", plugin="hotspots", phase="failed", timeout_s=30)
        step = client.ask("status")["result"]["step"]
        assert until(lambda: client.ask("status")["result"]["step"] > step + 3, 30)
        view = training.view()
        assert not view["enabled"]
        assert view["events"] == before["events"]
        assert view["interface"] == before["interface"]
        client.ask("detach", timeout_s=20)
    same_again(before, training)


def test_a_detach_within_the_step_leaves_nothing_on(training: Told, tmp_path: Path) -> None:
    before = training.view()
    with training.client() as client, captured_step(training, client, tmp_path):
        # It is held in Python's own code: the main thread ends the record between two bytecodes.
        residue = "\n".join(client.ask("detach", timeout_s=20)["result"]["residue"])
        assert "record of operators" not in residue
    same_again(before, training)


def test_a_detach_ends_the_analysis(training: Told, tmp_path: Path) -> None:
    before = training.view()
    with training.client() as client:
        seq = last_seq(client)
        capture(client, tmp_path)
        told(client, "recorded", after=seq)
        assert len(training.view()["children"]) == 1
        client.ask("detach", timeout_s=20)
    same_again(before, training)


def test_after_all_this_its_numbers_are_those_of_an_undisturbed_one(
    training: Told, simulator: Simulator, tmp_path: Path
) -> None:
    end = training.end()
    with Told(tmp_path / "twin", simulator, "twin") as twin:
        assert twin.end(end.split()[-2]) == end[end.index("end ") :]
    # Nothing is said on our behalf: it is all of the two profilers of its own.
    said = [
        line.partition("profiler.py: ")[2].split()[0] for line in end.splitlines() if "profiler.py" in line
    ]
    assert said == ["Please", "Please", "Incorrect"] * 2, end


def test_where_msprof_was_asked_for_it_is_refused(simulator: Simulator, tmp_path: Path) -> None:
    with Told(tmp_path / "training", simulator, PROFILING_MODE="dynamic") as one, one.client() as client:
        answer = capture(client, tmp_path)
        assert not answer["ok"]
        assert "PROFILING_MODE is set for msprof" in answer["error"]
        assert "msprof" in answer["error"]
