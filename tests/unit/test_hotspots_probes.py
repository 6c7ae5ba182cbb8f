"""The probes of the hotspots plugin on real torch, and their sums on events with known times."""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from ascend_tui_plugins.hotspots import PLUGIN
from ascend_tui_plugins.hotspots.probe import ranks_here, steps_told
from ascend_tui_plugins.hotspots.probe_events import MOST_ROWS, Sums
from ascend_tui_plugins.hotspots.probe_kernels import Record, Stretch, _gaps
from probed import Shim

from ascend_tui.plugin import probe_text

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.profiler import profile  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402


class Event:
    """One event as torch gives it, at so many microseconds after the first."""

    def __init__(
        self, kind: str, name: str, at: float, handle: int = 0, sequence: int = -1, **more: Any
    ) -> None:
        self._told = {"kind": kind, "name": name, "handle": handle, "sequence_nr": sequence, **more}
        self.at = at

    def __getattr__(self, name: str) -> Any:
        return lambda: self._told.get(name, [])

    def start_us(self) -> float:
        return self.at

    def cpu_elapsed_us(self, other: Event) -> float:
        return other.at - self.at


def events(*ops: tuple[str, float, float], first: str = "__start_profile", **more: Any) -> list[Any]:
    """Return the pushes and pops of operators, each (name, begin, end) in microseconds."""
    found = [Event("mark", first, 0.0)]
    moments = []
    for handle, (name, began, ended) in enumerate(ops, 1):
        moments.append((began, 1, -ended, Event("push", name, began, handle, **more)))
        moments.append((ended, 0, -began, Event("pop", "", ended, handle)))
    return found + [one[3] for one in sorted(moments, key=lambda one: one[:3])]


def sums(*ops: tuple[str, float, float], marks: Any = (), end: float = 1000.0) -> Sums:
    return Sums([events(*ops)], [(int(at * 1e3), path) for at, path in marks], 0, int(end * 1e3))


def test_the_time_of_what_is_called_is_not_the_callers() -> None:
    one = sums(("aten::linear", 100, 400), ("aten::addmm", 150, 350), ("aten::copy_", 200, 250))
    linear, addmm, copy = (one.sums[name] for name in ("aten::linear", "aten::addmm", "aten::copy_"))
    assert (linear.self_us, linear.total_us, linear.calls) == (100, 300, 1)
    assert (addmm.self_us, addmm.total_us) == (150, 200)
    assert (copy.self_us, copy.total_us) == (50, 50)
    assert one.top_us == 300
    rows, count, self_us = one.rows()
    assert [row["name"] for row in rows] == ["aten::addmm", "aten::linear", "aten::copy_"]
    assert (count, self_us) == (3, 300)


def test_one_that_is_dispatched_again_to_itself_is_one_call() -> None:
    one = sums(("aten::sum", 0, 100), ("aten::sum", 20, 70))
    assert (one.sums["aten::sum"].calls, one.sums["aten::sum"].total_us) == (1, 100)
    assert one.sums["aten::sum"].self_us == 100
    assert (one.sums["aten::sum"].most, one.sums["aten::sum"].low) == (100, 100)


def test_one_that_calls_itself_further_down_is_two_calls_and_not_twice_in_the_total() -> None:
    one = sums(("aten::a", 0, 100), ("aten::b", 10, 90), ("aten::a", 20, 70))
    assert (one.sums["aten::a"].calls, one.sums["aten::a"].total_us) == (2, 100)
    assert one.sums["aten::a"].self_us == 70


def test_what_is_open_at_the_end_ends_with_the_step_and_a_lone_end_is_nothing() -> None:
    found = events(("aten::add", 100, 200))
    found.insert(1, Event("pop", "", 50, 99))
    found.append(Event("push", "Optimizer.step#SGD.step", 600, 7))
    one = Sums([found], [], 0, 1_000_000)
    assert one.sums["Optimizer.step#SGD.step"].total_us == 400
    assert set(one.sums) == {"aten::add", "Optimizer.step#SGD.step"}


def test_the_modules_of_forward_and_backward_are_named() -> None:
    push = [
        Event("mark", "__start_profile", 0.0),
        Event("push", "aten::addmm", 110, 1, 5),
        Event("pop", "", 150, 1),
        Event("push", "autograd::engine::evaluate_function: AddmmBackward0", 300, 2, 5),
        Event("push", "aten::mm", 310, 3),
        Event("pop", "", 360, 3),
        Event("pop", "", 400, 2),
    ]
    marks = [(100_000, "blocks.0.fc"), (200_000, None)]
    one = Sums([push], marks, 0, 1_000_000)
    assert one.sums["aten::addmm"].places == {("blocks.0.fc", "forward"): [1, 40]}
    assert one.sums["aten::mm"].places == {("blocks.0.fc", "backward"): [1, 50]}


