"""Series: bounded memory, no peak lost, and a past that does not move."""

from __future__ import annotations

import math
import random

import pytest

from ascend_tui.series import CAPACITY, Series


def known(values: tuple[float, ...]) -> list[float]:
    return [value for value in values if value == value]


def test_an_empty_series_is_an_empty_curve() -> None:
    curve = Series("x", 0.1).curve()
    assert (curve.low, curve.high, curve.end) == ((), (), 0.0)


def test_a_bucket_keeps_its_extremes_and_a_gap_is_nan() -> None:
    series = Series("x", 1.0)
    for at, value in ((10.0, 5.0), (10.4, 2.0), (10.9, 9.0), (13.0, 4.0)):
        series.add(at, value)
    curve = series.curve()
    assert (curve.start, curve.width, curve.end) == (10.0, 1.0, 14.0)
    assert (curve.low[0], curve.high[0]) == (2.0, 9.0)
    assert math.isnan(curve.low[1])
    assert math.isnan(curve.high[2])
    assert (curve.low[3], curve.high[3]) == (4.0, 4.0)
    assert (series.last, series.peak) == (4.0, 9.0)


def test_a_month_takes_no_more_room_than_a_minute_and_loses_no_peak() -> None:
    series = Series("x", 0.1)
    seen = random.Random(1)
    peaks = {seen.randrange(0, 300_000): 1000.0 + index for index in range(20)}
    for index in range(300_000):
        series.add(index * 0.1, peaks.get(index, index % 7))
    curve = series.curve()
    assert len(curve.low) <= CAPACITY
    assert max(known(curve.high)) == series.peak == 1019.0
    for index, value in peaks.items():
        bucket = int((index * 0.1 - curve.start) / curve.width)
        assert curve.high[bucket] >= value
    assert min(known(curve.low)) == 0.0


def test_between_two_doublings_a_drawn_bucket_never_changes() -> None:
    series = Series("x", 1.0)
    before = series.curve()
    for index in range(5 * CAPACITY):
        series.add(float(index), float(index % 13))
        after = series.curve()
        if after.width == before.width and before.low:
            assert after.low[: len(before.low) - 1] == before.low[:-1]
        before = after


def test_a_doubling_keeps_lows_highs_and_gaps() -> None:
    series = Series("x", 1.0)
    series.add(0.0, 1.0)
    series.add(1.0, 5.0)
    series.add(float(CAPACITY), 3.0)
    curve = series.curve()
    assert curve.width == 2.0
    assert (curve.low[0], curve.high[0]) == (1.0, 5.0)
    assert math.isnan(curve.low[1])
    assert curve.high[CAPACITY // 2] == 3.0


def test_a_sample_far_ahead_costs_a_few_doublings_only() -> None:
    series = Series("x", 0.1)
    series.add(0.0, 1.0)
    series.add(1e9, 2.0)
    assert len(series.curve().low) <= CAPACITY
    assert series.curve().low[0] == 1.0


def test_a_late_sample_counts_in_its_bucket_but_is_not_the_last() -> None:
    series = Series("x", 1.0)
    for at, value in ((0.0, 1.0), (5.0, 2.0), (1.0, 9.0)):
        series.add(at, value)
    assert (series.last, series.peak, series.curve().high[1]) == (2.0, 9.0, 9.0)


@pytest.mark.parametrize(
    ("at", "value"), [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan), (1.0, -math.inf), (-1.0, 1.0)]
)
def test_what_is_not_a_number_or_before_the_start_is_left_out(at: float, value: float) -> None:
    series = Series("x", 1.0)
    series.add(0.0, 1.0)
    series.add(at, value)
    assert (series.curve().low, series.peak) == ((1.0,), 1.0)
