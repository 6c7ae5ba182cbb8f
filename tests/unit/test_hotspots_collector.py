"""From records to the snapshot of the hotspots plugin: histories, baselines, causes, and hostile records."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from ascend_tui_plugins.hotspots import decode
from ascend_tui_plugins.hotspots.collector import HotspotsCollector
from ascend_tui_plugins.hotspots.snapshot import HotspotsSnapshot, Row

from ascend_tui.frame import as_json
from ascend_tui.plugin import Alert, Event, Mark, Message, Record
from ascend_tui.target import TargetId

TARGET = TargetId(pid=7, start_ticks=9)


def op(name: str, self_us: float, calls: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "self_us": self_us, "total_us": self_us, "max_us": self_us, "calls": calls, **more}


def sample(step: int, *rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    self_us = sum(row["self_us"] for row in rows)
    return {
        "step": step,
        "window_us": self_us + 100,
        "outside_us": 100,
        "self_us": self_us,
        "count": len(rows),
        "rows": list(rows),
        "phases": {"forward": self_us, "other": 100},
        "device": "cpu",
        **more,
    }


class Watched:
    """A collector with one target."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.collector = HotspotsCollector(self.events.append)
        self._seq = 0

    def tell(self, kind: str, data: Any, wall_s: float = 100.0) -> HotspotsSnapshot:
        self._seq += 1
        self.collector.on_record(TARGET, Record(self._seq, "hotspots", kind, self._seq, wall_s, wall_s, data))
        return self.collector.snapshot(TARGET)


def row(rows: Iterable[Row], name: str) -> Row:
    return next(one for one in rows if one.name == name)


def test_before_the_first_record_it_waits() -> None:
    assert Watched().collector.snapshot(TARGET).state == "waiting"


def test_a_sample_becomes_a_table_with_shares() -> None:
    told = Watched().tell("sample", sample(9, op("aten::mm", 300, 3), op("aten::copy_", 100, 50)))
    assert (told.state, told.clock, told.step, told.runs_on) == ("live", "host", 9, "cpu")
    mm, copy = told.rows
    assert (mm.name, mm.kind, mm.share, mm.avg_us) == ("aten::mm", "compute", 0.75, 100.0)
    assert (copy.kind, copy.cumulative_share) == ("movement", 1.0)
    assert [(one.name, one.share) for one in told.phases if one.time_us] == [("forward", 0.8), ("other", 0.2)]


def test_what_is_too_small_to_be_sent_is_in_the_shares() -> None:
    told = Watched().tell("sample", sample(9, op("aten::mm", 300)) | {"self_us": 600, "count": 12})
    assert told.rows[0].share == 0.5
    assert told.rows_dropped == 11


def test_kernels_are_the_table_where_there_are_any() -> None:
    kernels = {
        "rows": [op("MatMulV3", 500, core="KERNEL_AICORE"), op("hcom_allReduce_", 100)],
        "self_us": 600,
        "count": 2,
        "kernels": 2,
        "busy_us": 600,
        "idle_us": 400,
        "in_data_us": 150,
        "longest_idle_us": 300,
    }
    told = Watched().tell("sample", sample(9, op("aten::mm", 300), kernels=kernels, device="npu"))
    assert (told.clock, told.source) == ("device", "msPTI")
    assert [one.name for one in told.rows] == ["MatMulV3", "hcom_allReduce_"]
    assert [one.name for one in told.host_rows] == ["aten::mm"]
    assert told.device is not None
    assert (told.device.idle_share, told.device.host_bound_share) == (0.4, 0.25)
    assert told.device.communication_us == 100


def test_a_change_is_told_against_the_first_samples_and_by_the_least() -> None:
    one = Watched()
    for step, took in enumerate((110, 130, 100, 120), 1):
        told = one.tell("sample", sample(step, op("aten::mm", took)))
        assert told.rows[0].change is None
    assert told.baseline_step == 1
    for step, took in enumerate((125, 900, 160, 150), 5):
        told = one.tell("sample", sample(step, op("aten::mm", took)))
    # What a host does beside only adds: 125 is not beyond the 130 of the baseline.
    assert told.rows[0].change is not None
    assert not told.rows[0].change.sure
    assert [one.rule for one in told.findings if one.rule == "slower"] == []
    for step, took in enumerate((170, 155), 9):
        told = one.tell("sample", sample(step, op("aten::mm", took)))
    change = told.rows[0].change
    assert change is not None
    # The least of 160, 150, 170, 155 against the least of the first four.
    assert change.avg_ratio == pytest.approx(1.5)
    # Since the first one of all that are above 125, up to which it is noise.
    assert change.since_step == 6
    assert told.rows[0].trend == (110, 130, 100, 120, 125, 900, 160, 150, 170, 155)


