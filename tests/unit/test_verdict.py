"""Each word of the vocabulary from series that can mean only that; the numbers it is said with."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from ascend_tui_plugins.memory.forecast import Facts
from ascend_tui_plugins.memory.offline import judge_columns
from ascend_tui_plugins.memory.snapshot import MemoryValues
from ascend_tui_plugins.memory.trend import Track
from ascend_tui_plugins.memory.verdict import Diagnosis, judge

MIB = 1 << 20
GIB = 1 << 30
STEPS = 600
Level = Callable[[int], float]


def flat(level: float) -> Level:
    return lambda step: level


def rising(level: float, rate: float, after: int = 200) -> Level:
    return lambda step: level + rate * max(0, step - after)


def once(level: float, size: float, at: int = 200) -> Level:
    return lambda step: level + size * (step >= at)


def stairs(level: float, size: float, every: int = 90, until: int = 10**9) -> Level:
    return lambda step: level + size * (min(step, until) // every)


def seen(
    lead: str = "allocated",
    steps: int = STEPS,
    seed: int = 0,
    facts: dict[str, object] | None = None,
    **levels: Level,
) -> Diagnosis:
    """Judge `steps` steps of these quantities in MiB; a card of 16 GiB unless the facts say otherwise."""
    chooser = random.Random(seed)
    tracks: dict[str, Track] = {name: Track() for name in levels}
    for step in range(steps):
        for name, level in levels.items():
            breath = chooser.gauss(0.0, 0.3) if name in ("rss", "workers") else 0.0
            tracks[name].add(step, (level(step) + breath) * MIB)
    last = {name: int(track.last) for name, track in tracks.items()}
    now = {
        f"{name}_bytes": last[name]
        for name in ("allocated", "reserved", "device_used", "rss")
        if name in last
    }
    if "reserved" in last:
        now["outside_bytes"] = last.get("outside", 0)
        now["device_used_bytes"] = last["reserved"] + now["outside_bytes"]
    if lead != "rss":
        now["device_total_bytes"] = 16 * GIB
    given = dict(facts or {})
    now.update(given.pop("now", {}))  # type: ignore[call-overload]
    peak = {"allocated_bytes": int(tracks["peak"].last)} if "peak" in tracks else {}
    return judge(tracks, Facts(lead=lead, now=MemoryValues(**now), peak=MemoryValues(**peak), **given))  # type: ignore[arg-type]


def npu(**levels: Level) -> dict[str, Level]:
    """Return a healthy card with these quantities otherwise."""
    calm = {"allocated": 1000.0, "peak": 1800.0, "reserved": 1900.0, "outside": 500.0, "rss": 3000.0}
    return {**{name: flat(level) for name, level in calm.items()}, **levels}


def test_what_stands_still_is_steady() -> None:
    found = seen(**npu())
    assert (found.verdict.kind, found.forecast) == ("steady", None)
    assert found.verdict.confidence >= 0.7


def test_live_tensors_that_grow_are_a_leak_with_its_date_and_rate() -> None:
    grow = rising(1000, 3.0)
    found = seen(
        **npu(allocated=grow, peak=rising(1800, 3.0), reserved=stairs(1900, 300, 100)), facts={"unit_s": 0.5}
    )
    assert found.verdict.kind == "leak"
    assert found.verdict.since_step == pytest.approx(200, abs=15)
    assert found.slope is not None
    assert found.slope.quantity == "allocated"
    assert found.slope.low <= 3.0 * MIB * 1.001
    assert found.forecast is not None
    assert found.forecast.step_low <= found.forecast.step <= (found.forecast.step_high or 0)
    assert found.forecast.seconds == pytest.approx((found.forecast.step - STEPS + 1) * 0.5, rel=0.01)


def test_seven_kilobytes_a_step_are_found_in_the_end() -> None:
    assert seen(steps=STEPS, **npu(allocated=rising(1000, 7 / 1024, 0))).verdict.kind == "leak"
    found = seen("rss", steps=3000, rss=rising(3000, 7 / 1024, 0))
    assert found.verdict.kind == "leak"
    assert found.slope is not None
    assert found.slope.bytes_per_step == pytest.approx(7 * 1024, rel=0.1)


def test_a_reserve_that_grows_above_its_tensors_is_cache() -> None:
    found = seen(**npu(reserved=stairs(1900, 400, 90, 400)))
    assert found.verdict.kind == "cache"
    assert found.forecast is None


def test_a_reserve_in_pieces_is_fragmentation() -> None:
    pieces = npu(reserved=stairs(1900, 400, 90, 400), splits=flat(1500))
    assert seen(**pieces).verdict.kind == "fragmentation"
    kept = {"pinned_free_bytes": 900 * MIB}
    assert seen(**npu(), facts=kept).verdict.kind == "fragmentation"


def test_larger_work_within_a_step_is_a_buffer() -> None:
    ramp = stairs(1800, 100, 30, 400)
    found = seen(**npu(peak=ramp, reserved=lambda step: ramp(step) * 1.05))
    assert found.verdict.kind == "buffer_growth"
    once_only = seen(**npu(allocated=once(1000, 300), peak=once(1800, 300), reserved=once(1900, 320)))
    assert once_only.verdict.kind == "buffer_growth"
    assert once_only.verdict.since_step == pytest.approx(200, abs=4)


def test_growth_outside_torch_is_somebody_elses() -> None:
    assert seen(**npu(outside=rising(500, 2.0))).verdict.kind == "external"
    assert seen(**npu(outside=once(500, 2000))).verdict.kind == "external"
    assert seen(**npu(outside=flat(9000))).verdict.kind == "external"


def test_host_memory_that_grows_beside_a_calm_device_is_a_host_leak() -> None:
    assert seen(**npu(rss=rising(3000, 2.0))).verdict.kind == "host_leak"
    assert seen(**npu(workers=rising(800, 2.0))).verdict.kind == "host_leak"
    assert seen("rss", rss=flat(3000), workers=rising(800, 2.0)).verdict.kind == "host_leak"


def test_tensors_that_fill_the_card_and_do_not_grow_are_its_capacity() -> None:
    full = npu(allocated=flat(15000), peak=flat(15900), reserved=flat(16000), outside=flat(100))
    assert seen(**full).verdict.kind == "capacity"


def test_the_proof_by_reuse_off() -> None:
    off = {"trimmed_for": 200.0, "returned_bytes": 700 * MIB}
    assert seen(**npu(), facts=off).verdict.kind == "cache"
    before = seen("rss", rss=rising(3000, 2.0))
    proven = seen("rss", rss=rising(3000, 2.0), facts={"trimmed_for": 200.0})
    assert before.verdict.kind == proven.verdict.kind == "leak"
    assert proven.verdict.confidence > before.verdict.confidence
    assert before.verdict.settles is not None
    assert proven.verdict.settles is not None
    assert (dict(before.verdict.settles.params)["key"], dict(proven.verdict.settles.params)["key"]) == (
        "r",
        "w",
    )


def test_what_grew_while_the_training_began_is_no_news() -> None:
    assert seen(steps=1000, **npu(allocated=once(1000, 900, 20))).verdict.kind == "steady"


def test_too_little_is_undecided_and_says_how_long_to_wait() -> None:
    found = seen(steps=30, **npu(allocated=rising(1000, 50.0, 0)))
    assert found.verdict.kind == "undecided"
    assert found.verdict.settles is not None
    assert judge({}, Facts(lead="rss")).verdict.kind == "undecided"


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ({"device_used": [9000, 9090, 9181, 9270, 9361, 9450]}, "leak"),
        ({"device_used": [4000, 6200, 6300, 6310, 6310, 6310, 6310]}, "buffer_growth"),
        ({"device_used": [8000, 8000, 2100, 2100, 2100]}, "steady"),
        ({"device_used": [7000] * 6 + [15000] * 6}, "buffer_growth"),
        ({"rss": [1500, 2600, 3300, 3700, 4000, 4210, 4350, 4480]}, "buffer_growth"),
        ({"rss": [900, 1130, 870, 1210, 1160, 860, 1190]}, "undecided"),
        ({"outside": [0, 64, 64, 64]}, "external"),
        ({"reserved": [9000, 13000, 18000, 18000], "allocated": [3000, 3500, None, 0]}, "cache"),
        ({"segment": [8000, 8000], "allocated": [0, 350]}, "fragmentation"),
        ({"device_used": [5000]}, "undecided"),
        ({}, "undecided"),
    ],
)
def test_a_few_rows_of_a_file(columns: dict[str, list[float | None]], kind: str) -> None:
    rows = {
        name: [(float(10 * at), None if value is None else value * MIB) for at, value in enumerate(column)]
        for name, column in columns.items()
    }
    assert judge_columns(rows).verdict.kind == kind
