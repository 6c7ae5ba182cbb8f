"""The loss scale: what is a normal search, what is a collapse, and when the scale is not the cause.

A scaler of torch and one of DeepSpeed are played here as they are written, driven by the largest scale at
which the gradients fit.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from ascend_tui.judging.scaling import KEPT, ScaleFinding, Scaling, figure

NAN = math.nan


class Torch:
    """torch.amp.GradScaler: halves at once, doubles after `interval` good steps."""

    def __init__(self, scale: float = 2.0**16, interval: int = 2000) -> None:
        self.scale, self.interval, self.good = scale, interval, 0

    def step(self, fits: float) -> bool:
        """Do one step; True when it was skipped."""
        if not self.scale <= fits:
            self.scale, self.good = self.scale * 0.5, 0
            return True
        self.good += 1
        if self.good == self.interval:
            self.scale, self.good = self.scale * 2, 0
        return False


class DeepSpeed(Torch):
    """DeepSpeed's DynamicLossScaler: window 1000, hysteresis 2, never below 1."""

    def __init__(self, scale: float = 2.0**16, interval: int = 1000, hysteresis: int = 2) -> None:
        super().__init__(scale, interval)
        self.hysteresis = self.patience = hysteresis

    def step(self, fits: float) -> bool:
        if not self.scale <= fits:
            if self.patience == 1:
                self.scale = max(self.scale / 2, 1.0)
            else:
                self.patience -= 1
            self.good = 0
            return True
        self.good += 1
        if self.good % self.interval == 0:
            self.patience, self.scale = self.hysteresis, self.scale * 2
        return False


def play(
    scaler: Torch,
    steps: int,
    fits: Callable[[int], float],
    scaling: Scaling | None = None,
    start: int = 1,
    known: bool = True,
    every: int = 1,
) -> tuple[Scaling, list[ScaleFinding]]:
    """Run a scaler; return the state and every finding but the normal ones."""
    scaling = scaling or Scaling()
    alarms = []
    for step in range(start, start + steps):
        skipped = scaler.step(fits(step))
        if skipped or step % every == 0:
            scaling.take(step, scaler.scale if known and step % every == 0 else None, skipped)
        found = scaling.judge() if skipped or step % 16 == 0 else None
        if found is not None and found.kind == "scale_collapse":
            alarms.append(found)
    return scaling, alarms


def test_without_a_skip_there_is_nothing_to_say() -> None:
    scaling, alarms = play(Torch(), 5000, lambda step: 2.0**30)
    assert scaling.judge() is None
    assert not alarms


@pytest.mark.parametrize("scaler", [Torch(), DeepSpeed(), DeepSpeed(2.0**32), Torch(2.0**24, 500)])
@pytest.mark.parametrize("known", [True, False])
def test_a_search_and_its_later_skips_are_normal(scaler: Torch, known: bool) -> None:
    scaling, alarms = play(scaler, 20_000, lambda step: 3000.0, known=known)
    assert not alarms
    found = scaling.judge()
    assert found is not None
    assert (found.kind, found.severity) == ("scale_search", "info")
    assert found.headline.text == "GradScaler skipped a step (normal search)"
    assert not found.scale_is_not_the_cause


def test_the_search_at_the_start_says_since_when_and_how_often() -> None:
    scaling, _ = play(Torch(), 10, lambda step: 1024.0)
    found = scaling.judge()
    assert found is not None
    assert (found.since_step, found.skips) == (1, 6)
    assert "6 steps skipped since step 1" in found.reason.render()


def test_a_skip_of_the_growth_interval_is_named_one() -> None:
    scaling, _ = play(Torch(), 2050, lambda step: 2.0**16)
    found = scaling.judge()
    assert found is not None
    assert (found.skips, found.since_step) == (1, 2001)
    assert "growth interval" in found.reason.render()


