"""Who holds it, on real torch and this very thread: sites, their evidence, and that we hold nothing."""

from __future__ import annotations

import random
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.utils import _python_dispatch  # noqa: E402

from ascend_tui.shim import modes  # noqa: E402
from ascend_tui.shim.governor import Governor  # noqa: E402
from ascend_tui.shim.hooks import Switchboard  # noqa: E402
from ascend_tui.shim.probes import Probes  # noqa: E402
from ascend_tui.shim.steps import OptimizerHook, Steps  # noqa: E402

FOLDER = Path(__file__).parents[2] / "plugins" / "memory"
NAMES = ("probe_sites.py", "probe_history.py", "probe_storages.py", "probe_holders.py")
HERE = __file__


def space_of(name: str) -> dict[str, Any]:
    """Return the names of a part of the probe, as the shim has them."""
    names: dict[str, Any] = {"__name__": name}
    exec(compile((FOLDER / name).read_text(), name, "exec"), names)
    return names


@pytest.fixture(autouse=True)
def _nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let operators be watched though another test of this process may have compiled something for good."""
    monkeypatch.setattr(modes, "is_compile_in_use", lambda: False)


@pytest.fixture
def training() -> Iterator[Training]:
    one = Training()
    yield one
    one.end()
    assert not _python_dispatch._get_current_dispatch_mode_stack()


class Training:
    """The parts that an agent joins, on this thread, with the probe in them and a model to train."""

    def __init__(self) -> None:
        self.cell: list[Any] = [None]
        self.records: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.steps = Steps(self.at_boundary, self.events.append)
        self.board = Switchboard(self.steps, Governor(), lambda *fault: self.probes.disable(*fault))
        self.device: Any = SimpleNamespace(kind="cpu", index=None)
        self.probes = Probes(self.steps, self.board, lambda: self.device, self.emit, self.events.append)
        self.hook = OptimizerHook(self.cell)
        assert self.hook.put_in_if_empty()
        self.cell[0] = self.steps.on_optimizer
        source = f"NAMES, FOLDER = {NAMES!r}, {str(FOLDER)!r}\n" + LOADER
        self.probes.load("memory", source, 10)
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def at_boundary(self) -> None:
        self.probes.at_boundary()
        self.board.at_boundary(0)

    def emit(self, plugin: str, kind: str, data: Any, key: Any = None) -> None:
        if kind == "holders":
            self.records.append(data)

    def forward(self) -> Any:
        return self.net(torch.ones(4, 8))

    def backward(self, loss: Any) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def step(self, keep: Callable[[Any, Any], object] = lambda out, loss: None) -> None:
        out = self.forward()
        loss = out.square().mean()
        self.backward(loss)
        keep(out, loss)

    def start(self, steps: int = 10) -> None:
        self.probes.start("memory", "holders", {}, steps, 30, {"name": "test"}, None, False)

    def look(self, keep: Callable[[Any, Any], object], steps: int = 10) -> dict[str, Any]:
        """Run the command over its steps; return the last record."""
        self.step(keep)
        self.start(steps)
        for _ in range(steps + 2):
            self.step(keep)
        self.probes.tick(time.monotonic())
        assert not self.probes.faults()
        return self.records[-1]

    def end(self) -> None:
        self.probes.unload("memory")
        self.step()
        self.cell[0] = None
        assert self.board.take_out_mode()
        assert self.hook.take_out()

    def parameters(self) -> bytes:
        return b"".join(one.detach().numpy().tobytes() for one in self.net.parameters())


LOADER = """
def setup(api):
    for name in NAMES:
        space = {"__name__": name}
        exec(compile(open(FOLDER + "/" + name).read(), name, "exec"), space)
        space["setup"](api)
