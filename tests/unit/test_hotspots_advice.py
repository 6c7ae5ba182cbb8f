"""Each rule of the advice: what makes it speak, and what is just not enough for it."""

from __future__ import annotations

import dataclasses
import math
import string
from collections.abc import Sequence
from typing import Any

import pytest
from ascend_tui_plugins.hotspots import advice
from ascend_tui_plugins.hotspots.advice_bytes import elements, item_bytes, moved_bytes
from ascend_tui_plugins.hotspots.compare import compare
from ascend_tui_plugins.hotspots.ranking import ranked
from ascend_tui_plugins.hotspots.snapshot import (
    DeviceUse,
    Finding,
    HotspotsSnapshot,
    Jitter,
    Link,
    Outlier,
    Phase,
    ProfileResult,
    Row,
    Site,
    StepTrace,
    Sync,
    Units,
    Use,
)

from ascend_tui.plugin import Message


def row(name: str, us: float, calls: int = 10, kind: str = "compute", **more: Any) -> Row:
    return Row(name=name, kind=kind, self_time_us=us, share=0.0, cumulative_share=0.0, calls=calls, **more)  # type: ignore[arg-type]


def table(rows: Sequence[Row], total_us: float | None = None, **more: Any) -> ProfileResult:
    kept, dropped = ranked(rows, total_us)
    return ProfileResult(format="op_statistic", rows=kept, rows_dropped=dropped, **more)


def others(us: float, number: int = 12, calls: int = 4) -> list[Row]:
    """Return operators that no rule has anything to say of, together of this time."""
    return [row(f"Op{'ABCDEFGHIJKLMNOPQRSTUVWXYZ'[at]}", us / number, calls) for at in range(number)]


def found(told: Sequence[Finding], rule: str) -> Finding | None:
    return next((one for one in told if one.rule == rule), None)


def one(told: Sequence[Finding], rule: str) -> Finding:
    finding = found(told, rule)
    assert finding is not None, [each.rule for each in told]
    return finding


def words(messages: Sequence[Message]) -> str:
    return "\n".join(message.render() for message in messages)


# What is healthy, empty or broken.

HEALTHY = [
    row("MatMulV3", 52_000, 96, units=Units(cube_ratio=0.74, mte2_ratio=0.94, cube_utilization=0.95)),
    row(
        "FlashAttentionScoreGrad",
        24_000,
        24,
        core="MIX_AIC",
        units=Units(cube_ratio=0.45, vector_ratio=0.42, mte2_ratio=0.52, scalar_ratio=0.78),
    ),
    row("RmsNorm", 6_000, 49, units=Units(vector_ratio=0.55, mte2_ratio=0.7)),
    row("hcom_allReduce_", 9_000, 24, "communication"),
    row("Cast", 3_000, 60, "movement", max_us=90.0),
    row("Transpose", 2_500, 24, "movement"),
    row("Add", 1_500, 48),
    row("Mul", 1_200, 48),
    row("SwiGlu", 1_500, 24),
    row("GatherV2", 300, 2, "movement"),
    row("ReduceSum", 250, 10),
    row("ApplyAdamWV2", 4_000, 12),
]


def test_a_healthy_profile_has_no_warning() -> None:
    assert [one.rule for one in advice.profile(table(HEALTHY)) if one.severity != "info"] == []


def test_a_healthy_step_trace_has_no_warning() -> None:
    steps = [
        StepTrace(f"rank {at}", rank=at, total_us=1e6, computing_us=850e3 + 2e3 * at, free_us=60e3, **EXPOSED)
        for at in range(8)
    ]
    assert advice.profile(ProfileResult(format="cluster_step_trace_time", steps=tuple(steps))) == ()


EXPOSED: dict[str, Any] = {"communication_us": 200e3, "communication_not_overlapped_us": 90e3}


def healthy_step(**changes: Any) -> HotspotsSnapshot:
    rows = [
        row("aten::addmm", 60_000, 32, clock="host"),
        row("aten::mm", 50_000, 64, clock="host"),
        row("aten::gelu", 9_000, 8, clock="host"),
        row("aten::copy_", 8_000, 120, "movement", clock="host"),
        row("aten::item", 20, 1, "synchronisation", clock="host"),
        *[dataclasses.replace(each, clock="host") for each in others(9_000)],
    ]
    fields: dict[str, Any] = {
        "state": "live",
        "clock": "host",
        "runs_on": "cpu",
        "step_time_us": 152_000.0,
        "outside_us": 9_000.0,
        "rows": ranked(rows)[0],
        "phases": phases(data=0.02, forward=0.33, backward=0.55, optimizer=0.08, other=0.02),
        "syncs": (Sync("aten::item", 1.0, 20.0, Site("train.py", 41)),),
        "jitter": Jitter(200, 0.152, 0.18, (Outlier(77, 0.0, 0.25, 1.6),)),
    }
    return HotspotsSnapshot(**{**fields, **changes})


def phases(**shares: float) -> tuple[Phase, ...]:
    return tuple(Phase(name, share * 152_000, share) for name, share in shares.items())  # type: ignore[arg-type]


