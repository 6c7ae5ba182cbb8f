"""What a check of ours adds to the memory is left out of the verdict; what the training adds never is."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable

import pytest
from ascend_tui_plugins.memory.collector import MemoryCollector
from ascend_tui_plugins.memory.ours import MOST_WINDOWS, Checks
from ascend_tui_plugins.memory.snapshot import MemorySnapshot
from ascend_tui_plugins.memory.trend import Track

from ascend_tui.frame import as_json
from ascend_tui.marks import mark_of
from ascend_tui.plugin import Loaded, Record, load
from ascend_tui.target import TargetId

MIB = 1 << 20
START_S = 1_700_000_000.0
STEP_S = 0.1
PLUGINS = [Loaded(name, load(name)) for name in ("memory", "overflow")]
OPS = "overflow.ops"
Level = Callable[[int], float]


def reading(step: int, device: str, **levels: Level) -> Record:
    """Return the reading after a step, in MiB, with the breath of a host's memory."""
    breath = random.Random(step).gauss(0.0, 0.2) if device == "cpu" else 0.0
    amounts = {f"{name}_bytes": int((level(step) + breath) * MIB) for name, level in levels.items()}
    return Record(
        step, "memory", "step", step, START_S + step * STEP_S, step * STEP_S, {"device": device, **amounts}
    )


def seen(
    target: TargetId,
    windows: Iterable[tuple[int, int]] = (),
    steps: int = 600,
    command: str = OPS,
    late: bool = False,
    device: str = "cpu",
    **levels: Level,
) -> MemorySnapshot:
    """Return the snapshot after so many steps, with `command` running from step to step.

    An end of 0 is one that never comes.  With `late` all marks come after the readings, as on an attach to a
    training that has been watched before.
    """
    collector = MemoryCollector(lambda event: None)
    plugin, _, name = command.partition(".")
    told = {}
    for start, end in windows:
        told[start], told[end] = "started", "ended"

    def tell(step: int) -> None:
        if step in told:
            data = {"plugin": plugin, "name": name, "phase": told[step], "reason": "by its probe"}
            wall_s = START_S + step * STEP_S
            mark = mark_of(target, Record(step, "core", "command", step, wall_s, 0.0, data), PLUGINS)
            assert mark is not None
            collector.on_event(mark)

    for step in range(1, steps):
        collector.on_record(target, reading(step, device, **levels))
        if not late:
            tell(step)
            collector.on_tick(START_S + step * STEP_S)
    for step in sorted(told if late else ()):
        tell(step)
    for _ in range(200 if late else 0):
        steps += 1
        collector.on_record(target, reading(steps, device, **levels))
        collector.on_tick(START_S + steps * STEP_S)
    return collector.snapshot(target)


def jump(level: float, size: float, at: int = 303, rate: float = 0.0) -> Level:
    return lambda step: level + rate * step + size * (step >= at)


@pytest.mark.parametrize("late", [False, True])
def test_a_jump_in_a_window_is_no_growth(target: TargetId, late: bool) -> None:
    snapshot = seen(target, [(301, 305)], late=late, rss=jump(380, 20))
    assert snapshot.verdict.kind == "steady"
    assert snapshot.ours is not None
    assert snapshot.ours.bytes / MIB == pytest.approx(20, abs=0.7)
    assert (snapshot.ours.quantity, snapshot.ours.command, snapshot.ours.step) == ("rss", OPS, 305)
    # What is shown is what is there.
    assert snapshot.peak.rss_bytes is not None
    assert snapshot.peak.rss_bytes / MIB == pytest.approx(400, abs=1)
    assert json.loads(json.dumps(as_json(snapshot)))["ours"]["command"] == OPS


def test_what_is_worked_off_just_after_a_window_belongs_to_it(target: TargetId) -> None:
    snapshot = seen(target, [(301, 305)], rss=jump(380, 20, at=307))
    assert snapshot.verdict.kind == "steady"
    assert snapshot.ours is not None


@pytest.mark.parametrize("windows", [[], [(330, 334)], [(200, 204)]])
def test_a_jump_elsewhere_is_growth(target: TargetId, windows: list[tuple[int, int]]) -> None:
    snapshot = seen(target, windows, rss=jump(380, 20))
    assert snapshot.verdict.kind == "buffer_growth"
    assert snapshot.ours is None
    assert snapshot.verdict.reason.text.startswith("grew by {size} at once at step {step}")
    assert dict(snapshot.verdict.reason.params)["step"] == pytest.approx(303, abs=1)


@pytest.mark.parametrize("size", [0.0, 20.0])
def test_a_leak_through_a_window_is_a_leak(target: TargetId, size: float) -> None:
    snapshot = seen(target, [(301, 305)], rss=jump(380, size, rate=0.2))
    assert snapshot.verdict.kind == "leak"
    assert snapshot.slope is not None
    assert snapshot.slope.bytes_per_step / MIB == pytest.approx(0.2, rel=0.05)
    assert (snapshot.ours is not None) == (size > 0)


def test_a_steep_leak_is_not_taken_for_ours(target: TargetId) -> None:
    # In a window of four steps and what follows it leaks more than a check would leave.
    snapshot = seen(target, [(301, 305)], rss=jump(380, 0, rate=4.0))
    assert (snapshot.verdict.kind, snapshot.ours) == ("leak", None)


def test_a_leak_that_begins_in_a_window_is_a_leak(target: TargetId) -> None:
    snapshot = seen(target, [(301, 305)], rss=lambda step: 380 + 0.3 * max(0, step - 303))
    assert snapshot.verdict.kind == "leak"
    assert snapshot.verdict.since_step == pytest.approx(303, abs=25)


