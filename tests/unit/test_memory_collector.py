"""The memory collector: readings in, curves, peaks and slopes out, whatever a probe sends.

The words of the diagnosis are tested with the plugin; here is what holds for each version of it.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from ascend_tui_plugins.memory.collector import MemoryCollector

from ascend_tui.frame import as_json
from ascend_tui.plugin import Alert, Mark, Record
from ascend_tui.series import CAPACITY
from ascend_tui.target import TargetId

MIB = 1 << 20


def record(seq: int, kind: str, step: int = 0, at_s: float = 0.0, /, **data: Any) -> Record:
    return Record(seq, "memory", kind, step, 1_700_000_000.0 + at_s, 500.0 + at_s, data)


def feed(target: TargetId, count: int, per_step: int = MIB, device: str = "npu:0") -> MemoryCollector:
    """Return a collector that saw `count` steps of 0.1 s on a device that grows by `per_step`."""
    collector = MemoryCollector(lambda event: None)
    for index in range(count):
        reading = {"device": device, "allocated_bytes": 100 * MIB + index * per_step, "rss_bytes": 50 * MIB}
        collector.on_record(target, record(2 * index, "time", index, index * 0.1, **reading))
        collector.on_record(target, record(2 * index + 1, "step", index, index * 0.1, **reading))
    return collector


def test_before_the_first_record_it_waits(target: TargetId) -> None:
    snapshot = MemoryCollector(lambda event: None).snapshot(target)
    assert snapshot.state == "waiting"
    assert snapshot.verdict.kind == "undecided"
    assert snapshot.slope_bytes_per_step is None


def test_the_present_the_peak_and_the_curves(target: TargetId) -> None:
    collector = feed(target, 20)
    collector.on_record(
        target, record(99, "time", 20, 2.0, device="npu:0", allocated_bytes=60 * MIB, rss_bytes=1)
    )
    snapshot = collector.snapshot(target)
    assert snapshot.state != "waiting"
    assert snapshot.current.allocated_bytes == 60 * MIB
    assert snapshot.peak.allocated_bytes == 119 * MIB
    curves = {curve.name: curve for curve in snapshot.step_curves}
    assert (curves["allocated"].low[0], curves["allocated"].high[-1]) == (100 * MIB, 119 * MIB)
    times = {curve.name: curve for curve in snapshot.time_curves}
    assert times["allocated"].start == pytest.approx(0.0)
    assert times["allocated"].end == pytest.approx(2.1)


def test_what_only_a_step_can_tell_stays_until_the_next_step(target: TargetId) -> None:
    collector = MemoryCollector(lambda event: None)
    fields = {"device": "npu:0", "allocated_bytes": MIB, "rss_bytes": MIB}
    collector.on_record(
        target, record(1, "step", 1, 0.1, device_used_bytes=5, device_total_bytes=9, **fields)
    )
    collector.on_record(target, record(2, "time", 1, 0.2, **{**fields, "allocated_bytes": 2 * MIB}))
    collector.on_record(
        target, record(3, "step", 2, 0.3, device_used_bytes=6, device_total_bytes=9, **fields)
    )
    current = collector.snapshot(target).current
    assert (current.device_used_bytes, current.device_total_bytes) == (6, 9)
    assert current.allocated_bytes == 2 * MIB


def test_a_slope_is_per_step(target: TargetId) -> None:
    assert feed(target, 100).snapshot(target).slope_bytes_per_step == pytest.approx(MIB)
    assert feed(target, 100, per_step=0).snapshot(target).slope_bytes_per_step == pytest.approx(0.0)
    # A training begins by growing: what is said of it has to wait.
    assert feed(target, 40).snapshot(target).slope_bytes_per_step is None
    assert feed(target, 40).snapshot(target).verdict.kind == "undecided"


def test_a_long_run_takes_bounded_space(target: TargetId) -> None:
    snapshot = feed(target, 12 * CAPACITY).snapshot(target)
    assert max(len(curve.low) for curve in (*snapshot.time_curves, *snapshot.step_curves)) <= CAPACITY


def test_targets_do_not_mix(target: TargetId) -> None:
    collector = feed(target, 20)
    other = TargetId(target.pid, target.start_ticks + 1)
    assert collector.snapshot(other).state == "waiting"
    collector.on_record(other, record(0, "time", device="cpu", rss_bytes=7))
    assert collector.snapshot(other).current.rss_bytes == 7
    assert collector.snapshot(target).current.rss_bytes == 50 * MIB


@pytest.mark.parametrize("value", ["much", None, True, -1, "NaN", float("nan"), float("inf"), [], {}])
def test_what_is_no_amount_is_left_out(target: TargetId, value: Any) -> None:
    collector = feed(target, 100)
    collector.on_record(
        target, record(99, "step", 100, 10.0, device="npu:0", allocated_bytes=value, rss_bytes=5)
    )
    snapshot = collector.snapshot(target)
    assert snapshot.peak.allocated_bytes == 199 * MIB
    assert snapshot.slope_bytes_per_step == pytest.approx(MIB)


def test_a_snapshot_is_frozen_and_strict_json(target: TargetId) -> None:
    snapshot = feed(target, 20).snapshot(target)
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot.samples = 0  # type: ignore[misc]
    shown = json.loads(json.dumps(as_json(snapshot), allow_nan=False))
    assert set(shown["verdict"]) == {"kind", "confidence", "since_step", "reason", "settles"}
    assert isinstance(shown["verdict"]["reason"], str)
    assert "time_curves" not in shown


def test_a_snapshot_does_not_change_when_records_follow(target: TargetId) -> None:
    collector = feed(target, 20)
    snapshot = collector.snapshot(target)
    before = as_json(snapshot)
    collector.on_record(target, record(99, "step", 20, 2.0, device="npu:0", allocated_bytes=999 * MIB))
    assert as_json(snapshot) == before


def test_an_allocator_without_its_cache_leaves_the_card_as_the_lead(target: TargetId) -> None:
    collector = MemoryCollector(lambda event: None)
    for step in range(100):
        reading = {"device": "npu:0", "reuse": "off", "rss_bytes": 50 * MIB}
        collector.on_record(target, record(2 * step, "time", step, step * 0.1, **reading))
        reading["device_used_bytes"] = (200 + step) * MIB
        collector.on_record(target, record(2 * step + 1, "step", step, step * 0.1, **reading))
    snapshot = collector.snapshot(target)
    assert (snapshot.lead, snapshot.reuse.state, snapshot.reuse.at_launch) == ("device_used", "off", True)
    assert snapshot.current.allocated_bytes is None
    assert snapshot.current.device_used_bytes == snapshot.peak.device_used_bytes == 299 * MIB
    assert snapshot.slope_bytes_per_step == pytest.approx(MIB)


def ticked(target: TargetId, levels: list[float], device: str = "npu:0", **more: Any) -> MemoryCollector:
    """Return a collector that saw one step per level (MiB) and a tick for every tenth."""
    events: list[Any] = []
    collector = MemoryCollector(events.append)
    collector.events = events  # type: ignore[attr-defined]
    field = "rss_bytes" if device == "cpu" else "allocated_bytes"
    for step, level in enumerate(levels):
        reading = {"device": device, "rss_bytes": 50 * MIB, **more, field: int(level * MIB)}
        collector.on_record(target, record(step, "step", step, step * 0.1, **reading))
        if step % 10 == 9:
            collector.on_tick(1_700_000_000.0 + step * 0.1)
    return collector


def test_a_leak_is_said_once_and_withdrawn_when_it_stops(target: TargetId) -> None:
    leaking = [100.0] * 100 + [100.0 + step for step in range(300)]
    collector = ticked(target, leaking)
    snapshot = collector.snapshot(target)
    assert snapshot.verdict.kind == "leak"
    assert snapshot.verdict.since_step == pytest.approx(100, abs=15)
    assert snapshot.slope is not None
    assert snapshot.slope.low <= MIB <= snapshot.slope.high * 1.001
    alerts = [one for one in collector.events if isinstance(one, Alert)]  # type: ignore[attr-defined]
    assert [(one.severity, one.category) for one in alerts] == [("warning", "oom")]
    collector = ticked(target, [*leaking, *([400.0] * 300)])
    snapshot = collector.snapshot(target)
    assert snapshot.verdict.kind == "buffer_growth"
    assert snapshot.revision is not None
    assert snapshot.revision.was == "leak"


def test_a_leak_tells_when_the_card_is_full(target: TargetId) -> None:
    levels = [100.0 + step for step in range(200)]
    card = {"device_used_bytes": 400 * MIB, "device_total_bytes": 1000 * MIB, "reserved_bytes": 350 * MIB}
    forecast = ticked(target, levels, **card).snapshot(target).forecast
    assert forecast is not None
    # 600 MiB are free and 51 of the cache may serve: at 1 MiB a step of 0.1 s.
    assert forecast.step_low == pytest.approx(799, abs=3)
    assert forecast.step_low <= forecast.step <= (forecast.step_high or 0)
    assert forecast.seconds_low == pytest.approx(60.0, rel=0.02)


def test_switching_reuse_off_keeps_a_verdict_until_its_test_has_an_answer(target: TargetId) -> None:
    collector = ticked(target, [100.0 + step for step in range(300)], device="cpu")
    assert collector.snapshot(target).verdict.kind == "leak"
    collector.on_record(target, record(900, "reuse", 300, 30.0, state="off", how="malloc_trim", cost_us=900))
    for step in range(300, 400):
        at = 30.0 + (step - 300) * 0.1
        # The trim gives 150 MiB back, and then nothing climbs: it was no leak.
        collector.on_record(target, record(step, "step", step, at, device="cpu", rss_bytes=250 * MIB))
        left = {"state": "off", "how": "malloc_trim", "left": [[step, 250 * MIB]], "every": 1}
        collector.on_record(target, record(1000 + step, "reuse", step, at, **left))
        if step == 320:
            collector.on_tick(at)
            shown = collector.snapshot(target)
            assert shown.verdict.kind == "leak"
            assert (shown.reuse.state, shown.reuse.how, shown.reuse.since_step) == ("off", "malloc_trim", 300)
        if step % 10 == 9:
            collector.on_tick(at)
    snapshot = collector.snapshot(target)
    assert snapshot.verdict.kind == "cache"
    assert snapshot.revision is not None
    assert (snapshot.revision.was, snapshot.revision.now) == ("leak", "cache")


def test_what_the_commands_found_is_in_the_snapshot_whatever_they_sent(target: TargetId) -> None:
    collector = ticked(target, [100.0] * 5)
    site = {"file": "tr\x1bain.py", "line": 8, "function": "log", "bytes_per_step": 4096.5, "live_bytes": 9}
    sites = [
        {**site, "live_count": 3, "age_steps": 7, "cause": "graph", "stack": ["a:1 f", 3]},
        "hostile",
        None,
    ]
    found = {
        "phase": "done",
        "how": "weak references",
        "steps": 20,
        "step": 5,
        "sites": sites,
        "others_bytes": -1,
    }
    collector.on_record(target, record(50, "holders", 5, 0.5, **found))
    blocks = [[1 << 20, "active"], [5, "strange"], "x", [1, "free"]]
    shown = [{"total_bytes": 2 << 20, "active_bytes": 1 << 20, "stream": 0, "blocks": blocks}, 7]
    collector.on_record(
        target, record(51, "segments", 5, 0.5, count=1, pinned=0, shown=shown, reserved_bytes="?")
    )
    collector.on_record(target, record(52, "host", 5, 0.5, workers=[{"pid": 3, "rss_bytes": 4}, 5]))
    snapshot = collector.snapshot(target)
    assert snapshot.holders is not None
    assert [(one.name, one.live_count, one.stack) for one in snapshot.holders.sites] == [
        ("tr␛ain.py:8", 3, ("a:1 f", "3"))
    ]
    assert snapshot.segments is not None
    assert [block.state for block in snapshot.segments.shown[0].blocks] == ["active", "free"]
    assert [(one.pid, one.rss_bytes) for one in snapshot.workers] == [(3, 4)]
    json.dumps(as_json(snapshot), allow_nan=False)


def test_marks_of_the_probe_become_marks_of_the_house(target: TargetId) -> None:
    collector = ticked(target, [100.0] * 3)
    collector.on_record(target, record(60, "mark", 2, 0.2, sign="c", label="checkpoint"))
    collector.on_record(target, record(61, "mark", 2, 0.2, sign="x", label="of its own making"))
    marks = [one for one in collector.events if isinstance(one, Mark)]  # type: ignore[attr-defined]
    assert [(one.sign, one.step, one.label.text) for one in marks] == [("c", 2, "checkpoint")]


def test_what_is_outside_torch_is_of_one_reading(target: TargetId) -> None:
    collector = MemoryCollector(lambda event: None)
    card = {"device_used_bytes": 300 * MIB, "device_total_bytes": 900 * MIB}
    reading = {"device": "npu:0", "rss_bytes": MIB, "allocated_bytes": MIB, "reserved_bytes": 280 * MIB}
    collector.on_record(target, record(1, "step", 1, 0.1, **reading, **card))
    # The cache was emptied meanwhile; what the card says is still of the step before.
    collector.on_record(target, record(2, "time", 1, 0.2, **{**reading, "reserved_bytes": 2 * MIB}))
    current = collector.snapshot(target).current
    assert (current.reserved_bytes, current.outside_bytes) == (2 * MIB, 20 * MIB)