def test_a_healthy_step_has_no_warning() -> None:
    told = advice.live(healthy_step())
    assert [each.rule for each in told if each.severity != "info"] == []
    assert {each.rule for each in told} == {"concentrated", "syncs", "jitter"}


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [row("Add", 1.0, 1)],
        [row("Cast", 930.0, 1, "movement"), row("Conv2D", 24.0, 1), row("Add", 1.2, 1)],
        [row("Cast", 0.0, 0, "movement"), row("Add", 0.0, 0)],
        [row("Cast", math.nan, 240, "movement"), row("Add", math.inf, 240), row("Mul", -5.0, 240)],
    ],
)
def test_of_an_empty_tiny_or_broken_table_nothing_is_said(rows: list[Row]) -> None:
    assert advice.profile(table(rows)) == ()
    assert advice.live(HotspotsSnapshot(state="live", rows=ranked(rows)[0])) == ()


def test_nothing_known_is_nothing_said() -> None:
    assert advice.live(HotspotsSnapshot()) == ()
    assert advice.profile(ProfileResult(format="")) == ()
    assert advice.profile(ProfileResult(format="step_trace_time", steps=(StepTrace("step 1"),))) == ()


def test_steps_and_calls_with_numbers_that_are_none() -> None:
    nan = math.nan
    step = StepTrace("1", total_us=1e6, computing_us=nan, free_us=math.inf, bubble_us=None, preparing_us=-1.0)
    assert advice.profile(ProfileResult(format="step_trace_time", steps=(step, step))) == ()
    broken = healthy_step(
        device=DeviceUse(nan, nan, nan, host_bound_share=nan),
        phases=phases(data=nan, optimizer=math.inf),
        step_time_us=nan,
        syncs=(Sync("aten::item", nan, nan),),
        jitter=Jitter(100, nan, nan, (Outlier(1, 0.0, nan, nan),)),
        rows=(),
    )
    assert advice.live(broken) == ()


# Concentrated or flat.


def test_top_five_over_half_is_concentrated_and_names_them() -> None:
    told = one(advice.profile(table([row("MatMulV3", 60_000), *others(40_000)])), "concentrated")
    assert told.headline.render() == "concentrated: 5 of 13 operators take 73 % of the time"
    assert "MatMulV3 60 %" in words(told.evidence)
    assert told.severity == "info"
    assert "measure the whole net again" in words(told.advice)


def test_just_under_half_is_not() -> None:
    assert found(advice.profile(table(others(100_000, 11))), "concentrated") is None


def test_twenty_over_seventy_per_cent_is_concentrated() -> None:
    wide = [row(f"Op{at:02d}x", 4_000) for at in range(20)] + [
        row(f"Small{at:02d}x", 500) for at in range(40)
    ]
    told = one(advice.profile(table(wide)), "concentrated")
    assert told.headline.render() == "concentrated: 20 of 60 operators take 80 % of the time"
    even = [row(f"Op{at:02d}x", 2_000) for at in range(60)]
    assert found(advice.profile(table(even)), "concentrated") is None


def test_of_a_cut_table_nothing_is_concentrated() -> None:
    rows = [row("MatMulV3", 60_000), *others(20_000)]
    assert one(advice.profile(table(rows, 82_000)), "concentrated")
    assert found(advice.profile(table(rows, 200_000)), "concentrated") is None


def test_few_rows_are_not_concentrated() -> None:
    assert found(advice.profile(table([row("MatMulV3", 90_000), *others(10_000, 5)])), "concentrated") is None


def test_flat_over_hundreds_of_small_calls() -> None:
    small = [row(f"Op{at:02d}x", 100, 10) for at in range(60)]
    told = one(advice.profile(table(small)), "flat")
    assert told.headline.render() == "flat: no operator stands out, 600 small calls take 100 % of the time"
    assert told.severity == "warning"
    few = [row(f"Op{at:02d}x", 100, 3) for at in range(60)]
    long = [row(f"Op{at:02d}x", 1_000, 10) for at in range(60)]
    for rows in (few, long):
        assert found(advice.profile(table(rows)), "flat") is None


# Movement.


def test_a_high_share_of_movement() -> None:
    told = one(advice.profile(table([row("Transpose", 25_000, 20, "movement"), *others(75_000)])), "movement")
    assert told.headline.render().startswith("movement takes 25 %")
    assert told.severity == "warning"
    near = advice.profile(table([row("Transpose", 19_000, 20, "movement"), *others(81_000)]))
    assert found(near, "movement") is None


def test_movement_of_a_cut_table_is_at_least_that() -> None:
    rows = [row("Transpose", 30_000, 20, "movement"), *others(50_000)]
    told = one(advice.profile(table(rows, 120_000)), "movement")
    assert told.headline.render().startswith("movement takes at least 25 %")


def test_movement_on_the_host_is_only_described() -> None:
    rows = [row("aten::copy_", 40_000, 20, "movement", clock="host"), *others(60_000)]
    kept = ranked(rows)[0]
    assert one(advice.live(healthy_step(rows=kept)), "movement").severity == "info"
    # Of an accelerator these are times of launches, and a copy that waits looks like one that moves.
    assert found(advice.live(healthy_step(rows=kept, runs_on="npu")), "movement") is None


def slow(us: float, shapes: str = "1024,1024", dtypes: str = "FLOAT16", **more: Any) -> list[Row]:
    use = Use(shapes, dtypes, 10, us)
    moved = row("Transpose", us, 10, "movement", uses=(use,), **more)
    return [moved, *others(20 * us)]