def test_a_leak_that_windows_cut_into_pieces_is_a_leak(target: TargetId) -> None:
    windows = [(step, step + 4) for step in range(50, 1200, 40)]
    snapshot = seen(target, windows, steps=1200, rss=lambda step: 380 + 0.1 * step)
    assert snapshot.verdict.kind == "leak"
    assert snapshot.slope is not None
    assert snapshot.slope.bytes_per_step / MIB == pytest.approx(0.1, rel=0.1)


def test_what_each_check_adds_anew_is_growth(target: TargetId) -> None:
    # A check uses what the one before has left: what piles up is a fault, be it ours.
    windows = [(step, step + 4) for step in range(100, 900, 100)]
    snapshot = seen(target, windows, steps=950, rss=lambda step: 380 + 20 * ((step - 2) // 100))
    assert snapshot.verdict.kind in ("leak", "buffer_growth")
    assert snapshot.ours is not None
    assert snapshot.ours.bytes / MIB == pytest.approx(20, abs=1)


def test_what_was_given_back_between_two_checks_is_not_left_out_twice(target: TargetId) -> None:
    # It comes with each check and goes 50 steps later, and beside it something leaks.
    windows = [(step, step + 4) for step in range(100, 900, 100)]

    def level(step: int) -> float:
        return 380 + 0.1 * step + 20 * (step > 102 and (step - 2) % 100 < 50)

    snapshot = seen(target, windows, steps=950, rss=level)
    assert snapshot.slope is not None
    assert snapshot.slope.bytes_per_step / MIB == pytest.approx(0.1, rel=0.3)


def test_an_end_that_never_comes_hides_nothing(target: TargetId) -> None:
    snapshot = seen(target, [(301, 0)], rss=jump(380, 20))
    assert (snapshot.verdict.kind, snapshot.ours) == ("buffer_growth", None)


def test_while_a_check_runs_nothing_is_said_of_it(target: TargetId) -> None:
    snapshot = seen(target, [(301, 0)], steps=306, rss=jump(380, 20))
    assert snapshot.verdict.kind == "steady"


def test_a_long_command_is_no_window(target: TargetId) -> None:
    snapshot = seen(target, [(301, 400)], rss=jump(380, 20))
    assert (snapshot.verdict.kind, snapshot.ours) == ("buffer_growth", None)


def test_reuse_begins_a_series_of_its_own_and_is_no_window(target: TargetId) -> None:
    snapshot = seen(target, [(301, 305)], command="memory.reuse", rss=jump(380, 20))
    assert (snapshot.verdict.kind, snapshot.ours) == ("buffer_growth", None)


def test_live_tensors_are_not_ours_and_the_reserve_may_be(target: TargetId) -> None:
    kept = seen(
        target,
        [(301, 305)],
        device="npu:0",
        allocated=jump(1000, 64),
        reserved=jump(2000, 0),
        rss=jump(500, 0),
    )
    assert (kept.verdict.kind, kept.ours) == ("buffer_growth", None)
    cache = seen(
        target,
        [(301, 305)],
        device="npu:0",
        allocated=jump(1000, 0),
        reserved=jump(2000, 64),
        rss=jump(500, 0),
    )
    assert cache.verdict.kind == "steady"
    assert cache.ours is not None
    assert (cache.ours.quantity, cache.ours.bytes) == ("reserved", 64 * MIB)


def test_windows_are_bounded_and_one_that_counts_is_kept() -> None:
    checks, track = Checks(), Track()
    for step in range(1, 20 * MOST_WINDOWS * 3):
        track.add(step, (380 + 20 * (step >= 203)) * MIB)
        if step % 20 in (0, 4) and step > 30:
            (checks.began if step % 20 == 0 else checks.ended)(OPS, step, step * STEP_S)
        if step % 10 == 0:
            tracks, ours = checks.apart({"rss": track})
    assert len(checks._windows) == MOST_WINDOWS
    assert ours is not None
    assert (ours.bytes, ours.step) == (20 * MIB, 204)
    assert {value for _, value in tracks["rss"].points()} == {380 * MIB}


def test_a_start_whose_end_was_never_heard_of_is_forgotten_by_the_next() -> None:
    checks, track = Checks(), Track()
    checks.began(OPS, 10, 1.0)
    for step in range(1, 300):
        track.add(step, (380 + 20 * (step >= 202)) * MIB)
    checks.began(OPS, 200, 20.0)
    checks.ended(OPS, 204, 20.4)
    _, ours = checks.apart({"rss": track})
    assert ours is not None
    assert ours.bytes == 20 * MIB
    # A shim that is put in anew counts its steps from the beginning.
    checks.began(OPS, 250, 25.0)
    checks.began(OPS, 3, 90.0)
    assert checks._running == {OPS: (3, 90.0)}


def test_windows_that_overlap_are_one_and_many_in_a_row_are_no_long_one() -> None:
    checks = Checks()
    checks.began("overflow.capture", 100, 10.0)
    checks.began(OPS, 100, 10.0)
    checks.ended(OPS, 104, 10.4)
    checks.ended("overflow.capture", 105, 10.5)
    assert [(one.start, one.end) for one in checks._windows] == [(100, 105)]
    for step in range(105, 205, 5):
        checks.began(OPS, step, step * STEP_S)
        checks.ended(OPS, step + 5, step * STEP_S + 0.5)
    ends = [(one.start, one.end or 0.0) for one in checks._windows]
    assert (ends[0][0], ends[-1][1]) == (100, 205)
    assert all(end - start <= 20 for start, end in ends)
    assert all(later[0] == one[1] for one, later in zip(ends, ends[1:]))
    checks.began(OPS, 3, 900.0)
    checks.ended(OPS, 7, 900.4)
    assert [(one.start, one.end) for one in checks._windows] == [(3, 7)]
