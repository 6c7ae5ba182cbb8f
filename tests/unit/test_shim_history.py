"""The history ring: bounded, complete where it is fine, and no peak lost where it is coarse."""

from __future__ import annotations

import json
import math
import random

import pytest

from ascend_tui.shim import history
from ascend_tui.shim.history import History


def fill(past: History, values: list[float], kind: str = "time", key: str | None = "v") -> None:
    for number, value in enumerate(values):
        past.add("memory", kind, number, number, number, {"v": value}, key)


def read(past: History, after: int = 0) -> list[dict]:
    return [json.loads(one) for one in past.since(after)]


def test_ladder_keeps_every_extreme_and_stays_bounded() -> None:
    rng = random.Random(1)
    values = [rng.random() for _ in range(60_000)]
    values[123], values[31_000] = 99.0, -99.0
    past = History()
    fill(past, values)
    records = read(past)
    kept = [one["data"]["v"] for one in records]
    assert max(kept) == 99.0
    assert min(kept) == -99.0
    ladder = past._ladders["memory", "time"]
    assert all(len(rung) <= history.RING for rung in ladder.rungs)
    # 256 per rung, and a rung reaches twice as far as the one before.
    used = sum(1 for rung in ladder.rungs if rung)
    assert used == 1 + math.floor(math.log2(60_000 / 2))
    assert len(kept) < history.RING * 12
    sizes = [len(one) for one in past.since(0)]
    assert sum(sizes) < 1 << 20


def test_since_is_ordered_without_doubles_and_whole_at_the_finest_level() -> None:
    past = History()
    for count in (1, 2, 3, 5, 9, 100, 255, 256, 257, 300, 700, 2000):
        fill(past, [float(one % 7) for one in range(count)])
        records = [one["seq"] for one in read(past)]
        assert records == sorted(set(records))
        assert records[-1] == past.last_seq
        newest = past.last_seq - min(past.last_seq, history.RING) + 1
        assert records[-(past.last_seq - newest + 1) :] == list(range(newest, past.last_seq + 1))
        for after in (0, past.last_seq - 1, past.last_seq - 100, past.last_seq):
            part = [one["seq"] for one in read(past, after)]
            assert part == [one for one in records if one > after]


def test_what_is_before_the_ring_reaches_back_to_the_start() -> None:
    past = History()
    fill(past, [float(one) for one in range(5000)])
    assert read(past)[0]["seq"] <= 4


def test_kinds_are_kept_apart_and_merged_in_order() -> None:
    past = History()
    fill(past, [1.0] * 300)
    for number in range(10):
        past.add("core", "mark", number, 0.0, 0.0, {"label": str(number)}, None)
    fill(past, [1.0] * 5000)
    records = read(past)
    # A frequent kind does not push a rare one out.
    assert [one["data"]["label"] for one in records if one["kind"] == "mark"] == [
        str(one) for one in range(10)
    ]
    assert [one["seq"] for one in records] == sorted(one["seq"] for one in records)


def test_text_is_strict_json_with_nan_and_foreign_objects() -> None:
    past = History()
    text = past.add(
        "p", "k", 1, 2.0, 3.0, {"v": float("nan"), "i": float("-inf"), "o": object, "n": [float("inf")]}, "v"
    )
    data = json.loads(text, parse_constant=pytest.fail)["data"]
    assert data["v"] == "NaN"
    assert data["i"] == "-Infinity"
    assert data["n"] == ["Infinity"]
    assert isinstance(data["o"], str)


def test_first_name_that_is_there_ranks() -> None:
    past = History()
    for number in range(4000):
        data = {"rss": 4000 - number, "allocated": 99 if number == 1234 else 1}
        past.add("memory", "time", number, number, number, data, "allocated rss")
    assert max(one["data"]["allocated"] for one in read(past)) == 99
    for number in range(4000):
        past.add(
            "memory", "host", number, number, number, {"rss": 99 if number == 1234 else 1}, "allocated rss"
        )
    assert max(one["data"]["rss"] for one in read(past) if one["kind"] == "host") == 99


def test_nan_hides_no_peak_of_its_group() -> None:
    past = History()
    values = [1.0] * 2000
    values[4:8] = [float("nan"), 5.0, 1.0, 2.0]
    fill(past, values)
    assert 5.0 in [one["data"]["v"] for one in read(past)]


def test_large_records_shorten_the_ring_and_a_huge_one_is_replaced() -> None:
    past = History()
    for number in range(300):
        past.add("p", "k", number, 0.0, 0.0, {"text": "x" * 20_000}, None)
    assert sum(map(len, past.since(0))) <= history.RING_BYTES
    text = past.add("p", "k", 1, 0.0, 0.0, {"text": "x" * 5_000_000}, None)
    assert json.loads(text)["data"]["too_large_bytes"] > 5_000_000
    assert len(past.since(0)) > 1


def test_number_of_kinds_is_bounded() -> None:
    past = History()
    for number in range(1000):
        past.add("p", f"kind{number}", 1, 0.0, 0.0, {}, None)
    assert len(past.since(0)) <= history.MOST_KINDS


@pytest.mark.parametrize("data", [[1], None, 3])
def test_data_that_is_no_object_raises_and_counts_no_record(data: object) -> None:
    past = History()
    with pytest.raises(TypeError, match="a record is an object"):
        past.add("p", "k", 1, 0.0, 0.0, data, "v")  # type: ignore[arg-type]
    assert past.last_seq == 0