"""

kept_losses: list[Any] = []


def test_kept_losses_are_found_at_their_line_with_their_graph_and_their_list(training: Training) -> None:
    kept_losses.clear()
    record = training.look(lambda out, loss: kept_losses.append(loss))
    assert record["phase"] == "done"
    assert record["how"] == "weak references"
    (site,) = record["sites"]
    lines = Path(HERE).read_text().splitlines()
    assert (site["file"], site["function"]) == (HERE, "step")
    assert "loss = out.square().mean()" in lines[site["line"] - 1]
    # One float a step, from the steps before the last one.
    assert site["bytes_per_step"] == 4
    assert site["live_count"] == 9
    assert site["age_steps"] == 9
    assert site["cause"] == "graph"
    assert site["held_by"] == f"a list of {len(kept_losses)}: kept_losses"
    assert any("step" in one for one in site["stack"])
    kept_losses.clear()


def test_losses_that_keep_their_whole_graph_name_the_lines_of_the_forward_too(training: Training) -> None:
    kept: list[Any] = []

    def keep(out: Any, loss: Any) -> None:
        kept.append(training.forward().square().mean())

    record = training.look(keep)
    causes = {site["function"]: site["cause"] for site in record["sites"]}
    assert causes["forward"] == causes["keep"] == "graph"
    forward = next(site for site in record["sites"] if site["function"] == "forward")
    assert forward["held_by"].startswith("the graph of ")
    # What a forward makes for backward: the rows, a linear layer and its ReLU, and the result.
    assert forward["bytes_per_step"] >= 4 * (4 * 8 + 4 * 16 + 4 * 4)


class Callback:
    """Keeps the predictions of each batch."""

    def __init__(self) -> None:
        self.predictions: list[Any] = []

    def on_batch_end(self, out: Any) -> None:
        """Keep a copy without the graph."""
        self.predictions.append(out.detach().clone())


callback = Callback()


def test_what_a_callback_keeps_is_the_callbacks(training: Training) -> None:
    record = training.look(lambda out, loss: callback.on_batch_end(out))
    (site,) = record["sites"]
    assert (site["function"], site["cause"]) == ("on_batch_end", "callback")
    assert site["held_by"].endswith(": Callback.predictions")
    assert site["bytes_per_step"] == 4 * 4 * 4
    callback.predictions.clear()


def test_views_count_as_what_they_keep_alive(training: Training) -> None:
    kept: list[Any] = []
    (site,) = training.look(lambda out, loss: kept.append(out.detach()[:1]))["sites"]
    assert (site["function"], site["bytes_per_step"]) == ("forward", 4 * 4 * 4)
    assert site["held_by"].startswith("a list of ")


@pytest.mark.parametrize("length", [1, 3, 5])
def test_what_stops_growing_is_no_holder(training: Training, length: int) -> None:
    last: deque[Any] = deque(maxlen=length)
    assert training.look(lambda out, loss: last.append(loss.detach()))["sites"] == []


def test_what_grows_in_every_third_step_is_found_in_more_steps(training: Training) -> None:
    kept: list[Any] = []

    def keep(out: Any, loss: Any) -> None:
        if training.steps.step % 3 == 0:
            kept.append(out.detach().clone())

    (site,) = training.look(keep, steps=10)["sites"]
    assert site["bytes_per_step"] == pytest.approx(64 / 3, rel=0.5)


def test_nothing_of_the_training_lives_longer_for_us(training: Training) -> None:
    kept: list[Any] = []
    refs: list[Any] = []

    def keep(out: Any, loss: Any) -> None:
        kept.append(out)
        refs.append(weakref.ref(out))
        refs.append(weakref.ref(out.untyped_storage()))

    assert training.look(keep)["sites"]
    assert all(ref() is not None for ref in refs)
    kept.clear()
    assert [ref() for ref in refs] == [None] * len(refs)
    # And while it runs.
    training.start()
    for _ in range(5):
        training.step(keep)
    del refs[:-4]
    kept.clear()
    assert [ref() for ref in refs] == [None] * len(refs)


def test_our_own_growth_is_bounded_and_said(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    storages = storages_of(training)
    monkeypatch.setitem(type(storages).take.__globals__, "MOST_TRACKED", 20)
    record = training.look(lambda out, loss: kept.extend(torch.ones(2) for _ in range(10)))
    assert "left out" in record["why"]
    training.start()
    for _ in range(6):
        training.step(lambda out, loss: kept.extend(torch.ones(2) for _ in range(10)))
        assert len(storages.table) <= 20


def storages_of(training: Training) -> Any:
    (hook, *_) = [one for one in training.probes.loaded["memory"].hooks if one.kind == "op"]
    return hook.after.__self__


def test_the_numbers_are_the_same_to_the_last_bit() -> None:
    found = []
    for armed in (False, True):
        training = Training()
        for at in range(20):
            if armed and at in (2, 14):
                training.start(5)
            training.step()
            training.probes.tick(time.monotonic())
        found.append(training.parameters())
        training.end()
    assert found[0] == found[1]


def test_a_fault_of_ours_switches_us_off_and_nothing_else() -> None:
    found = []
    for broken in (False, True):
        training = Training()
        if broken:
            storages_of(training).take = lambda *_: 1 / 0
            training.start()
        for _ in range(10):
            training.step()
        training.probes.tick(time.monotonic())
        assert ("memory" in training.probes.faults()) is broken
        assert not _python_dispatch._get_current_dispatch_mode_stack()
        found.append(training.parameters())
        training.end()
    assert found[0] == found[1]


def test_a_detach_in_the_middle_leaves_nothing(training: Training) -> None:
    storages = storages_of(training)
    training.start()
    for _ in range(4):
        training.step()
    assert storages.table
    training.probes.unload("memory")
    training.step()
    assert not storages.table
    assert not _python_dispatch._get_current_dispatch_mode_stack()


def test_a_training_that_stands_still_gets_a_reason(training: Training) -> None:
    training.start(10)
    training.probes.stop("memory", "holders", "test")
    assert training.records[-1]["phase"] == "refused"
    assert training.records[-1]["why"] == "too few steps ended in time: 0, and 4 are needed"


@pytest.mark.parametrize(
    ("counts", "grows"),
    [
        ([1, 2, 3, 4, 5, 6], True),
        ([5, 1, 6, 2, 7, 3], True),
        ([1, 1, 1, 1, 1, 1], False),
        ([1, 2, 3, 3, 3, 3, 3, 3, 3], False),
        ([3, 0, 3, 0, 3, 0, 3, 0], False),
        ([6, 5, 4, 3, 2, 1], False),
    ],
)
def test_growth_is_more_in_each_third(counts: list[int], grows: bool) -> None:
    size, count = space_of("probe_holders.py")["growth"]([(100 * one, one) for one in counts])
    assert (size > 0) == (count > 0) == grows


class Memory:
    """A mock of a device's allocator: whatever else the simulated NPU can do, it takes no history over."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any]] = []
        self.on = False
        self.traces = [1]
        self.kind, self.index, self.torch_npu = "npu", 0, SimpleNamespace(_C=self)
        self.module = SimpleNamespace(memory=self)

    def _record_memory_history(self, enabled: Any, context: Any, stacks: str, max_entries: int) -> None:
        assert (stacks, max_entries) == ("python", 1)
        self.calls.append((enabled, context))
        self.on = enabled is not None

    def _npu_isHistoryEnabled(self) -> bool:
        return self.on

    def _npu_memorySnapshot(self, pool: object) -> dict[str, Any]:
        return {"segments": [], "device_traces": [[{}] * count for count in self.traces]}