def test_movement_out_of_proportion_to_its_bytes() -> None:
    # 2 MiB read and written, ten times, in 10 ms: 4.2 GB/s.
    told = one(advice.profile(table(slow(10_000))), "slow_movement")
    assert told.headline.render() == "Transpose moves 4.2 GB/s: too slow for its bytes, 4.8 % of the time"
    assert "10 calls of 1.00 ms" in words(told.evidence)


@pytest.mark.parametrize(
    "rows",
    [
        # 84 GB/s.
        slow(10_000, "1024,1024;1024,19456", "FLOAT16;FLOAT16"),
        slow(10_000, dtypes="SOMETHING"),
        slow(10_000, "N/A"),
        slow(10_000, dtypes=""),
        slow(400),
        slow(10_000, clock="host"),
    ],
)
def test_movement_that_is_not_known_to_be_slow(rows: list[Row]) -> None:
    assert found(advice.profile(table(rows)), "slow_movement") is None


def test_many_tiny_transposes() -> None:
    def told(calls: int, us: float, name: str = "Transpose", total_calls: int = 4) -> Finding | None:
        rows = [row(name, us, calls, "movement"), *others(20_000, calls=total_calls)]
        return found(advice.profile(table(rows)), "tiny_moves")

    tiny = told(200, 1_000)
    assert tiny is not None
    assert tiny.headline.render() == "200 tiny transposes and gathers of 5.0 µs take 4.8 % of the time"
    assert "contiguous" in words(tiny.advice)
    assert told(200, 1_000, "GatherV2") is not None
    assert told(90, 1_000) is None
    assert told(200, 500) is None
    assert told(200, 8_000) is None
    assert told(200, 1_000, "ConcatD") is None
    assert told(200, 1_000, total_calls=400) is None


def test_a_storm_of_casts_with_its_skew() -> None:
    rows = [row("Cast", 20_000, 240, "movement", max_us=2_500.0), *others(180_000)]
    told = one(advice.profile(table(rows)), "cast_storm")
    assert told.headline.render().startswith("Cast is called 240 times and takes 10 %")
    assert "2.50 ms, 30 times the average" in words(told.evidence)
    assert told.severity == "warning"
    assert told.ops == ("Cast",)


def test_the_storm_is_told_of_a_cut_table_too() -> None:
    rows = [row("Cast", 23_000, 240, "movement"), row("MatMulV3", 20_000, 45)]
    told = advice.profile(table(rows, 218_000))
    assert [each.rule for each in told] == ["cast_storm"]
    assert "11 %" in told[0].headline.render()
    assert "times the average" not in words(told[0].evidence)


@pytest.mark.parametrize(("calls", "us"), [(90, 20_000), (240, 9_000)])
def test_some_casts_are_no_storm(calls: int, us: float) -> None:
    rows = [row("Cast", us, calls, "movement"), *others(200_000 - us)]
    assert found(advice.profile(table(rows)), "cast_storm") is None


def test_casts_that_are_most_of_the_movement_are_told_once() -> None:
    told = advice.profile(table([row("Cast", 30_000, 240, "movement"), *others(70_000)]))
    assert found(told, "cast_storm") is not None
    assert found(told, "movement") is None


# Cores and shapes.


def test_operators_on_the_ai_cpu() -> None:
    told = one(advice.profile(table([row("Unique", 3_000, 12, core="AI_CPU"), *others(97_000)])), "ai_cpu")
    assert told.headline.render() == "12 calls run on the AI CPU and take 3.0 %"
    assert (told.severity, told.attribution) == ("warning", "exact")
    little = one(advice.profile(table([row("Unique", 1_000, 12, core="AI_CPU"), *others(99_000)])), "ai_cpu")
    assert little.severity == "info"
    none = advice.profile(table([row("Unique", 400, 12, core="AI_CPU"), *others(99_600)]))
    assert found(none, "ai_cpu") is None
    assert found(advice.profile(table(others(100_000))), "ai_cpu") is None


def test_an_operator_that_is_only_partly_on_the_ai_cpu() -> None:
    told = one(
        advice.profile(table([row("Cast", 3_000, 12, core="AI_CPU/AI_VECTOR_CORE"), *others(97_000)])),
        "ai_cpu",
    )
    assert (told.headline.render(), told.attribution) == (
        "12 calls take 3.0 %, much of it on the AI CPU",
        "likely",
    )


def test_shapes_that_hardly_repeat() -> None:
    def told(shapes: int | None, calls: int, **more: Any) -> Finding | None:
        rows = [row("MatMulV3", 5_000, calls, shapes_seen=shapes), *others(95_000)]
        return found(advice.profile(table(rows, **more)), "dynamic_shapes")

    single = told(80, 100)
    assert single is not None
    assert single.headline.render() == "MatMulV3 had 80 sets of shapes in 100 calls: hardly one comes twice"
    assert single.severity == "info"
    assert "compare two steps" in words(single.evidence)
    several = told(80, 100, steps=(StepTrace("1", "1"), StepTrace("2", "2")))
    assert several is not None
    assert several.severity == "warning"
    assert told(40, 45) is None
    assert told(80, 400) is None
    assert told(None, 100) is None