def test_a_step_divides_into_its_phases() -> None:
    one = sums(
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 200),
        ("Optimizer.zero_grad#AdamW.zero_grad", 210, 220),
        ("aten::addmm", 260, 290),
        ("autograd::engine::evaluate_function: A", 400, 450),
        ("autograd::engine::evaluate_function: B", 460, 600),
        ("Optimizer.step#AdamW.step", 700, 1000),
        marks=[(250, ""), (350, None)],
    )
    assert one.phases() == {"data": 200, "optimizer": 310, "forward": 100, "backward": 200, "other": 190}
    assert one.data_spans() == [(0, 200)]


def test_without_modules_the_forward_is_what_comes_before_the_backward() -> None:
    one = sums(
        ("aten::addmm", 100, 150),
        ("aten::mean", 160, 200),
        ("autograd::engine::evaluate_function: A", 300, 500),
        ("aten::norm", 600, 650),
    )
    assert one.phases() == {"forward": 100, "backward": 200, "other": 700}


def test_the_backward_of_another_thread_counts_where_it_ran() -> None:
    main = events(("aten::addmm", 100, 200))
    worker = [
        Event("mark", "", 300.0),
        Event("push", "autograd::engine::evaluate_function: A", 310, 1),
        Event("pop", "", 510, 1),
    ]
    one = Sums([worker, main], [(100_000, ""), (200_000, None)], 0, 1_000_000)
    assert one.phases() == {"forward": 100, "backward": 200, "other": 700}
    # The host was free meanwhile.
    assert one.top_us == 100


def test_a_recomputed_forward_is_part_of_the_backward() -> None:
    one = sums(("autograd::engine::evaluate_function: C", 100, 300), marks=[(120, ""), (180, None)])
    assert one.phases() == {"backward": 200, "other": 800}


def test_a_record_stays_small_enough_to_be_kept() -> None:
    count, path = 400, "model.decoder.layers.{}.self_attention.core_attention.query_key_value"
    found = [Event("mark", "__start_profile", 0.0)]
    marks = []
    for number in range(count):
        marks += [(number * 100_000, path.format(number)), (number * 100_000 + 99_000, None)]
        for use in range(8):
            at, handle = number * 100 + use * 10 + 1, number * 8 + use + 1
            shapes = [[use, 4096, 4096]] * 4
            name = f"custom_operators::a_name_of_an_operator_{number % 200}"
            found += [Event("push", name, at, handle, shapes=shapes), Event("pop", "", at + 5, handle)]
    one = Sums([found], marks, 0, count * 100_000, shapes=True)
    rows, number, self_us = one.rows()
    assert (number, self_us) == (200, count * 8 * 5)
    assert len(rows) == MOST_ROWS
    assert (len(rows[0]["places"]), len(rows[0]["uses"])) == (2, 5)
    # Beside it there may be as many kernels.
    assert len(json.dumps(rows)) < 100_000


