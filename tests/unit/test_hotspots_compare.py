"""Two tables side by side: which rows go together, and which changes are more than noise."""

from __future__ import annotations

import math
from typing import Any

import pytest
from ascend_tui_plugins.hotspots.compare import (
    DEVICE_NOISE,
    HOST_NOISE,
    WEIGHT,
    compare,
    noise,
    notable,
    scatter,
    whole,
)
from ascend_tui_plugins.hotspots.snapshot import Row


def row(name: str, us: float, calls: int = 10, **more: Any) -> Row:
    fields: dict[str, Any] = {
        "kind": "compute",
        "share": 0.1,
        "cumulative_share": 0.1,
        "avg_us": us / calls if calls else 0.0,
        **more,
    }
    return Row(name=name, self_time_us=us, calls=calls, **fields)


def test_ratios_of_one_call_and_of_all() -> None:
    rows, gone = compare([row("Cast", 3000, 30)], [row("Cast", 1000, 20)], since_step=1000)
    change = rows[0].change
    assert change is not None
    assert (change.baseline_avg_us, change.baseline_time_us) == (50, 1000)
    assert (change.avg_ratio, change.time_ratio, change.since_step) == (2.0, 3.0, 1000)
    assert gone == ()


def test_new_and_gone_rows() -> None:
    rows, gone = compare([row("Add", 10), row("Mul", 20)], [row("Sub", 5), row("Add", 10)])
    assert [one.change is None for one in rows] == [False, True]
    assert [one.name for one in gone] == ["Sub"]


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, -1.0])
def test_a_time_that_is_no_time_has_no_ratio(value: float) -> None:
    for mine, old in (([row("Add", value)], [row("Add", 10)]), ([row("Add", 10)], [row("Add", value)])):
        rows, gone = compare(mine, old)
        assert rows[0].change is None
        assert gone == ()
        assert notable(rows) == ()


def test_no_calls_are_no_average() -> None:
    rows, _ = compare([row("Add", 10, 0)], [row("Add", 10, 5)])
    assert rows[0].change is None


def test_nothing_beside_nothing() -> None:
    assert compare([], []) == ((), ())
    assert compare([row("Add", 1)], []) == ((row("Add", 1),), ())
    assert whole([], []) is None
    assert whole([row("Add", 1)], []) is None


def test_the_same_name_on_two_cores_are_two_rows() -> None:
    mine = [row("Cast", 100, core="AI_CPU"), row("Cast", 900, core="AI_VECTOR_CORE")]
    old = [row("Cast", 800, core="AI_VECTOR_CORE"), row("Cast", 50, core="AI_CPU")]
    rows, gone = compare(mine, old)
    assert [one.change.time_ratio for one in rows if one.change] == [2.0, 1.125]
    assert gone == ()


def test_one_that_moved_to_another_core_is_the_same() -> None:
    rows, gone = compare([row("Cast", 100, core="AI_VECTOR_CORE")], [row("Cast", 400, core="AI_CPU")])
    assert rows[0].change is not None
    assert rows[0].change.time_ratio == 0.25
    assert gone == ()


def test_one_whose_kind_is_told_otherwise_is_the_same() -> None:
    rows, _ = compare([row("Pad", 100, kind="movement")], [row("Pad", 100, kind="other")])
    assert rows[0].change is not None


def test_a_level_of_the_api_is_not_another() -> None:
    rows, gone = compare([row("launch", 100, level="node")], [row("launch", 100, level="acl")])
    assert rows[0].change is None
    assert len(gone) == 1


def test_a_name_that_could_be_two_is_left_alone() -> None:
    mine = [row("Cast", 100, core="AI_CORE")]
    old = [row("Cast", 50, core="AI_CPU"), row("Cast", 60, core="AI_VECTOR_CORE")]
    rows, gone = compare(mine, old)
    assert rows[0].change is None
    assert len(gone) == 2


@pytest.mark.parametrize(
    ("clock", "ratio", "is_told"),
    [
        ("device", 1 + DEVICE_NOISE + 0.01, True),
        ("device", 1 + DEVICE_NOISE - 0.01, False),
        ("device", 1 - DEVICE_NOISE - 0.01, True),
        ("host", 1 + HOST_NOISE + 0.01, True),
        ("host", 1 + HOST_NOISE - 0.01, False),
    ],
)
def test_noise_is_no_change(clock: str, ratio: float, is_told: bool) -> None:
    rows, _ = compare([row("MatMulV3", 1000 * ratio, clock=clock)], [row("MatMulV3", 1000, clock=clock)])
    assert bool(notable(rows)) == is_told


def test_a_small_operator_is_no_change() -> None:
    def changed(small_us: float) -> list[str]:
        mine = [row("MatMulV3", 10_000), row("Add", 2 * small_us)]
        rows, _ = compare(mine, [row("MatMulV3", 10_000), row("Add", small_us)])
        return [one.name for one in notable(rows)]

    assert changed(10_000 * WEIGHT * 0.9) == []
    assert changed(10_000 * WEIGHT * 1.1) == ["Add"]


def test_what_scatters_needs_a_larger_change() -> None:
    wild = (60.0, 100.0, 150.0, 90.0, 110.0)
    calm = (99.0, 100.0, 101.0, 100.0, 100.5)
    assert scatter(wild) == pytest.approx(1.4826 * 10 / 100)
    assert noise(row("Add", 1, trend=wild)) == pytest.approx(3 * 1.4826 * 0.1)
    assert noise(row("Add", 1, trend=calm)) == DEVICE_NOISE
    assert scatter((1.0, 9.0, 1.0)) == 0.0
    assert scatter((math.nan, 0.0, math.inf, -1.0, 5.0)) == 0.0
    for trend, told in ((wild, 0), (calm, 1)):
        rows, _ = compare([row("Add", 130, trend=trend)], [row("Add", 100)])
        assert len(notable(rows)) == told


def test_the_largest_difference_is_first() -> None:
    mine = [row("Add", 300), row("MatMulV3", 2000), row("Cast", 100)]
    rows, _ = compare(mine, [row("Add", 100), row("MatMulV3", 1500), row("Cast", 1000)])
    assert [one.name for one in notable(rows)] == ["Cast", "MatMulV3", "Add"]


def test_a_profile_of_twice_the_steps_is_brought_to_the_same_work() -> None:
    mine = [row("Add", 200, 20), row("MatMulV3", 4000, 40), row("Cast", 1200, 20)]
    rows, gone = compare(mine, [row("Add", 100, 10), row("MatMulV3", 2000, 20), row("Cast", 300, 10)])
    both = whole(rows, gone)
    assert both is not None
    assert (both.calls_ratio, both.same_work) == (2.0, False)
    assert both.ratio == pytest.approx(5400 / 2400 / 2)
    assert [one.name for one in notable(rows, both.calls_ratio)] == ["Cast"]


def test_what_is_gone_was_part_of_the_whole() -> None:
    rows, gone = compare([row("Add", 100)], [row("Add", 100), row("Mul", 100)])
    both = whole(rows, gone)
    assert both is not None
    assert both.ratio == 0.5
    assert both.same_work