def test_more_shapes_than_a_step_has_calls_come_from_several_steps() -> None:
    rows = [row("aten::mm", 50_000, 8, clock="host", shapes_seen=24), *others(50_000)]
    told = one(advice.live(healthy_step(rows=ranked(rows)[0])), "dynamic_shapes")
    assert told.severity == "warning"
    assert "24 sets of shapes in 8 calls a step" in told.headline.render()
    rows[0] = dataclasses.replace(rows[0], shapes_seen=8)
    assert found(advice.live(healthy_step(rows=ranked(rows)[0])), "dynamic_shapes") is None


# The units of the cores.


def limit(units: Units, us: float = 50_000, calls: int = 10, **more: Any) -> tuple[str, ...]:
    rules = ("memory_bound", "scalar_bound", "one_core", "low_utilisation", "tiling")
    told = advice.profile(table([row("Op", us, calls, units=units, **more), *others(50_000)]))
    return tuple(each.rule for each in told if each.rule in rules)


@pytest.mark.parametrize(
    ("units", "rule"),
    [
        (Units(vector_ratio=0.25, mte2_ratio=0.84), "memory_bound"),
        (Units(cube_ratio=0.49, mte2_ratio=0.8), "memory_bound"),
        (Units(cube_ratio=0.0, vector_ratio=0.0, scalar_ratio=0.99, mte2_ratio=0.0), "scalar_bound"),
        (Units(cube_ratio=0.7, mte2_ratio=0.6, block_num=1.0), "one_core"),
        (Units(cube_ratio=0.4, mte2_ratio=0.6, scalar_ratio=0.3), "low_utilisation"),
        (Units(vector_ratio=0.2, mte2_ratio=0.2, mte3_ratio=0.1), "low_utilisation"),
        (Units(cube_ratio=0.8, mte2_ratio=0.9, cube_utilization=0.3), "tiling"),
    ],
)
def test_what_limits_an_operator(units: Units, rule: str) -> None:
    assert limit(units) == (rule,)


@pytest.mark.parametrize(
    "units",
    [
        Units(),
        Units(mte2_ratio=0.95),
        Units(cube_ratio=0.5, mte2_ratio=0.95),
        Units(cube_ratio=0.8, mte2_ratio=0.9, cube_utilization=0.95, scalar_ratio=0.9),
        Units(cube_ratio=0.8, mte2_ratio=0.9, block_num=20.0),
        # Of a vector kernel that moves much, or whose memory was not counted, its own ratio tells nothing.
        Units(vector_ratio=0.3),
        Units(vector_ratio=0.3, mte2_ratio=0.6),
        Units(vector_ratio=math.nan),
    ],
)
def test_what_does_not_tell_a_limit(units: Units) -> None:
    assert limit(units) == ()


def test_small_short_and_moving_operators_are_left_alone() -> None:
    bound = Units(vector_ratio=0.25, mte2_ratio=0.84)
    assert limit(bound, 2_000) == ()
    assert limit(bound, 50_000, 10_000) == ()
    assert limit(bound, kind="movement") == ()


def test_cube_and_vector_of_a_mixed_kernel_take_turns() -> None:
    units = Units(cube_ratio=0.45, vector_ratio=0.42, mte2_ratio=0.52)
    assert limit(units, core="MIX_AIC") == ()
    assert limit(units, core="AI_CORE") == ("low_utilisation",)


def test_the_numbers_of_the_units_are_the_evidence() -> None:
    units = Units(vector_ratio=0.25, mte2_ratio=0.84)
    told = one(advice.profile(table([row("Add", 50_000, 10, units=units), *others(50_000)])), "memory_bound")
    assert "vector 25 %, mte2 84 %" in words(told.evidence)
    assert told.severity == "warning"
    assert "NC1HWC0" in words(told.advice)


def test_busy_and_slower_than_its_baseline_is_tiling() -> None:
    units = Units(cube_ratio=0.8, mte2_ratio=0.9)
    now = ranked([row("MatMulV3", 60_000, 10, units=units), *others(40_000)])[0]
    before = ranked([row("MatMulV3", 40_000, 10), *others(40_000)])[0]
    rows, gone = compare(now, before)
    told = advice.profile(ProfileResult(format="op_statistic", rows=rows, gone=gone, baseline="old.csv"))
    assert found(told, "tiling") is not None


# Waiting.


def test_high_wait() -> None:
    def told(wait_us: float, calls: int = 100) -> Finding | None:
        rows = [row("MatMulV3", 60_000, calls, wait_us=wait_us), *others(40_000)]
        return found(advice.profile(table(rows)), "wait")

    high = told(40_000)
    assert high is not None
    assert (
        high.headline.render()
        == "tasks wait 40.0 ms and run 60.0 ms: latency is not hidden, 40 % of the time"
    )
    assert "before MatMulV3: 40.0 ms in 100 calls" in words(high.evidence)
    assert told(20_000) is None
    assert told(40_000, 30) is None