@pytest.mark.parametrize(
    ("said", "ranks"),
    [
        ({}, 1),
        ({"LOCAL_WORLD_SIZE": "8", "WORLD_SIZE": "64"}, 8),
        ({"WORLD_SIZE": "64"}, 16),
        ({"WORLD_SIZE": "x"}, 1),
    ],
)
def test_what_may_be_taken_is_shared_by_the_ranks_of_a_machine(
    said: dict[str, str], ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert ranks_here() == ranks


def test_percentiles_and_slow_steps() -> None:
    steps = [(step, 0.1, 50.0 + step) for step in range(1, 100)] + [(100, 0.9, 151.0)]
    told = steps_told(steps)
    assert (told["n"], told["p50"], told["p99"]) == (100, 0.1, 0.9)
    assert told["slow"] == [[100, 151.0, 0.9]]
    assert steps_told([]) == {"n": 0}


class Hotspots(Shim):
    """A shim with this plugin's probe."""

    def __init__(self) -> None:
        super().__init__()
        self.probes.load("hotspots", probe_text(PLUGIN) or "", 30)
        self.loaded = self.probes.loaded["hotspots"]
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        self.optimizer = torch.optim.AdamW(self.net.parameters())

    def step(self, wait: bool = False) -> None:
        self.optimizer.zero_grad()
        loss = self.net(torch.ones(3, 8)).square().mean()
        loss.backward()
        if wait:
            loss.item()
        self.optimizer.step()

    def ask(self, name: str, **arguments: Any) -> None:
        self.probes.start("hotspots", name, arguments, 10, 60, {"name": "test"}, None, False)
        self.steps.wake()

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [data for one, data in self.records if one == kind]

    def pulse(self) -> dict[str, Any]:
        data = next(one for one in self.loaded.samplers if one.kind == "pulse").call()
        assert data is not None
        self.steps.wake()
        return data


@pytest.fixture
def shim() -> Iterator[Hotspots]:
    one = Hotspots()
    yield one
    one.end()
    assert one.faults == []
    assert [event for event in one.events if event.get("phase") == "failed"] == []
    assert not torch.autograd._profiler_enabled()


def test_a_step_that_is_asked_for_is_told_with_its_shapes_and_modules(shim: Hotspots) -> None:
    shim.step()
    shim.ask("profile")
    for _ in range(4):
        shim.step()
    (told,) = shim.told("sample")
    assert told["asked"]
    rows = {row["name"]: row for row in told["rows"]}
    assert rows["aten::addmm"]["calls"] == 2
    assert sorted(use[0] for use in rows["aten::addmm"]["uses"]) == ["16;3,8;8,16;;", "4;3,16;16,4;;"]
    assert sorted(place[:2] for place in rows["aten::addmm"]["places"]) == [
        ["0", "forward"],
        ["2", "forward"],
    ]
    assert ["2", "backward"] in [place[:2] for place in rows["aten::mm"]["places"]]
    assert {"forward", "backward", "optimizer"} <= {name for name, took in told["phases"].items() if took > 0}
    assert sum(told["phases"].values()) == pytest.approx(told["window_us"], abs=1)
    assert told["outside_us"] > 0


def test_calls_are_those_that_torchs_own_profiler_counts(shim: Hotspots) -> None:
    shim.step()
    with profile() as theirs:
        shim.step()
    # A profiler of the training's own sees the same step, whole.
    want = {one.key: one.count for one in theirs.key_averages() if one.key.startswith("aten::")}
    shim.ask("profile")
    shim.step()
    shim.step()
    got = {row["name"]: row["calls"] for row in shim.told("sample")[0]["rows"]}
    assert {name: got.get(name) for name in want} == want


def test_it_samples_by_itself_and_more_seldom_than_the_budget_allows(shim: Hotspots) -> None:
    shim.ask("sample")
    for _ in range(5):
        shim.step()
    assert shim.pulse()["on"]
    for _ in range(3):
        shim.step()
    assert len(shim.told("sample")) == 1
    pulse = shim.pulse()
    told = shim.told("sample")[0]
    step_us = pulse["steps"]["p50"] * 1e6
    assert pulse["cost_us"] / (pulse["every"] * step_us) < 0.004
    # The look for lines that wait goes on the same account.
    assert pulse["next"] >= told["step"] + pulse["every"]
    shim.step()
    assert len(shim.told("sample")) == 1
    shim.probes.stop("hotspots", "sample", "test")
    assert not shim.pulse()["on"]


def test_a_call_that_waits_is_named_with_its_line(shim: Hotspots) -> None:
    shim.step()
    shim.ask("profile")
    for _ in range(5):
        shim.step(wait=True)
    (told,) = shim.told("sites")
    sites = [one for one in told["sites"] if one[1].endswith("test_hotspots_probes.py")]
    assert [(one[0], one[3], one[4]) for one in sites] == [("item", "step", 1)]
    # Those of the optimizer read what lies on the host.
    assert len(told["sites"]) == 1


def test_the_data_loader_is_a_phase(shim: Hotspots) -> None:
    def slow(batch: Any) -> Any:
        time.sleep(0.02)
        return torch.stack(batch)

    shim.step()
    shim.ask("profile")
    for _ in DataLoader([torch.ones(2)] * 8, batch_size=2, collate_fn=slow):
        shim.step()
    assert shim.told("sample")[0]["phases"]["data"] > 18_000


def test_parameters_are_the_same_bit_for_bit() -> None:
    found = []
    for watched in (False, True):
        shim = Hotspots()
        try:
            if watched:
                shim.ask("sample", every=1)
            for _ in range(12):
                shim.step()
                if watched:
                    shim.pulse()
            # The last one is still recorded.
            assert len(shim.told("sample")) == (10 if watched else 0)
            found.append([one.detach().clone() for one in shim.net.parameters()])
        finally:
            shim.end()
    assert all(torch.equal(one, other) for one, other in zip(*found))


def test_a_fault_of_ours_ends_the_plugin_and_the_record_and_not_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shim = Hotspots()
    try:
        shim.step()
        asked = shim.loaded.commands["profile"].hooks[1]
        asked.after = lambda *_: 1 / 0
        shim.ask("profile")
        for _ in range(3):
            shim.step()
        assert shim.loaded.failed is not None
        assert "division by zero" in shim.loaded.failed
        assert not torch.autograd._profiler_enabled()
        shim.step()
    finally:
        shim.end()


def test_the_trainings_own_profiler_costs_our_sample_and_nothing_else(shim: Hotspots) -> None:
    shim.step()
    with profile() as theirs:
        shim.ask("profile")
        for _ in range(3):
            shim.step()
    assert shim.told("sample") == []
    assert "own profiler is on" in shim.pulse()["why"]
    assert sum(one.name == "aten::addmm" for one in theirs.events()) == 6
    shim.ask("profile")
    shim.step()
    with profile() as theirs:
        shim.step()
    assert sum(one.name == "aten::addmm" for one in theirs.events()) == 2
    assert shim.told("sample") == []


def test_gaps_are_where_no_kernel_ran() -> None:
    assert _gaps([(10, 20), (15, 30), (50, 60)], 0, 100) == [(0, 10), (30, 50), (60, 100)]
    assert _gaps([], 0, 5) == [(0, 5)]


def test_kernels_that_begin_in_a_stretch_are_summed_and_its_idle_time_is_exact() -> None:
    class Kernels:
        def finish(self) -> list[tuple[int, int, int, bytes, bytes]]:
            return [
                (0, 900, 1, b"Before", b"KERNEL_AIVEC"),
                (500, 2_000, 1, b"MatMulV3", b"KERNEL_AICORE"),
                (5_000, 6_000, 1, b"MatMulV3", b"KERNEL_AICORE"),
                (5_500, 7_000, 2, b"Cast", b"KERNEL_AIVEC"),
                (10_500, 12_000, 1, b"Cast", b"KERNEL_AIVEC"),
                (90_000, 91_000, 1, b"Late", b"KERNEL_AIVEC"),
            ]

    told = Stretch(Kernels(), 1_000, 11_000).told([(8.0, 9.0)])
    assert [(row["name"], row["calls"], row["self_us"]) for row in told["rows"]] == [
        ("Cast", 2, 3.0),
        ("MatMulV3", 1, 1.0),
    ]
    # One was running when it began, and one still runs when it ends.
    assert (told["busy_us"], told["idle_us"], told["kernels"]) == (3.5, 6.5, 3)
    assert (told["longest_idle_us"], told["in_data_us"]) == (3.5, 1.0)
    # As msPTI's header lays it out: packed, and as a whole a multiple of eight.
    assert (Record.name.offset, ctypes.sizeof(Record)) == (44, 56)


def test_a_profiler_in_a_step_whose_operators_are_watched_sees_each_of_them_once(shim: Hotspots) -> None:
    shim.step()
    shim.loaded.commands["profile"].start.__self__.api.sites.arm()
    shim.steps.wake()
    shim.step()
    assert shim.board._mode is not None
    with profile() as theirs:
        assert shim.board._mode is None
        shim.step()
    assert sum(one.name == "aten::addmm" for one in theirs.events()) == 2
    with profile() as theirs:
        shim.loaded.commands["profile"].start.__self__.api.sites.arm()
        shim.steps.wake()
        for _ in range(3):
            shim.step()
    assert sum(one.name == "aten::addmm" for one in theirs.events()) == 6
    sites = shim.loaded.commands["profile"].start.__self__.api.sites
    assert "own profiler" in sites.state()["why"]
    # It is tried again, and found in the end.
    looked = sites.looked
    shim.pulse()
    for _ in range(3):
        shim.step()
    assert (sites.looked, sites.state()["why"]) == (looked + 1, "")


def test_nothing_is_recorded_under_a_dispatch_mode(shim: Hotspots) -> None:
    shim.step()
    shim.loaded.commands["profile"].start.__self__.api.sites.arm()
    shim.ask("profile")
    for _ in range(4):
        shim.step()
    (told,) = shim.told("sample")
    assert {row["name"]: row["calls"] for row in told["rows"]}["aten::addmm"] == 2
    # Step 3 was under the mode, and the governor may ask for a plain one after it.
    assert told["step"] >= 4
