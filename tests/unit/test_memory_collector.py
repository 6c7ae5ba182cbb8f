"""The memory collector: readings in, curves, peaks and slopes out, whatever a probe sends.

The words of the diagnosis are tested with the plugin; here is what holds for each version of it.
"""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from typing import Any

import pytest
from ascend_tui_plugins.memory.collector import MemoryCollector, slope

from ascend_tui.frame import as_json
from ascend_tui.plugin import Record
from ascend_tui.series import CAPACITY
from ascend_tui.target import TargetId

MIB = 1 << 20


def record(seq: int, kind: str, step: int = 0, at_s: float = 0.0, **data: Any) -> Record:
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
    assert feed(target, 3).snapshot(target).slope_bytes_per_step is None


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
    collector = feed(target, 20)
    collector.on_record(
        target, record(99, "step", 20, 2.0, device="npu:0", allocated_bytes=value, rss_bytes=5)
    )
    snapshot = collector.snapshot(target)
    assert snapshot.peak.allocated_bytes == 119 * MIB
    assert snapshot.slope_bytes_per_step == pytest.approx(MIB)


def test_a_snapshot_is_frozen_and_strict_json(target: TargetId) -> None:
    snapshot = feed(target, 20).snapshot(target)
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot.samples = 0  # type: ignore[misc]
    shown = json.loads(json.dumps(as_json(snapshot), allow_nan=False))
    assert set(shown["verdict"]) == {"kind", "confidence", "since_step", "reason"}
    assert isinstance(shown["verdict"]["reason"], str)
    assert "time_curves" not in shown


def test_a_snapshot_does_not_change_when_records_follow(target: TargetId) -> None:
    collector = feed(target, 20)
    snapshot = collector.snapshot(target)
    before = as_json(snapshot)
    collector.on_record(target, record(99, "step", 20, 2.0, device="npu:0", allocated_bytes=999 * MIB))
    assert as_json(snapshot) == before


def test_the_slope_of_a_point_or_a_vertical_line_is_unknown() -> None:
    assert slope(deque()) is None
    assert slope(deque([(1.0, float(value)) for value in range(50)])) is None


def test_an_allocator_without_its_cache_leaves_the_card_as_the_lead(target: TargetId) -> None:
    collector = MemoryCollector(lambda event: None)
    for step in range(20):
        reading = {"device": "npu:0", "reuse": "off", "rss_bytes": 50 * MIB}
        collector.on_record(target, record(2 * step, "time", step, step * 0.1, **reading))
        reading["device_used_bytes"] = (200 + step) * MIB
        collector.on_record(target, record(2 * step + 1, "step", step, step * 0.1, **reading))
    snapshot = collector.snapshot(target)
    assert (snapshot.lead, snapshot.reuse) == ("device_used", "off")
    assert snapshot.current.allocated_bytes is None
    assert snapshot.current.device_used_bytes == snapshot.peak.device_used_bytes == 219 * MIB
    assert snapshot.slope_bytes_per_step == pytest.approx(MIB)
    assert "whole card" in snapshot.verdict.reason.text