def test_a_serial_tail_is_small_operators_that_wait_longer_than_they_run() -> None:
    def told(calls: int, us: float, wait_us: float) -> tuple[str, ...]:
        rows = [
            row("Add", us, calls, wait_us=wait_us),
            row("MatMulV3", 20_000, 20, wait_us=100.0),
            *others(10_000),
        ]
        return tuple(one.rule for one in advice.profile(table(rows)) if one.rule in ("serial_tail", "wait"))

    assert told(1_000, 3_000, 9_000) == ("serial_tail",)
    assert told(1_000, 3_000, 2_500) == ()
    assert told(1_000, 500, 1_000) == ()
    # One long pause is no tail.
    assert told(100, 300, 90_000) == ("wait",)


def test_communication_of_a_table_is_described_and_left_out_of_the_other_shares() -> None:
    rows = [
        row("hcom_allReduce_", 100_000, 5, "communication"),
        row("Unique", 4_000, 5, core="AI_CPU"),
        *others(96_000),
    ]
    told = advice.profile(table(rows))
    assert one(told, "communication").headline.render() == "communication takes 50 % of the operators' time"
    assert (one(told, "communication").severity, one(told, "communication").category) == (
        "info",
        "communication",
    )
    assert "4.0 %" in one(told, "ai_cpu").headline.render()
    assert "50 % of the table" in words(one(told, "ai_cpu").evidence)
    few = [row("hcom_allReduce_", 19_000, 5, "communication"), *others(81_000)]
    assert found(advice.profile(table(few)), "communication") is None


# Step traces.


def trace(computing: float, exposed: float, free: float, rank: int | None = None, **more: Any) -> StepTrace:
    return StepTrace(
        "step",
        rank=rank,
        total_us=computing + exposed + free,
        computing_us=computing,
        communication_not_overlapped_us=exposed,
        free_us=free,
        **more,
    )


def of_steps(*steps: StepTrace) -> tuple[Finding, ...]:
    return advice.profile(ProfileResult(format="step_trace_time", steps=steps))


def test_host_bound_and_communication_bound() -> None:
    told = of_steps(trace(320e3, 310e3, 370e3))
    assert [each.rule for each in told] == ["host_bound", "communication_bound"]
    assert told[0].headline.render() == "host-bound, likely: the device is free 37 % of the step"
    assert "31 %" in told[1].headline.render()
    assert told[1].category == "communication"
    assert "does not tell" in words(told[0].evidence)


def test_just_under_either_is_neither() -> None:
    assert of_steps(trace(620e3, 190e3, 190e3)) == ()


def test_free_time_that_is_preparing_is_not_the_host() -> None:
    assert [each.rule for each in of_steps(trace(600e3, 0, 400e3, preparing_us=250e3))] == ["preparing"]
    assert [each.rule for each in of_steps(trace(600e3, 0, 400e3, preparing_us=50e3))] == ["host_bound"]


def test_bubbles() -> None:
    told = of_steps(trace(700e3, 250e3, 50e3, bubble_us=220e3))
    assert [(each.rule, each.severity) for each in told] == [("bubble", "warning")]
    assert told[0].headline.render() == "pipeline bubbles take 22 % of the step"
    assert of_steps(trace(700e3, 150e3, 150e3, bubble_us=90e3)) == ()


def test_a_host_bound_straggler_is_pointed_out() -> None:
    ranks = [trace(80e3, 600e3, 1_000e3, 0), trace(80e3, 130e3, 1_470e3, 1), trace(80e3, 520e3, 1_080e3, 2)]
    ranks += [trace(80e3, 580e3, 1_020e3, 3)]
    told = one(of_steps(*ranks), "straggler")
    assert told.ranks == (1,)
    assert told.headline.render().startswith(
        "rank 1 is the straggler, host-bound: it waits least and is most idle"
    )
    assert told.severity == "warning"
    # What the others wait is no slow communication.
    assert found(of_steps(*ranks), "communication_bound") is None
    assert "at least 60 %" in one(of_steps(*ranks), "host_bound").headline.render()


def test_a_rank_that_computes_longest_is_a_straggler_of_another_kind() -> None:
    told = of_steps(*[trace(600e3, 300e3, 100e3, at) for at in range(3)], trace(850e3, 50e3, 100e3, 3))
    assert [each.rule for each in told] == ["straggler"]
    assert told[0].ranks == (3,)
    assert told[0].headline.render() == "rank 3 is slow at computing: it waits least, the others wait for it"


def test_two_late_ranks_are_both_named() -> None:
    told = of_steps(
        *[trace(600e3, 300e3, 100e3, at) for at in range(3)],
        *[trace(850e3, 50e3, 100e3, at) for at in (3, 4)],
    )
    assert told[0].ranks == (3, 4)


def test_of_even_ranks_nothing_is_said() -> None:
    assert of_steps(*[trace(800e3 + 5e3 * at, 120e3 - 5e3 * at, 80e3, at) for at in range(8)]) == ()


def test_a_rank_is_judged_over_all_its_steps() -> None:
    late = [trace(850e3, 50e3, 100e3, 1, step="1"), trace(600e3, 300e3, 100e3, 1, step="2")]
    early = [trace(600e3, 300e3, 100e3, 0, step="1"), trace(850e3, 50e3, 100e3, 0, step="2")]
    assert found(of_steps(*late, *early), "straggler") is None