def test_two_hundred_noisy_but_healthy_runs_are_never_called_a_collapse() -> None:
    wrong = []
    for seed in range(200):
        noise = random.Random(seed)
        level = 2.0 ** noise.uniform(11, 18)
        heavy, drift = noise.choice([0.2, 0.5, 0.9]), noise.choice([0.0, -3.0, 2.0])

        def fits(step: int, noise=noise, level=level, heavy=heavy, drift=drift) -> float:
            warm = min(1.0, step / 1500)
            return level * 2.0 ** (drift * warm) * math.exp(-abs(noise.gauss(0, heavy)))

        scaler = noise.choice([Torch, DeepSpeed])(interval=noise.choice([200, 1000, 2000]))
        _, alarms = play(scaler, 5000, fits, known=noise.random() < 0.7, every=noise.choice([1, 1, 7]))
        if alarms:
            wrong.append((seed, alarms[0].headline.render()))
    assert not wrong


def test_a_few_bad_batches_in_a_row_are_no_collapse() -> None:
    _, alarms = play(Torch(), 3000, lambda step: 256.0 if 1000 <= step < 1008 else 2.0**18)
    assert not alarms


# What is a collapse.


def test_a_scale_that_falls_through_1_is_not_the_cause() -> None:
    scaling, alarms = play(Torch(), 600, lambda step: 2.0**16 if step < 500 else 0.0)
    assert alarms
    assert alarms[0].severity == "error"
    assert not alarms[0].scale_is_not_the_cause
    assert alarms[0].since_step == 500
    # Thirteen skips tell that it is no search.
    assert alarms[0].skips == 13
    found = scaling.judge()
    assert found is not None
    assert found.scale_is_not_the_cause
    assert found.headline.render() == "the loss scale fell below 1, to 2.6e-26"
    assert "not the cause" in found.reason.render()


def test_bad_gradients_from_the_first_step_on_are_not_the_scale() -> None:
    scaling, alarms = play(Torch(), 30, lambda step: 0.0)
    found = scaling.judge()
    assert found is not None
    assert (found.kind, found.severity, found.since_step) == ("scale_collapse", "error", 1)
    assert found.scale_is_not_the_cause
    assert "all 30 steps since step 1 were skipped" in found.reason.render()
    # It is told where the scale leaves what a search may need, not at the first skips.
    assert alarms[0].skips == 13
    assert alarms[0].severity == "warning"


def test_nan_from_the_first_step_is_known_at_once_where_the_loss_is_seen() -> None:
    scaling = Scaling()
    for step in range(1, 5):
        scaling.take(step, 2.0 ** (16 - step), True)
    assert scaling.judge().kind == "scale_search"  # type: ignore[union-attr]
    found = scaling.judge(loss_bad_since=1)
    assert found is not None
    assert (found.kind, found.severity) == ("scale_collapse", "error")
    assert found.scale_is_not_the_cause
    assert found.headline.render() == "steps are skipped because the loss itself is not finite"


def test_a_minimum_of_1_is_where_deepspeed_stays() -> None:
    scaling, alarms = play(DeepSpeed(), 300, lambda step: 2.0**20 if step < 100 else 0.0)
    found = scaling.judge()
    assert alarms
    assert found is not None
    assert found.headline.render() == "steps are skipped, and the loss scale stays at 1"
    assert found.severity == "error"


def test_a_fixed_scale_that_skips_is_no_search() -> None:
    scaling = Scaling()
    for step in range(1, 30):
        scaling.take(step, 1024.0, skipped=True)
    found = scaling.judge()
    assert found is not None
    assert (found.kind, found.severity) == ("scale_collapse", "error")
    assert "stays at 1,024" in found.headline.render()


def test_a_scale_at_zero_or_nan_is_the_end() -> None:
    for scale, words in ((0.0, "0"), (NAN, "NaN"), (math.inf, "Inf")):
        scaling = Scaling()
        scaling.take(1, 2.0, True)
        scaling.take(2, scale, True)
        found = scaling.judge()
        assert found is not None
        assert (found.kind, found.severity) == ("scale_collapse", "error")
        assert found.scale_is_not_the_cause
        assert found.headline.render() == f"the loss scale is {words}: no step can be right any more"


