"""The governor: what is shown as cost, and how a check is thinned to the budget."""

from __future__ import annotations

import random

import pytest

from ascend_tui.shim.governor import Governor, median, notch


def run(
    governor: Governor, steps: int, plain_ns: float, check_ns: float, hook_ns: float, noise: float = 0.0
) -> list[int]:
    """Play steps whose check runs in every thinning-th; return the thinning after each."""
    rng = random.Random(1)
    seen = []
    for step in range(1, steps + 1):
        armed = step % governor.thinning == 0 and not governor.wants_plain_step()
        duration = plain_ns * (1 + rng.gauss(0, noise)) + (check_ns if armed else 0)
        governor.observe(duration, armed, hook_ns if armed else 2000.0, True)
        seen.append(governor.thinning)
    return seen


def test_cost_is_unknown_without_steps() -> None:
    cost = Governor().cost()
    assert cost["share"] is None
    assert cost["low"] is None
    assert cost["high"] is None
    assert cost["hook_us"] is None
    assert cost["thinning"] == 1


def test_expensive_check_is_thinned_into_the_budget_and_not_further() -> None:
    governor = Governor()
    thinning = run(governor, 3000, 10e6, 5e6, 5e6)[-1]
    # 50 % in every 32nd step is 1.6 %, in every 16th 3.1 %.
    assert thinning == 32
    cost = governor.cost()
    assert cost["thinning"] == 32
    assert cost["share"] < 0.03


def test_cost_that_our_own_clock_does_not_see_is_thinned_too() -> None:
    governor = Governor()
    # The dispatcher's own work: 300 % more, of which the hooks saw 0.1 %.
    assert run(governor, 4000, 10e6, 30e6, 10e3)[-1] >= 64


def test_cheap_check_is_left_alone() -> None:
    governor = Governor()
    seen = run(governor, 1000, 10e6, 0.1e6, 0.1e6, noise=0.05)
    # Five noisy steps can look dear for a moment.
    assert seen.count(1) > 900
    assert max(seen) <= 2


def test_noise_alone_does_not_thin() -> None:
    governor = Governor()
    rng = random.Random(2)
    for step in range(600):
        governor.observe(10e6 * rng.lognormvariate(0, 0.3), step % 2 == 0, 5e3, True)
    assert governor.thinning == 1


def test_thinning_comes_back_when_the_check_gets_cheap_and_is_forgotten_at_rest() -> None:
    governor = Governor()
    assert run(governor, 2000, 10e6, 5e6, 5e6)[-1] > 8
    run(governor, 60_000, 10e6, 0.0, 5e3)
    assert governor.thinning == 1
    run(governor, 2000, 10e6, 5e6, 5e6)
    governor.rest()
    assert governor.thinning == 1


def test_ungoverned_steps_never_thin() -> None:
    governor = Governor()
    for _ in range(10):
        governor.observe(100e6, True, 90e6, False)
    assert governor.thinning == 1


def test_first_armed_step_alone_is_enough_to_thin() -> None:
    governor = Governor()
    governor.observe(20e6, True, 10e6, True)
    assert governor.thinning > 1


def test_budget_of_the_user_counts() -> None:
    tight, wide = Governor(0.01), Governor(0.5)
    assert run(tight, 3000, 10e6, 3e6, 3e6)[-1] > run(wide, 3000, 10e6, 3e6, 3e6)[-1] == 1


def test_shown_share_is_spread_over_all_steps() -> None:
    governor = Governor()
    for step in range(640):
        armed = step % 16 == 0
        governor.observe(15e6 if armed else 10e6, armed, 5e6 if armed else 1e3, False)
    cost = governor.cost()
    assert cost["share"] == pytest.approx(0.5 / 16, rel=0.3)
    assert cost["low"] <= cost["share"] <= cost["high"]


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.5])
def test_interval_holds_the_share_and_is_never_below_zero(noise: float) -> None:
    governor = Governor()
    rng = random.Random(3)
    for step in range(400):
        duration = 10e6 * rng.lognormvariate(0, noise)
        governor.observe(duration, step % 3 == 0, 20e3, True)
        cost = governor.cost()
        assert 0.0 <= cost["low"] <= cost["share"] <= cost["high"]


def test_steps_to_compare_with_are_made_and_kept_fresh() -> None:
    governor = Governor()
    plain = []
    for _ in range(400):
        plain.append(governor.wants_plain_step())
        governor.observe(10e6, not plain[-1], 1e3, True)
    assert sum(plain[:12]) >= 5
    assert 0.02 < sum(plain[100:]) / 300 < 0.05
    assert governor.cost()["high"] < 0.01


def test_thread_is_part_of_the_share() -> None:
    governor = Governor()
    governor.observe(10e6, False, 1e3, False)
    bare = governor.cost()["share"]
    governor.thread_share = 0.01
    assert governor.cost()["share"] == pytest.approx(bare + 0.01)


def test_zero_durations_do_not_divide() -> None:
    governor = Governor()
    for _ in range(20):
        governor.observe(0, True, 0, True)
        governor.observe(0, False, 0, False)
    assert governor.cost()["share"] is not None


def test_median_and_notch() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert notch([5.0] * 10) == 0.0
