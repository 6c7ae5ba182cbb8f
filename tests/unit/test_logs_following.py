"""What is said of metrics: each fault once, with its step and its evidence."""

from __future__ import annotations

import random

import pytest
from ascend_tui_plugins.logs.lines import parse
from ascend_tui_plugins.logs.metrics.following import Following, Group
from ascend_tui_plugins.logs.metrics.metric_lines import layout_of
from metric_logs import evidence, follow, head, hf, megatron, metric, said, step_line

# Numbers that are not finite.


def test_a_bad_gradient_norm_is_told_at_once_and_the_loss_that_follows_is_the_same_story() -> None:
    lines = [hf(at, 2 + at % 7 / 10) for at in range(40)] + [hf(40, norm="nan")]
    following = follow(lines)
    (found,) = following.incidents()
    assert head(found) == "gradient norm is NaN, the loss is still finite"
    assert (found.severity, found.category, found.step, found.count) == ("error", "numeric", None, 1)
    assert "arose in backward or in clipping at this step" in evidence(found)
    assert "at epoch 0.4" in evidence(found)
    assert metric(following, "grad_norm").trend == "not_finite"
    (found,) = said([*lines, hf(41, "nan", "nan"), hf(42, "nan", "nan")])
    assert head(found) == "gradient norm is NaN, the loss is still finite"
    assert "later the loss itself is not finite" in evidence(found)
    assert found.count == 3


def test_a_loss_that_was_level_is_told_apart_from_one_that_climbed() -> None:
    level = [step_line(at, f"{2 + at % 5 / 10:.4f}") for at in range(300)]
    (found,) = said([*level, *(step_line(at, "nan") for at in range(300, 320))])
    assert (head(found), found.step, found.last_step, found.count) == ("loss is NaN", 300, 319, 20)
    assert "was level (2 … 2.4" in evidence(found)
    climbs = [step_line(at, f"{2 * 1.02 ** max(0, at - 200):.4f}") for at in range(500)]
    found = said([*climbs, *(step_line(at, "nan") for at in range(500, 520))])[-1]
    assert (head(found), found.step) == ("loss is NaN", 500)
    assert "the loss climbed from" in evidence(found)


def test_a_climb_is_told_while_the_loss_is_finite() -> None:
    rng = random.Random(1)
    lines = [step_line(at, f"{2 * 1.003 ** max(0, at - 800) + rng.gauss(0, 0.1):.4f}") for at in range(1600)]
    (found,) = said(lines, 20)
    assert (head(found), found.severity, found.attribution) == ("loss climbs", "warning", "likely")
    assert "the learning rate" in evidence(found)


def test_the_first_part_that_is_not_finite_is_named_and_an_average_is_not() -> None:
    line = (
        "iter: 80  loss: nan (nan)  loss_mask: 0.5000 (nan)  loss_depth: nan (nan)  loss_edge: 0.0600 (3.2)"
    )
    (found,) = said([line])
    assert head(found) == "loss is NaN, and of its parts loss_depth"
    assert (found.step, found.attribution) == (80, "exact")
    (found,) = said(["Epoch: 3 heat_loss:  inf width_loss:  nan shift_loss:  0.5"])
    assert head(found) == "heat_loss, width_loss not finite (Inf)"


def test_a_zero_loss_with_a_bad_gradient_norm_is_a_masked_one() -> None:
    following = follow([hf(1, 0.0, "nan")])
    (found,) = following.incidents()
    assert "NaN logged as zero" in head(found)
    assert (found.severity, found.attribution) == ("error", "likely")
    assert metric(following, "loss").trend == "zero"
    assert said([hf(at, 0.0, 0.0) for at in range(50)]) == []


def test_ranks_are_united_and_one_moment_counts_once() -> None:
    lines = [
        f"[rank{rank}]: step {at}, loss: {'nan' if at >= 30 and rank in (1, 6) else 2.1}"
        for at in range(33)
        for rank in range(8)
    ]
    (found,) = said(lines)
    assert (found.step, found.last_step, found.count, found.ranks) == (30, 32, 3, (1, 6))


