"""The shapes of a series: what grows, what grew, what only swings; from two rows to millions."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from ascend_tui_plugins.memory.trend import KEPT, PARTS, Track, median, shape, theil_sen

FLOOR = 8.0


def track(values: list[float], at: list[float] | None = None) -> Track:
    found = Track()
    for index, value in enumerate(values):
        found.add(float(index) if at is None else at[index], value)
    return found


def noise(seed: int, count: int, width: float = 1.0) -> list[float]:
    chooser = random.Random(seed)
    return [chooser.gauss(0.0, width) for _ in range(count)]


def test_a_track_is_bounded_and_keeps_the_newest_as_they_are() -> None:
    values = [float(index % 97) for index in range(100_000)]
    found = track(values)
    points = found.points()
    assert found.count == 100_000
    assert len(points) < (KEPT + 3) * math.ceil(math.log(100_000, 3))
    assert [value for _, value in points[-KEPT:]] == values[-KEPT:]
    assert [at for at, _ in points] == sorted(at for at, _ in points)


def test_a_sample_from_before_the_newest_is_left_out() -> None:
    found = track([1.0, 2.0], at=[5.0, 4.0])
    assert found.points() == [(5.0, 1.0)]


def test_the_slope_of_theil_and_sen_holds_against_wild_points() -> None:
    points = [(float(x), 3.0 * x) for x in range(20)]
    points[4], points[11] = (4.0, 900.0), (11.0, -900.0)
    middle, low, high = theil_sen(points)
    assert middle == pytest.approx(3.0, abs=0.2)
    assert low <= 3.0 <= high
    assert theil_sen([(1.0, 1.0)]) == (0.0, 0.0, 0.0)
    assert theil_sen([(1.0, float(value)) for value in range(9)]) == (0.0, 0.0, 0.0)
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.5


@pytest.mark.parametrize("seed", range(5))
def test_a_slow_leak_is_found_under_noise_a_hundred_times_larger(seed: int) -> None:
    found = shape(track([1000.0 + 0.01 * index + one for index, one in enumerate(noise(seed, 3000))]), FLOOR)
    assert found.kind == "grows"
    assert found.slope == pytest.approx(0.01, rel=0.1)
    assert found.low <= 0.0101
    assert found.high >= 0.0099


@pytest.mark.parametrize("more", [50, 100, 200, 400])
def test_a_leak_that_began_late_is_found_and_dated(more: int) -> None:
    values = [1000.0 + max(0, index - 2700) + one for index, one in enumerate(noise(1, 2700 + more))]
    found = shape(track(values), FLOOR)
    assert found.kind == "grows"
    assert found.slope == pytest.approx(1.0, rel=0.15)
    assert found.since == pytest.approx(2700, abs=0.15 * more + 30)


def test_a_leak_that_stopped_grows_no_longer() -> None:
    values = [1000.0 + min(128, index) + one for index, one in enumerate(noise(2, 400))]
    found = shape(track(values), FLOOR)
    assert found.kind == "stopped"
    assert found.flat_since == pytest.approx(128, abs=12)


def test_one_jump_is_no_slope() -> None:
    values = [1000.0 + 300.0 * (index > 900) + one for index, one in enumerate(noise(3, 2000))]
    found = shape(track(values), FLOOR)
    assert (found.kind, found.rise) == ("jumped", pytest.approx(300, abs=5))
    assert found.since == pytest.approx(901, abs=10)


def test_stairs_are_a_slope() -> None:
    found = shape(track([1000.0 + 20.0 * (index // 100) for index in range(2000)]), FLOOR)
    assert (found.kind, found.slope) == ("grows", pytest.approx(0.2, rel=0.05))


@pytest.mark.parametrize("grow", [lambda x: 100 * math.log(1 + x), lambda x: 10 * math.sqrt(1 + x)])
def test_growth_that_slows_down_is_told_apart(grow: object) -> None:
    assert callable(grow)
    assert shape(track([1000.0 + grow(index) for index in range(2000)]), FLOOR).kind == "slows"


def test_a_warm_up_before_a_leak_hides_it_not() -> None:
    values = [1000.0 + 500 * (1 - math.exp(-index / 10)) + 0.1 * index for index in range(1000)]
    assert shape(track(values), FLOOR).kind == "grows"


@pytest.mark.parametrize(
    "values",
    [
        [1000.0 + 300.0 * (index % 100 < 10) for index in range(2000)],
        [1000.0 + index % 300 for index in range(2000)],
        [1000.0 + one for one in noise(4, 2000, 3.0)],
        [9000.0, 9000.0, 1400.0, 1400.0, 1400.0],
    ],
    ids=["an evaluation every 100", "a sawtooth", "noise", "a peak at the start"],
)
def test_what_comes_back_is_flat(values: list[float]) -> None:
    assert shape(track(values), FLOOR).kind == "flat"


def test_a_few_wild_points_are_no_answer() -> None:
    values = [12044.0, 12185.0, 10654.0, 12378.0, 12402.0, 10559.0, 12644.0]
    assert shape(track(values), FLOOR).kind == "noisy"
    assert shape(track(values[:3]), FLOOR).kind == "short"
    assert shape(Track(), FLOOR).kind == "short"
    assert shape(track(values), FLOOR, least_span=60.0).kind == "short"


def test_swings_with_a_memory_are_hardly_ever_taken_for_growth() -> None:
    # A value that forgets in 50 steps swings by 25 around its mean: the hardest noise there is.
    found = 0
    for seed in range(20):
        level, series = 0.0, Track()
        for index, one in enumerate(noise(seed, 1000, 5.0)):
            level = 0.98 * level + one
            series.add(index, 1000.0 + level)
            if index % 50 == 49:
                found += shape(series, FLOOR, least_span=60.0).kind == "grows"
    assert found <= 8  # of 400


def test_a_level_reached_long_ago_with_dips_to_the_old_one_is_flat_since_then() -> None:
    chooser = random.Random(5)
    values = [300.0 + min(60.0, max(0, index - 200) * 0.3) for index in range(1000)]
    values = [300.0 if chooser.random() < 0.15 else value + chooser.gauss(0.0, 2.0) for value in values]
    values[-4:] = [300.0, 360.0, 300.0, 330.0]
    found = shape(track(values), FLOOR)
    assert found.kind in ("stopped", "jumped")
    assert found.flat_since == pytest.approx(400, abs=60)


def test_growth_no_larger_than_what_swings_is_none() -> None:
    chooser = random.Random(6)
    values = [350.0 + 0.1 * max(0, index - 300) + chooser.uniform(-30.0, 20.0) for index in range(600)]
    assert shape(track(values), FLOOR, least_span=60.0).kind != "grows"


def test_any_series_has_a_shape() -> None:
    chooser = random.Random(9)
    for size, wild in itertools.product((1, 2, 3, PARTS, 5 * PARTS, 900), (0.0, 1.0, 1e12)):
        values = [chooser.uniform(0, 1) * wild for _ in range(size)]
        assert shape(track(values), FLOOR).kind
        assert shape(track(values, at=[0.0] * size), FLOOR).kind
