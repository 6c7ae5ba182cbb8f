"""The loss: level and bad at once, climbed to it, or bad from the start; and what is no divergence.

Healthy losses of many shapes are played with many seeds: not one of them may be called a divergence.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from ascend_tui.judging.losses import FINEST, KEPT, Losses, figure

NAN = math.nan
STEPS = 5000
Loss = Callable[[int], float]


def decaying(noise: random.Random) -> Loss:
    spread = noise.uniform(0.02, 0.3)
    return lambda step: (2 + 8 * math.exp(-step / 300)) * math.exp(noise.gauss(0, spread))


def very_noisy(noise: random.Random) -> Loss:
    return lambda step: (0.5 + 2 * math.exp(-step / 500)) * math.exp(noise.gauss(0, 1.0))


def wandering(noise: random.Random) -> Loss:
    state = [0.0]

    def loss(step: int) -> float:
        state[0] = 0.99 * state[0] + noise.gauss(0, 0.03)
        return 2.5 * math.exp(state[0] + noise.gauss(0, 0.2))

    return loss


def with_spikes(noise: random.Random) -> Loss:
    """Spikes up to twenty times as high, which recover within a hundred steps."""
    state = [0.0]

    def loss(step: int) -> float:
        if noise.random() < 1 / 400:
            state[0] = noise.uniform(1, 3)
        state[0] *= noise.choice([0.9, 0.95, 0.97])
        return 2.2 * math.exp(state[0] + noise.gauss(0, 0.08))

    return loss


def warming_up(noise: random.Random) -> Loss:
    height = noise.uniform(0.2, 1.2)
    return lambda step: (0.69 + height * math.exp(-(((step - 80) / 60) ** 2))) * math.exp(noise.gauss(0, 0.1))


def of_tasks(noise: random.Random) -> Loss:
    """Another level every 900 steps: up to thirty times as high."""
    levels = [noise.uniform(0.2, 6) for _ in range(6)]
    return lambda step: (
        levels[step // 900] * (0.6 + 0.4 * math.exp(-(step % 900) / 200)) * math.exp(noise.gauss(0, 0.15))
    )


def adversarial(noise: random.Random) -> Loss:
    """Generator and discriminator in turn; the first climbs to five times its value, which is healthy."""
    return lambda step: (
        (1 + 4 * step / STEPS) * math.exp(noise.gauss(0, 0.3))
        if step % 2
        else 0.7 * math.exp(-step / 2000 + noise.gauss(0, 0.3))
    )


def of_a_critic(noise: random.Random) -> Loss:
    """Five steps of a critic, whose loss comes up from -20, for one of a generator."""
    return lambda step: (
        (1 + 4 * step / STEPS) * math.exp(noise.gauss(0, 0.3))
        if step % 6 == 0
        else -20 * math.exp(-step / 1500) + noise.gauss(0, 0.5)
    )


def negative(noise: random.Random) -> Loss:
    return lambda step: 1 - 3 * (1 - math.exp(-step / 800)) + noise.gauss(0, 0.3)


def of_epochs(noise: random.Random) -> Loss:
    swing = 2 * math.pi / 500
    return lambda step: 1 + 1.5 * math.exp(-step / 3000) + 0.3 * math.sin(swing * step) + noise.gauss(0, 0.2)


def nearly_zero(noise: random.Random) -> Loss:
    return lambda step: max(0.0, noise.gauss(0.02, 0.05))


def heavy_tailed(noise: random.Random) -> Loss:
    return lambda step: 1.2 + 0.5 * noise.paretovariate(1.5) * math.exp(-step / 2000)


HEALTHY = (
    decaying,
    very_noisy,
    wandering,
    with_spikes,
    warming_up,
    of_tasks,
    adversarial,
    of_a_critic,
    negative,
    of_epochs,
    nearly_zero,
    heavy_tailed,
)


@pytest.mark.parametrize("shape", HEALTHY, ids=lambda shape: shape.__name__)
def test_seventeen_healthy_series_of_each_shape_never_diverge(
    shape: Callable[[random.Random], Loss],
) -> None:
    """In all 204 series of 5,000 steps, judged every 20 steps."""
    wrong = []
    for seed in range(17):
        loss, losses = shape(random.Random(seed)), Losses()
        for step in range(1, STEPS + 1):
            losses.take(step, loss(step))
            if step % 20 == 0 and (found := losses.judge()) is not None:
                wrong.append((seed, step, found.reason.render()))
                break
    assert not wrong


@pytest.mark.parametrize("shape", HEALTHY, ids=lambda shape: shape.__name__)
def test_a_healthy_series_that_ends_in_nan_was_sudden(shape: Callable[[random.Random], Loss]) -> None:
    for seed, end in enumerate((60, 400, 1700, 4000)):
        loss, losses = shape(random.Random(seed)), Losses()
        for step in range(1, end):
            losses.take(step, loss(step))
        losses.take(end, NAN)
        found = losses.judge_bad(end)
        assert (found.kind, found.since_step) == ("sudden", end), found.reason.render()
        assert losses.bad_since == end


# A climb that was planted.


def climbing(seed: int, start: int, doubles: float, spread: float) -> tuple[Losses, Loss]:
    noise, losses = random.Random(seed), Losses()

    def loss(step: int) -> float:
        level = 2 + 8 * math.exp(-step / 300)
        return level * math.exp(noise.gauss(0, spread)) * 2 ** (max(0, step - start) / doubles)

    return losses, loss


@pytest.mark.parametrize(("doubles", "spread"), [(30, 0.05), (100, 0.2), (300, 0.2), (300, 0.5), (1000, 0.2)])
def test_a_planted_climb_is_found_and_dated(doubles: float, spread: float) -> None:
    for seed in range(4):
        losses, loss = climbing(seed, 2000, doubles, spread)
        found = None
        for step in range(1, 2001 + int(4 * doubles) + 100):
            losses.take(step, loss(step))
            found = losses.judge() if step % 10 == 0 else found
            if found is not None:
                break
        assert found is not None
        assert (found.kind, found.severity) == ("slow", "warning")
        # After one to two and a half doublings, or a hundred steps.
        assert step <= 2000 + max(150, 2.5 * doubles)
        assert 1400 <= found.since_step <= 2000 + doubles
        assert found.before is not None
        assert found.after is not None
        assert found.after >= 2 * found.before


@pytest.mark.parametrize("length", [10, 20, 60, 200, 1000])
def test_a_loss_that_climbed_to_nan_was_slow(length: int) -> None:
    for seed, start in ((0, 40), (1, 300), (2, 3000)):
        losses, loss = climbing(seed, start, length / math.log2(50), 0.1)
        for step in range(1, start + length):
            losses.take(step, loss(step))
        losses.take(start + length, NAN)
        found = losses.judge_bad(start + length)
        assert (found.kind, found.severity) == ("slow", "error")
        words = found.reason.render()
        assert words.startswith("the loss climbed from ")
        assert "learning rate" in words


def test_a_climb_over_two_steps_is_sudden() -> None:
    losses = Losses()
    for step in range(1, 500):
        losses.take(step, 2.0 + 0.01 * (step % 5))
    losses.take(500, 90.0)
    losses.take(501, 4e8)
    losses.take(502, math.inf)
    assert losses.judge_bad(502).kind == "sudden"


def test_what_a_sudden_one_says() -> None:
    losses = Losses()
    for step in range(1, 101):
        losses.take(step, 2.0 + 0.1 * (step % 2))
    losses.take(101, NAN)
    assert losses.judge_bad(101).reason.render() == (
        "the loss was level (2 … 2.1 in the last 20 of them) and not finite at once at step 101:"
        " an overflow rather than the learning rate"
    )


def test_bad_from_the_first_step_is_not_the_scale() -> None:
    losses = Losses()
    losses.take(1, NAN)
    found = losses.judge_bad(1)
    assert (found.kind, found.since_step) == ("from_start", 1)
    assert "if the training began here" in found.reason.render()
    assert losses.judge() is None


def test_bad_after_some_steps_is_of_the_start_too() -> None:
    losses = Losses()
    for step, value in enumerate((9.7, 9.1, 140.0, NAN), 1):
        losses.take(step, value)
    found = losses.judge_bad(4)
    assert found.kind == "from_start"
    assert found.reason.render().startswith("the loss was 140 and is not finite after 3 steps")


# What may come in.


def test_memory_is_bounded_and_late_values_are_left_out() -> None:
    losses = Losses()
    for step in range(60_000):
        losses.take(step, 1.0)
    losses.take(5, 1e9)
    points = losses._points()
    assert len(points) <= FINEST + 2 + 7 * (KEPT + 2)
    assert points == sorted(points)
    assert max(value for _, value in points) == 1.0


def test_it_recovers() -> None:
    losses = Losses()
    losses.take(1, 2.0)
    losses.take(2, NAN)
    losses.take(3, NAN)
    assert losses.bad_since == 2
    losses.take(4, 2.0)
    assert losses.bad_since is None


@pytest.mark.parametrize("value", [0.0, -5.0, 1e300, 5e-324])
def test_constant_and_extreme_losses_are_judged_too(value: float) -> None:
    losses = Losses()
    for step in range(1000):
        losses.take(step, value if step % 3 else -value)
    assert losses.judge() is None
    assert losses.judge_bad(1000).kind == "sudden"


def test_figures() -> None:
    assert [figure(one) for one in (2.3456, 15806.4, 5.3e6, 0.0042, 0.0)] == [
        "2.35",
        "15,806",
        "5.3e+06",
        "0.0042",
        "0",
    ]