def test_two_writers_of_one_number_are_one_story() -> None:
    lines = []
    for at in range(5):
        value = "nan" if at == 4 else 2.5
        lines += [
            f"[INFO|2025-07-01 17:05:16] callbacks:143 >> {{'loss': {value}, 'learning_rate': 5e-05,"
            f" 'epoch': {at / 10}, 'throughput': 813.70}}",
            f"{{'loss': {value}, 'grad_norm': 3.5, 'learning_rate': 5e-05, 'epoch': {at / 10}, 'seen': 2}}",
        ]
    (found,) = said(lines)
    assert (head(found), found.count) == ("loss is NaN", 1)


def test_a_warning_that_repeats_a_number_adds_nothing() -> None:
    lines = [
        megatron(1),
        megatron(2),
        megatron(3, norm="nan"),
        "***WARNING*** Bad grad_norm detected (grad_norm=nan)",
    ]
    (found,) = said(lines)
    assert (found.step, found.count) == (3, 1)


def test_a_value_that_exploded_first_is_evidence() -> None:
    lines = ["epoch 3 | [Loss] 73422518.5 | [step] 20", "epoch 4 | [Loss] nan | [step] 40"]
    (found,) = said(lines)
    assert found.step == 40
    assert "it exploded first: 7.34e+07 at step 20" in evidence(found)


def test_two_bare_columns_are_a_step_and_a_loss_only_where_the_steps_say_so() -> None:
    rows = [f"{at} 2.5{at}" for at in range(500, 560, 10)]
    (found,) = said([*rows, "560 nan", "570 nan"])
    assert (found.step, found.count, found.attribution) == (560, 2, "likely")
    assert said(["0 1.5", "1 nan", "2 3.5"]) == []
    assert said([*rows, "9000 nan"]) == []


def test_the_key_of_a_long_line_is_kept_though_it_is_far_right() -> None:
    parts = ", ".join(f"loss_head_{n}: 1.{n}" for n in range(150))
    lines = [
        f"Iter [{at}/900]\tlr: 1e-04, {parts}, loss: 50.1, grad_norm: {norm}"
        for at, norm in ((50, 3.5), (100, "nan"))
    ]
    (found,) = said(lines)
    assert found.step == 100
    assert found.text.startswith("Iter [100/900]")
    assert found.text.endswith("grad_norm: nan")
    assert len(found.text) <= 420


# A loss that disappears.


def test_a_loss_that_disappears_is_told_with_its_step_and_its_run() -> None:
    lines = [megatron(at) for at in range(1, 60)]
    lines += [megatron(at, None) for at in range(60, 65)]
    lines += [megatron(at) for at in range(65, 100)] + [megatron(100, None)]
    first, second = said(lines)
    assert head(first).startswith("loss missing")
    assert (first.step, first.last_step, first.count, first.severity) == (60, 64, 5, "error")
    assert (second.step, second.count, second.severity, second.attribution) == (100, 1, "warning", "likely")
    assert "Megatron leaves a loss that is NaN out" in evidence(first)


def test_a_loss_that_disappears_together_with_a_bad_norm_is_one_story() -> None:
    (found,) = said([megatron(7), megatron(8), megatron(9, None, "nan")])
    assert head(found) == "gradient norm is NaN, and the loss is missing in this line"
    assert found.step == 9


def test_a_counter_of_nan_iterations_is_not_believed_either_way() -> None:
    assert said([megatron(at) for at in range(100)]) == []


def test_a_logger_that_alternates_misses_nothing() -> None:
    with_loss = "step: {} loss: 2.5 lr: 1e-4 tps: 1,234 memory: 25GiB"
    without = "step: {} lr: 1e-4 tps: 1,234 memory: 25GiB"
    assert said([one.format(at) for at in range(50) for one in (with_loss, without)]) == []
    assert said([(without if at % 10 else with_loss).format(at) for at in range(200)]) == []
    # The first times cannot be told from a loss that is lost; the fourth shows that it is a habit.
    assert said([(with_loss if at % 4 else without).format(at) for at in range(1, 200)]) == []


# Explosions.


def test_an_explosion_is_told_and_the_noise_before_it_is_not() -> None:
    rng = random.Random(2)
    lines = [step_line(at, f"{2 + rng.gauss(0, 0.2):.4f}") for at in range(100)]
    lines += [step_line(100, 812.3)] + [
        step_line(at, f"{2 + rng.gauss(0, 0.2):.4f}") for at in range(101, 200)
    ]
    following = follow(lines)
    (found,) = following.incidents()
    assert head(found).startswith("loss explodes: ")
    assert head(found).endswith("→ 812")
    assert (found.step, found.count, found.severity) == (100, 1, "warning")
    assert metric(following, "loss").trend == "spike"