def test_two_ranks_of_a_log_on_one_stream() -> None:
    """Messages of 910 cards: 512 down to 4, with good steps now and then and no recovery."""
    scaling = Scaling()
    scales = [512, None, 256, 256, 128, 128, "good", 32, 32, 16, 4, 4]
    for step, scale in enumerate(scales, 1):
        if scale == "good":
            scaling.take(step, None, False)
        else:
            scaling.take(step, None if scale is None else float(scale), True)
    found = scaling.judge()
    assert found is not None
    assert found.kind == "scale_collapse"
    assert found.headline.render() == "the loss scale collapses: 512 → 4, most steps are skipped"


def test_a_scale_of_a_log_that_ends_at_zero() -> None:
    scaling = Scaling()
    for step, scale in enumerate((2.67e-51, 1.34e-51, 1.67e-52, 1e-323, 5e-324), 1):
        scaling.take(step, scale, True)
    found = scaling.judge()
    assert found is not None
    assert found.scale_is_not_the_cause
    assert found.headline.render() == "the loss scale fell below 1, to 4.9e-324"
    scaling.take(6, 0.0, True)
    assert "the loss scale is 0" in scaling.judge().headline.render()  # type: ignore[union-attr]


def test_a_slow_collapse_is_one_too() -> None:
    scaling, alarms = play(Torch(), 3000, lambda step: 2.0**20 * 2 ** (-step / 100))
    assert alarms
    assert alarms[0].severity == "warning"
    assert "only falls" in alarms[0].headline.render()
    assert scaling.judge().kind == "scale_collapse"  # type: ignore[union-attr]


def test_many_skips_without_a_known_scale_are_less_sure() -> None:
    scaling, alarms = play(Torch(), 600, lambda step: 2.0**16 if step < 500 else 0.0, known=False)
    assert alarms
    assert alarms[0].severity == "warning"
    assert "not known" in alarms[0].reason.render()
    assert scaling.judge().headline.render() == "most steps are skipped: 32 of the last 32"  # type: ignore[union-attr]


def test_a_collapse_that_ends_is_withdrawn() -> None:
    scaling, alarms = play(Torch(), 800, lambda step: 4.0 if 500 <= step < 520 else 2.0**16)
    assert alarms
    assert scaling.judge().kind == "scale_search"  # type: ignore[union-attr]


def test_a_small_scale_that_somebody_chose_is_none_of_ours() -> None:
    scaling = Scaling()
    for step in range(100):
        scaling.take(step, 0.5, False)
    assert scaling.judge() is None


def test_a_static_scale_that_overflows_and_is_not_skipped_cannot_be_seen() -> None:
    """A framework that updates in spite of an overflow tells no skip: nothing is claimed."""
    scaling = Scaling()
    for step in range(100, 500, 100):
        scaling.take(step, 1024.0, False)
    assert scaling.judge() is None


# What may come in.


def test_memory_is_bounded_and_old_runs_are_forgotten() -> None:
    scaling = Scaling()
    for step in range(0, 200_000, 2):
        scaling.take(step, 1024.0 if step % 4 else 2048.0, skipped=True)
    assert len(scaling._skips) == KEPT


def test_skips_may_come_late_and_twice() -> None:
    one, other = Scaling(), Scaling()
    steps = [5, 6, 7, 300, 301]
    for step in (*steps, *steps):
        one.take(step, None, True)
    for step in reversed(steps):
        other.take(step, None, True)
    for scaling in (one, other):
        scaling.take(310, None, False)
        found = scaling.judge()
        assert found is not None
        assert (found.since_step, found.skips) == (300, 2)


def test_an_attach_in_the_middle_of_the_run_sees_a_growth_skip() -> None:
    scaling, alarms = play(Torch(2.0**14, 100), 1000, lambda step: 2.0**14, start=50_000)
    assert not alarms
    assert scaling.judge().kind == "scale_search"  # type: ignore[union-attr]


def test_figures() -> None:
    assert [figure(one) for one in (65536.0, 0.5, 1e-323, 2.0**70, NAN, -math.inf)] == [
        "65,536",
        "0.5",
        "9.9e-324",
        "1.2e+21",
        "NaN",
        "-Inf",
    ]