def test_since_when_is_known_longer_than_the_history_goes_back() -> None:
    one = Watched()
    for step in range(1, 100):
        told = one.tell("sample", sample(step, op("aten::mm", 100 if step <= 10 else 200)))
    change = told.rows[0].change
    assert change is not None
    assert (change.since_step, change.avg_ratio) == (11, 2.0)


def test_a_step_that_waited_for_a_processor_is_compared_with_nothing_and_says_so() -> None:
    one = Watched()
    for step in (1, 2, 3, 4):
        one.tell("sample", sample(step, op("aten::mm", 1000)))
    for step in (5, 6, 7, 8):
        told = one.tell("sample", sample(step, op("aten::mm", 5000), delay_us=3000))
    assert told.rows[0].change is None
    assert "waited 3.0 ms for a processor" in told.notes[0].render()


def test_a_sample_with_shapes_is_shown_and_compared_with_nothing() -> None:
    one = Watched()
    shaped = op("aten::mm", 500, uses=[["2,3;3,4", 1, 500]], shapes_seen=1)
    told = one.tell("sample", sample(1, shaped, shapes=True))
    assert told.rows[0].uses[0].shapes == "2,3;3,4"
    for step in (2, 3, 4, 5):
        told = one.tell("sample", sample(step, op("aten::mm", 100)))
    assert told.baseline_step == 2
    # The shapes stay with the operator.
    assert told.rows[0].uses[0].shapes == "2,3;3,4"
    assert told.rows[0].shapes_seen == 1


def test_an_operator_that_comes_no_more_is_let_go() -> None:
    one = Watched()
    for step in range(200):
        one.tell("sample", sample(step, op("aten::mm", 100), op(f"custom::{step}", 10)))
    state = one.collector._targets[TARGET]
    assert len(state._history) < 5


def test_lines_that_wait_get_the_times_of_the_sample() -> None:
    one = Watched()
    one.tell("sample", sample(1, op("aten::_local_scalar_dense", 900, 97), op("aten::mm", 100)))
    sites = [["item", "train.py", 12, "main", 1, 30.0], ["item", "log.py", 3, "log", 96, 10.0]]
    told = one.tell("sites", {"step": 3, "sites": sites})
    assert told.syncs_known
    first, second = told.syncs
    assert first.site is not None
    assert (first.site.file, first.site.line, first.calls) == ("train.py", 12, 1)
    assert (first.time_us, second.time_us) == (675.0, 225.0)


def test_shapes_of_several_samples_are_counted_together() -> None:
    one = Watched()
    for step in range(5):
        shaped = op("aten::mm", 500, uses=[[f"{step},3", 1, 500]], shapes_seen=1)
        told = one.tell("sample", sample(step, shaped, shapes=True))
    assert told.rows[0].shapes_seen == 5


def test_a_wait_without_a_line_is_told_too() -> None:
    one = Watched()
    places = [["", "optimizer", 96, 10.0], ["", "other", 3, 890.0]]
    one.tell("sample", sample(1, op("aten::_local_scalar_dense", 900, 99, places=places)))
    told = one.tell("sites", {"step": 3, "sites": [["item", "train.py", 12, "main", 1, 30.0]]})
    assert [(sync.calls, sync.site is None) for sync in told.syncs] == [(1, False), (2, True)]
    told = one.tell("sites", {"step": 3, "sites": []})
    assert [(sync.calls, sync.time_us, sync.site) for sync in told.syncs] == [(3, 900, None)]


def pulse(**more: Any) -> dict[str, Any]:
    steps = {"n": 100, "p50": 0.1, "p99": 0.3, "slow": [[40, 200.0, 0.5]], **more.pop("steps", {})}
    return {"on": True, "every": 64, "samples": 3, "next": 90, "pause_us": 5000.0, "cost_us": 9000.0} | {
        "steps": steps,
        "device": "cpu",
        **more,
    }