def test_waiting_of_a_communication_profile() -> None:
    def told(wait: float | None) -> tuple[Finding, ...]:
        links = (Link("hcom_allReduce_", time_ms=100.0, wait_ms=wait), Link("HCCS", time_ms=90.0))
        return advice.profile(ProfileResult(format="communication", links=links))

    assert told(150.0)[0].headline.render() == "communication waits 60 % of its time for other ranks"
    assert told(150.0)[0].severity == "warning"
    assert told(40.0)[0].severity == "info"
    assert told(20.0) == ()
    assert told(None) == ()


# Calls of the API.


def calls_of(sync_us: float) -> tuple[Finding, ...]:
    rows = [
        row("aclrtSynchronizeDevice", sync_us + 30, 6, "synchronisation", level="acl"),
        row("DeviceSynchronize", sync_us, 6, "synchronisation", level="runtime"),
        row("KernelLaunch", 20_000, 3_000, "host", level="runtime"),
        row("launch", 25_000, 3_000, "host", level="node"),
    ]
    return advice.profile(table(rows))


def test_a_host_that_waits_is_normal_where_the_device_is_the_bottleneck() -> None:
    told = calls_of(180_000)
    assert [(each.rule, each.severity) for each in told] == [("host_waits", "info")]
    # One level only: 180 ms of 200, not 360 of 405.
    assert told[0].headline.render() == "the host waits for the device 90 % of the time in calls of the API"
    assert "6 calls, 180.0 ms in all" in words(told[0].evidence)
    assert "normal where the device is the bottleneck" in words(told[0].advice)
    assert calls_of(15_000) == ()


# The live step.


def test_waiting_for_data() -> None:
    told = one(advice.live(healthy_step(phases=phases(data=0.23, forward=0.4, backward=0.37))), "data_wait")
    assert told.headline.render() == "the step waits for data 23 % of its time"
    assert "num_workers" in words(told.advice)
    near = advice.live(healthy_step(phases=phases(data=0.09, forward=0.5, backward=0.41)))
    assert found(near, "data_wait") is None


def test_the_phases_that_take_much_are_described() -> None:
    told = advice.live(healthy_step(phases=phases(forward=0.3, backward=0.2, optimizer=0.3, other=0.2)))
    assert one(told, "optimizer").severity == "info"
    assert "20 % of the step is in neither" in one(told, "other_phase").headline.render()
    less = advice.live(healthy_step(phases=phases(forward=0.4, backward=0.2, optimizer=0.25, other=0.15)))
    assert found(less, "optimizer") is None
    assert found(less, "other_phase") is None


def device(**changes: Any) -> DeviceUse:
    fields: dict[str, Any] = {"busy_us": 60_000.0, "idle_us": 40_000.0, "idle_share": 0.4, "kernels": 5_000}
    return DeviceUse(**{**fields, **changes})


def on_npu(**changes: Any) -> HotspotsSnapshot:
    fields: dict[str, Any] = {
        "clock": "device",
        "runs_on": "npu",
        "rows": (),
        "jitter": None,
        "syncs": (),
        "step_time_us": 100_000.0,
    }
    return healthy_step(**{**fields, **changes})


def test_host_bound() -> None:
    told = one(advice.live(on_npu(device=device(host_bound_share=0.35))), "host_bound")
    assert told.headline.render() == "host-bound: the device is idle 35 % of the step while the host launches"
    assert "5,000 kernels of 12.0 µs, one each 20.0 µs" in words(told.evidence)


@pytest.mark.parametrize(
    "snapshot",
    [
        on_npu(device=device(host_bound_share=None)),
        on_npu(device=device(host_bound_share=0.08)),
        # The data explain it.
        on_npu(device=device(host_bound_share=0.35), phases=phases(data=0.35, forward=0.65)),
        # The kernels of communication are no idle time.
        on_npu(
            device=device(idle_us=2_000.0, idle_share=0.02, communication_us=50_000.0, host_bound_share=0.35)
        ),
        healthy_step(),
    ],
)
def test_idle_time_that_is_not_the_hosts(snapshot: HotspotsSnapshot) -> None:
    assert found(advice.live(snapshot), "host_bound") is None


def test_a_profile_with_the_use_of_its_device() -> None:
    result = ProfileResult(format="trace_view", device=device(host_bound_share=0.35))
    assert [each.rule for each in advice.profile(result)] == ["host_bound"]
    stepped = dataclasses.replace(result, steps=(trace(400e3, 0, 600e3),))
    assert [each.rule for each in advice.profile(stepped)] == ["host_bound"]


def test_a_table_of_tasks_does_not_tell_why_the_device_is_idle() -> None:
    def told(**changes: Any) -> tuple[str, ...]:
        return tuple(each.rule for each in advice.profile(ProfileResult(format="", device=device(**changes))))

    assert told() == ("device_idle",)
    assert told(longest_idle_us=30_000.0) == ()
    assert told(kernels=40) == ()
    assert told(idle_us=14_000.0) == ()


def test_a_wait_that_another_stream_hides_is_none() -> None:
    rows = [row("MatMulV3", 60_000, 100, wait_us=40_000.0), *others(40_000)]
    assert found(advice.profile(table(rows, device=device(idle_us=30e3, idle_share=0.3))), "wait") is not None
    busy = device(busy_us=95e3, idle_us=5e3, idle_share=0.05)
    assert found(advice.profile(table(rows, device=busy)), "wait") is None