def test_the_part_that_exploded_is_named_though_its_name_says_no_loss() -> None:
    lines = [
        f"Step {at}/900, loss: {box + cls:.4f}, box: {box:.4f}, cls: {cls:.4f}, cur_lr: 0.0{at}"
        for at, box, cls in ((10, 3.1, 5.2), (20, 2.9, 4.9), (30, 4.1, 9120.5), (40, 3.8, 20111.1))
    ]
    (found,) = said(lines)
    assert head(found).startswith("cls explodes: ")
    assert (found.severity, found.step, found.last_step, found.count) == ("error", 30, 40, 2)


def test_a_part_that_explodes_under_a_finite_total_is_told() -> None:
    lines = [step_line(at, 2.5, loss_kl=0.1 + at % 5 / 100, lr=1e-4) for at in range(50)]
    (found,) = said([*lines, step_line(50, 2.5, loss_kl=4123.4, lr=1e-4)])
    assert head(found) == "loss_kl explodes: 0.12 → 4,123"


# The loss scale.


def test_glued_messages_of_two_ranks_count_each_and_a_scale_without_recovery_collapses() -> None:
    lines = []
    for scale in (1024, 512, 256, 128, 64, 32, 16, 8):
        lines += ["Gradient overflow. Skipping stepGradient overflow. Skipping step", ""]
        lines += [f"Loss scaler reducing loss scale to {scale}.0Loss scaler reducing loss scale to {scale}.0"]
        lines += [hf(1, 5.2, 641.9)] if scale == 256 else []
    (found,) = said(lines)
    assert head(found) == "loss scale collapses: 1,024 → 8 without recovery"
    assert (found.count, found.category) == (16, "numeric")


def test_a_scale_below_one_is_not_the_cause_and_zero_is_the_end() -> None:
    words = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {}"
    (found,) = said([words.format(scale) for scale in ("2.5e-40", "1.25e-40")])
    assert head(found) == "loss scale fell below 1, to 1.2e-40"
    assert "it is not the cause" in evidence(found)
    (found,) = said([words.format(scale) for scale in ("2e-323", "1e-323", "5e-324", "0.0")])
    assert head(found) == "loss scale is 0: no step can be right any more"
    assert (found.severity, found.count) == ("error", 4)


def test_a_scale_that_is_lowered_to_what_it_was_is_at_its_minimum() -> None:
    line = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1"
    (found,) = said([line] * 12)
    assert (found.severity, found.count) == ("error", 12)
    assert "stays at 1" in head(found)


def test_updating_in_spite_of_an_overflow_is_an_error_and_a_constant_scale_no_search() -> None:
    lines = []
    for at in range(1, 5):
        lines += [
            "[WARNING] overflow, still update, loss scale adjust to 2048.0",
            step_line(at * 100, 2.5, lr=0.1),
        ]
    (found,) = said(lines)
    assert head(found) == "gradient overflow, and the optimizer still updates"
    assert (found.severity, found.count) == ("error", 4)
    assert "the loss scale stays 2,048" in evidence(found)


def test_one_skipped_step_is_a_search() -> None:
    (found,) = said(["检测到梯度溢出，跳过该步，损失缩放调整为 512.0"])
    assert (found.severity, found.count) == ("info", 1)
    assert head(found) == "gradient overflow: skipped, loss scale 512 (normal search)"


def test_a_bad_norm_in_a_step_that_the_scaler_skipped_is_its_search() -> None:
    lines = [step_line(at, 2.5, grad_norm=1.5, loss_scale=65536.0) for at in range(40)]
    lines += [step_line(40, 2.5, grad_norm="inf", loss_scale=32768.0)]
    lines += [step_line(at, 2.5, grad_norm=1.5, loss_scale=32768.0) for at in range(41, 90)]
    assert [one.severity for one in said(lines)] in ([], ["info"])