def test_the_pulse_tells_of_sampling_and_jitter() -> None:
    told = Watched().tell("pulse", pulse())
    assert told.state == "waiting"
    assert (told.sampling.every, told.sampling.next_step) == (64, 90)
    assert told.sampling.amortised_share == pytest.approx(9000 / (64 * 100_000))
    assert told.jitter is not None
    assert (told.jitter.p50_s, told.jitter.p99_s) == (0.1, 0.3)
    (slow,) = told.jitter.outliers
    assert (slow.step, slow.ratio, slow.cause) == (40, 5.0, None)


@pytest.mark.parametrize(("at", "near"), [(199.8, True), (201.0, True), (150.0, False), (260.0, False)])
def test_a_slow_step_is_told_with_what_happened_at_that_time(at: float, near: bool) -> None:
    one = Watched()
    one.tell("pulse", pulse(), 200.2)
    one.collector.on_event(Mark(TARGET, "memory", at, "c", Message("checkpoint")))
    told = one.tell("pulse", pulse(), 201.5)
    assert told.jitter is not None
    assert told.jitter.outliers[0].cause == (Message("checkpoint") if near else None)


def test_an_alert_and_a_garbage_collection_are_causes_too() -> None:
    one = Watched()
    one.tell("pulse", pulse(steps={"gc": 1}), 200.2)
    alert = Alert(TARGET, "overflow", 200.0, "error", "numeric", Message("the loss is NaN"))
    told = one.collector.snapshot(TARGET)
    assert told.jitter is not None
    cause = told.jitter.outliers[0].cause
    assert cause is not None
    assert "garbage collector" in cause.text
    one.collector.on_event(alert)
    told = one.tell("pulse", pulse(), 201.0)
    assert told.jitter is not None
    assert told.jitter.outliers[0].cause == alert.headline


def test_why_nothing_can_be_recorded_is_the_state() -> None:
    told = Watched().tell("pulse", pulse(why="the training's own profiler is on", samples=0))
    assert told.state == "degraded"
    assert told.reason is not None
    assert "own profiler" in told.reason.render()


def test_on_an_npu_without_kernels_the_way_to_them_is_said() -> None:
    one = Watched()
    one.tell("pulse", pulse(kernels="no library", device="npu"))
    told = one.tell("sample", sample(1, op("aten::mm", 10), device="npu"))
    assert "libmspti.so" in told.missing[0].render()
    assert told.notes[0].render().startswith("times are of the host")
    told = one.tell("pulse", pulse(kernels="something else", device="npu"))
    assert "something else" in told.missing[0].render()


JUNK = (None, True, -1, 1e999, float("nan"), "x" * 5000, "\x1b[31m[bold]", [], {}, [[]], {"name": 3}, 2**80)


def test_nothing_that_is_sent_raises_and_all_of_it_can_be_drawn() -> None:
    generator = random.Random(3)

    def junk(depth: int = 0) -> Any:
        kind = generator.randrange(6 if depth < 3 else 1)
        if kind == 1:
            return [junk(depth + 1) for _ in range(generator.randrange(5))]
        if kind > 1:
            keys = generator.sample(KEYS, 6)
            return {key: junk(depth + 1) for key in keys}
        return generator.choice(JUNK)

    one = Watched()
    for _ in range(600):
        data = {key: junk() for key in generator.sample(KEYS, 8)}
        told = one.tell(generator.choice(("sample", "pulse", "sites")), data)
        for found in told.rows:
            assert found.self_time_us >= 0
            assert len(found.name) <= decode.MOST_TEXT
            assert "\x1b" not in found.name
        assert as_json(told)


KEYS = [
    *("step", "window_us", "outside_us", "rows", "kernels", "phases", "device", "asked", "self_us", "count"),
    *("on", "every", "samples", "next", "pause_us", "cost_us", "why", "sites", "steps", "name", "calls"),
    *(
        "total_us",
        "max_us",
        "places",
        "uses",
        "shapes_seen",
        "n",
        "p50",
        "p99",
        "slow",
        "gc",
        "busy_us",
        "idle_us",
    ),
]