def test_python_between_the_operators_of_a_cpu() -> None:
    told = one(advice.live(healthy_step(outside_us=60_000.0)), "python")
    assert told.headline.render() == "37 % of the step is in no operator: Python between them"
    for near in (
        healthy_step(outside_us=47_000.0),
        healthy_step(outside_us=60_000.0, phases=phases(data=0.3, forward=0.7)),
        healthy_step(outside_us=60_000.0, runs_on="npu"),
    ):
        assert found(advice.live(near), "python") is None


ITEM = Sync("aten::item", 24.0, 9_000.0, Site("/home/someone/train.py", 212))


def test_many_short_waits_with_their_lines() -> None:
    told = one(advice.live(on_npu(device=device(short_waits=24), syncs=(ITEM,), syncs_known=True)), "syncs")
    assert told.headline.render() == "24 short waits a step: each read of a scalar drains the device"
    assert "aten::item at /home/someone/train.py:212: 24 a step, 9.00 ms" in words(told.evidence)
    assert told.severity == "warning"
    assert "press p" not in words(told.advice)


def test_where_the_lines_are_not_known_the_key_is_named() -> None:
    told = one(advice.live(on_npu(device=device(short_waits=24))), "syncs")
    assert "press p" in words(told.advice)


def test_a_wait_while_the_device_works_is_no_loss() -> None:
    busy = device(busy_us=99_000.0, idle_us=1_000.0, idle_share=0.01, short_waits=24)
    told = one(
        advice.live(on_npu(device=busy, syncs=(dataclasses.replace(ITEM, time_us=70_000.0),))), "syncs"
    )
    assert told.severity == "info"
    no_use = one(advice.live(on_npu(syncs=(dataclasses.replace(ITEM, time_us=70_000.0),))), "syncs")
    assert no_use.severity == "info"
    idle = one(advice.live(on_npu(device=device(), syncs=(dataclasses.replace(ITEM, calls=2.0),))), "syncs")
    assert (idle.severity, idle.headline.render()) == (
        "warning",
        "the host waits for the device in 2 calls a step",
    )


def test_on_a_cpu_reads_of_scalars_are_only_named() -> None:
    told = one(advice.live(healthy_step(syncs=(ITEM,))), "syncs")
    assert (told.severity, told.headline.render()) == ("info", "24 reads of scalars a step")
    assert "train.py:212" in words(told.evidence)
    rare = healthy_step(syncs=(dataclasses.replace(ITEM, calls=0.02),))
    assert found(advice.live(rare), "syncs") is None


def test_uneven_steps_with_their_causes() -> None:
    slow_steps = (
        Outlier(1_000, 0.0, 3.0, 20.0, Message("a checkpoint was written")),
        Outlier(1_040, 0.0, 0.6, 4.0),
    )
    told = one(advice.live(healthy_step(jitter=Jitter(200, 0.15, 2.9, slow_steps))), "jitter")
    assert told.headline.render() == "2 steps took 4.0 times the median or more: 11 % of the time lost"
    assert [message.render() for message in told.evidence][1:3] == [
        "step 1,000: 3.00 s, 20.0 times the median",
        "a checkpoint was written",
    ]
    assert "nothing was seen at that time" in words(told.evidence)
    assert (told.severity, told.step, told.count) == ("warning", 1_000, 2)
    for even in (Jitter(200, 0.15, 0.2, (Outlier(7, 0.0, 0.2, 1.4),)), Jitter(5, 0.15, 3.0, slow_steps)):
        assert found(advice.live(healthy_step(jitter=even)), "jitter") is None


# Against a baseline.


def compared(now: list[Row], before: list[Row], since_step: int | None = None) -> tuple[Finding, ...]:
    rows, gone = compare(ranked(now)[0], ranked(before)[0], since_step)
    if since_step is not None:
        return advice.live(on_npu(rows=rows))
    return advice.profile(ProfileResult(format="op_statistic", rows=rows, gone=gone, baseline="old.csv"))


CALM = others(80_000)


def test_an_operator_that_became_slower_since_a_step() -> None:
    told = one(
        compared(
            [row("Cast", 13_100, 131, "movement"), *CALM],
            [row("Cast", 10_000, 100, "movement"), *CALM],
            1_000,
        ),
        "slower",
    )
    assert told.headline.render() == "Cast +31 % since step 1,000: a cast loop per weight?"
    assert "it is called 1.31 times as often, now 131" in words(told.evidence)
    assert told.severity == "warning"
    assert told.step == 1_000


def test_a_slower_call_is_about_its_inputs() -> None:
    told = one(
        compared([row("MatMulV3", 14_000, 100), *CALM], [row("MatMulV3", 10_000, 100), *CALM]), "slower"
    )
    assert told.headline.render() == "MatMulV3 +40 % against the baseline"
    assert "a call took 100 µs and takes 140 µs" in words(told.evidence)
    assert "look at its inputs" in words(told.advice)


def test_noise_is_no_finding() -> None:
    told = compared([row("MatMulV3", 10_400, 100), *CALM], [row("MatMulV3", 10_000, 100), *CALM], 1_000)
    assert [each.rule for each in told if each.rule in ("slower", "faster", "no_gain")] == []