def history_of(memory: Memory) -> Any:
    return space_of("probe_history.py")["History"](memory, space_of("probe_sites.py")["Places"]())


def test_the_history_is_switched_in_two_calls_on_either_way() -> None:
    memory = Memory()
    history = history_of(memory)
    assert history.begin() is None
    history.end()
    history.end()
    assert memory.calls == [("state", None), ("state", "state"), ("state", None), (None, None)]


def test_a_history_of_the_trainings_own_is_never_touched() -> None:
    memory = Memory()
    memory.on = True
    history = history_of(memory)
    assert "itself" in history.begin()
    history.end()
    assert memory.calls == []


@pytest.mark.parametrize(("on", "traces"), [(True, [4000]), (False, [1])])
def test_a_history_that_the_training_takes_over_is_left_to_it(on: bool, traces: list[int]) -> None:
    memory = Memory()
    history = history_of(memory)
    history.begin()
    memory.on, memory.traces = on, traces
    history.look(5)
    assert history.lost
    history.end()
    assert memory.calls == [("state", None), ("state", "state")]


def test_places_know_whose_line_it_is() -> None:
    places = space_of("probe_sites.py")["Places"]()
    library = (str(Path(torch.__file__).parents[1] / "transformers" / "trainer.py"), 5, "train")
    torchs = (str(Path(torch.__file__).parent / "nn" / "modules" / "linear.py"), 7, "forward")
    pythons = (str(Path(random.__file__)), 8, "shuffle")
    mine = ("/home/me/train.py", 9, "step")
    assert places.choose([torchs, pythons, library, mine]) == mine
    assert places.choose([torchs, pythons, library]) == library
    assert places.choose([torchs, pythons]) == torchs
    assert places.choose([])[0] == ""


def test_segments_add_up_however_small_they_are_drawn() -> None:
    names = space_of("probe_segments.py")
    dice = random.Random(5)
    segments = [segment(dice, blocks) for blocks in (1, 2, 3, 40, 900, *[dice.randrange(1, 60)] * 60)]
    found = names["summed"](segments)
    assert found["count"] == 65
    assert found["reserved_bytes"] == sum(one["total_size"] for one in segments)
    parts = found["active_bytes"] + found["releasable_bytes"] + found["inactive_split_bytes"]
    assert parts == found["reserved_bytes"]
    assert found["pinned_bytes"] <= found["inactive_split_bytes"]
    free = [block["size"] for one in segments for block in one["blocks"] if block["state"] == "inactive"]
    assert found["largest_free_bytes"] == max(free)
    assert len(found["shown"]) == 48
    assert sum(len(one["blocks"]) for one in found["shown"]) <= 600
    for one in found["shown"]:
        assert sum(size for size, _ in one["blocks"]) == one["total_bytes"]
        assert {state for _, state in one["blocks"]} <= {"active", "pending", "free"}


def segment(dice: random.Random, count: int) -> dict[str, Any]:
    states = ("active_allocated", "active_pending_free", "inactive")
    blocks = [{"size": 512 * dice.randrange(1, 4000), "state": dice.choice(states)} for _ in range(count)]
    active = sum(one["size"] for one in blocks if one["state"] != "inactive")
    total = sum(one["size"] for one in blocks)
    return {"total_size": total, "active_size": active, "stream": 0, "device": 0, "blocks": blocks}


def test_the_parts_are_python_3_8_and_import_the_standard_library_only() -> None:
    for name in (*NAMES, "probe_segments.py"):
        text = (FOLDER / name).read_text()
        compile(text, name, "exec")
        imported = {line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))}
        assert imported <= sys.stdlib_module_names, imported