def test_an_overflow_that_a_line_of_metrics_tells_is_a_skipped_step() -> None:
    line = "{{ Epoch:[  1/  2], step:[{:5d}/ 6500], loss:[10.6/10.6], overflow cond: {}, loss_scale: {}"
    scales = [2.0**16] * 120 + [2.0 ** (15 - at) for at in range(14)]
    rows = [line.format(at + 1, scale < 2**16, scale) for at, scale in enumerate(scales)]
    (found,) = said(rows)
    assert head(found) == "loss scale collapses: 65,536 → 4 without recovery"
    assert (found.severity, found.count, found.last_step) == ("error", 14, 134)
    constant = [line.format(at + 1, True, 1024.0) for at in range(20)]
    (found,) = said(constant)
    assert head(found) == "steps are skipped, and the loss scale stays at 1,024"


def test_a_scale_printed_in_lines_of_metrics_collapses_too() -> None:
    scales = [65536.0] * 200 + [65536.0 / 2**at for at in range(1, 30)]
    found = said([megatron(at + 1, scale=f"{scale:.10f}") for at, scale in enumerate(scales)])[-1]
    assert head(found).startswith("loss scale fell below 1")
    assert (found.severity, found.last_step) == ("error", 229)
    (found,) = said([step_line(20, 2.5, grad_scale=0)])
    assert head(found) == "loss scale is 0: no step can be right any more"


# What is kept.


def test_a_calm_block_gives_what_its_lines_give_one_by_one() -> None:
    rng = random.Random(3)
    losses = [round(2 + rng.gauss(0, 0.2), 4) for _ in range(9000)]
    lines = [step_line(at, f"{loss:.4f}", lr=1e-4) for at, loss in enumerate(losses)]
    by_block, by_line = (follow(lines, block) for block in (3000, 50))
    for following in (by_block, by_line):
        found = metric(following, "loss")
        assert (found.count, found.low, found.high) == (9000, min(losses), max(losses))
        assert (found.value, found.step, found.trend) == (losses[-1], 8999, "steady")
        assert 50 <= len(found.points) <= 240
        assert found.points[0][0] < 1000
        assert found.points[-1][0] > 8000
        assert all(losses[int(step)] == value for step, value in found.points)


@pytest.mark.parametrize("at", [0, 1, 63, 64, 65, 511, 512, 2999, 3000, 7000, 8999])
def test_one_bad_line_in_many_is_found_wherever_it_stands(at: int) -> None:
    lines = [step_line(step, "nan" if step == at else f"2.{step % 1000:03d}") for step in range(9000)]
    (found,) = said(lines, 3000)
    assert (found.step, found.line, found.count) == (at, at % 3000 + 1 + at // 3000 * 3000, 1)


def test_what_is_kept_is_bounded_whatever_comes() -> None:
    rng = random.Random(4)
    following = Following()
    for at in range(400):
        names = [
            f"n{rng.randrange(10**6)}_loss".translate(str.maketrans("0123456789", "abcdefghij"))
            for _ in range(5)
        ]
        follow(
            [f"step: {at} " + " ".join(f"{name}: {rng.choice(['nan', '1.5', 'inf'])}" for name in names)],
            1,
            following,
        )
        follow(["Gradient overflow. Skipping step"] * 50, 50, following)
    assert len(following.incidents()) <= 32
    assert len(following.metrics()) <= 32


def test_a_foreign_name_is_safe_to_draw() -> None:
    (found,) = said(["a\u202e[31m_loss: nan step: 3"]) or [None]
    assert found is None or ("\u202e" not in head(found) and "\u202e" not in found.text)


def test_the_states_of_a_progress_bar_share_a_number_and_count_once_each() -> None:
    raws = [f" {at}% | {at}/3000 [00:01<00:09, loss=2.{at % 100:02d}]".encode() for at in range(3000)]
    found = layout_of(parse(raws[0]), raws[0])
    assert found is not None
    following = Following()
    following.take([Group(found, [at // 1000 for at in range(3000)], raws)])
    assert metric(following, "loss").count == 3000


def test_the_clock_of_an_incident_is_that_of_its_lines() -> None:
    lines = [f"2025-03-01 02:10:0{at} [INFO] step: {at} loss: {'nan' if at > 3 else 2.5}" for at in range(8)]
    (found,) = said(lines)
    assert found.is_clock_known
    assert found.first_wall_s is not None
    assert found.last_wall_s == found.first_wall_s + 3