def test_everything_slower_is_the_machine() -> None:
    before = [row("MatMulV3", 40_000, 100), *CALM]
    now = [dataclasses.replace(each, self_time_us=each.self_time_us * 1.2) for each in before]
    told = compared(now, before, 500)
    assert "+20 % in the median" in one(told, "all_slower").headline.render()
    assert found(told, "slower") is None


def test_a_faster_operator_is_measured_by_the_whole() -> None:
    before = [row("MatMulV3", 40_000, 100), row("TransData", 5_000, 20, "movement"), *CALM]
    gain = compared([row("MatMulV3", 28_000, 100), row("TransData", 5_000, 20, "movement"), *CALM], before)
    assert one(gain, "faster").headline.render() == "MatMulV3 -30 %, all operators together -10 %"
    none = compared([row("MatMulV3", 28_000, 100), row("TransData", 18_000, 20, "movement"), *CALM], before)
    told = one(none, "no_gain")
    assert told.headline.render() == "MatMulV3 -30 %, but all operators together +1 %: nothing is gained"
    assert "measure the whole net again" in words(told.advice)
    assert found(none, "slower") is not None


def test_a_profile_of_more_steps_is_not_slower() -> None:
    before = [row("MatMulV3", 40_000, 100), *CALM]
    now = [
        dataclasses.replace(each, self_time_us=each.self_time_us * 2, calls=each.calls * 2) for each in before
    ]
    assert [each.rule for each in compared(now, before) if each.rule != "concentrated"] == []


def test_new_operators_are_named() -> None:
    told = one(compared([row("Pad", 20_000, 100), *CALM], CALM), "new")
    assert told.headline.render() == "not in the baseline: Pad 20 %"
    assert found(compared([row("Pad", 2_000, 100), *CALM], CALM), "new") is None


# The whole.


def test_warnings_come_first_and_the_costly_before_the_cheap() -> None:
    rows = [
        row("Cast", 30_000, 300, "movement"),
        row("Transpose", 24_000, 3_000, "movement"),
        row("Unique", 3_000, 10, core="AI_CPU"),
        row("hcom_allReduce_", 40_000, 10, "communication"),
        row("Heavy", 30_000, 10, units=Units(vector_ratio=0.2, mte2_ratio=0.9)),
        row("Odd", 20_000, 10, units=Units(cube_ratio=0.2, mte2_ratio=0.3)),
        row("Loop", 20_000, 10, units=Units(vector_ratio=0.1, scalar_ratio=0.95, mte2_ratio=0.1)),
        *others(40_000),
    ]
    told = advice.profile(table(rows))
    assert len(told) == 6
    levels = [each.severity for each in told]
    assert levels == sorted(levels, key=["warning", "info"].index)
    assert told[0].rule == "movement"


def test_foreign_names_are_bounded_and_on_one_line() -> None:
    rows = [row("Evil\x1b[31m\n{x}" + "y" * 500, 60_000), *others(40_000)]
    told = one(advice.profile(table(rows)), "concentrated")
    text = words(told.evidence)
    assert "\x1b" not in text
    assert len(text) < 400
    assert "{x}" in text


def test_each_sentence_fills_all_its_places() -> None:
    snapshots = [
        on_npu(device=device(host_bound_share=0.35, short_waits=24), syncs=(ITEM,)),
        healthy_step(outside_us=60_000.0, phases=phases(data=0.2, optimizer=0.3, other=0.3)),
    ]
    results = [table(HEALTHY), ProfileResult(format="", steps=(trace(320e3, 310e3, 370e3),))]
    told = [each for snapshot in snapshots for each in advice.live(snapshot)]
    told += [each for result in results for each in advice.profile(result)]
    for each in told:
        for message in (each.headline, *each.evidence, *each.advice):
            places = {place for _, place, _, _ in string.Formatter().parse(message.text) if place is not None}
            assert places == set(dict(message.params)), message.text


# Bytes.


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("DT_BF16", 2),
        ("FLOAT16", 2),
        ("FLOAT", 4),
        ("float", 4),
        ("c10::Half", 2),
        ("c10::BFloat16", 2),
        ("torch.float32", 4),
        ("INT64", 8),
        ("DT_UINT8", 1),
        ("BOOL", 1),
        ("long int", 8),
        ("complex64", 8),
        ("UNDEFINED", None),
        ("", None),
        ("int0", None),
        ("float99999999", None),
    ],
)
def test_the_size_of_a_type(dtype: str, size: float | None) -> None:
    assert item_bytes(dtype) == size


@pytest.mark.parametrize(
    ("shapes", "numbers"),
    [
        ("81920,4096;8192", [81920 * 4096, 8192]),
        ('"4,1025"', [4100]),
        ("[[4, 8], [8], []]", [32, 8, 1]),
        ("", None),
        ("N/A", None),
        ("4,-1", None),
        ("9" * 30_000, None),
    ],
)
def test_elements_of_shapes(shapes: str, numbers: list[int] | None) -> None:
    assert elements(shapes) == numbers


def test_bytes_that_a_copy_moves() -> None:
    assert moved_bytes(Use("1024,1024;16", "FLOAT16;INT64")) == 2 * (1024 * 1024 * 2 + 16 * 8)
    assert moved_bytes(Use("1024,1024;16", "FLOAT16")) is None
