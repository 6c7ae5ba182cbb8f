"""Which output was bad first and what likely made it so: one constructed step for each rule."""

from __future__ import annotations

import math
from typing import Any

import pytest
from ascend_tui_plugins.overflow.decode import History
from ascend_tui_plugins.overflow.origin import Finding, judge
from ascend_tui_plugins.overflow.snapshot import Output, Point
from ascend_tui_plugins.overflow.values import figure, is_mask, is_near

from ascend_tui.text import say

INF, NAN = math.inf, math.nan
MOST = 65504.0


def op(index: int, name: str, low: float, high: float, *sources: int, path: str = "m", **more: Any) -> Output:
    """Return what an operator made from `sources`, in float16."""
    more.setdefault("dtype", "float16")
    return Output(index, path, op=f"aten::{name}", low=low, high=high, sources=sources, **more)


def module(index: int, path: str, kind: str, low: float, high: float, **more: Any) -> Output:
    """Return what a module made, in float16; of its inputs nothing is known."""
    more.setdefault("dtype", "float16")
    return Output(index, path, module_type=kind, low=low, high=high, **more)


def found(rows: list[Output], **more: Any) -> Finding:
    """Return the finding about a step that is known to have one."""
    finding = judge(rows, **more)
    assert finding is not None
    assert not finding.is_harmless
    return finding


def reason(finding: Finding) -> str:
    assert finding.source_reason is not None
    return say(finding.source_reason)


# Nothing is wrong.


def test_no_outputs_say_nothing() -> None:
    assert judge([]) is None


def test_a_healthy_step_has_no_finding() -> None:
    rows = [
        module(1, "wte", "Embedding", -0.08, 0.07),
        module(2, "blocks.0.ln", "LayerNorm", -4.1, 4.3),
        module(3, "blocks.0.attn.qkv", "Linear", -160.0, 141.0),
        module(4, "blocks.0.mlp.0", "Linear", -900.0, 812.0),
        module(5, "blocks.0.mlp.1", "GELU", -0.17, 812.0),
        module(6, "head", "Linear", -22.0, 31.0, dtype="float32"),
        Output(7, "", part="loss", low=2.1, high=2.1, dtype="float32"),
    ]
    assert judge(rows, saturates=False) is None
    assert judge(rows, saturates=True) is None


@pytest.mark.parametrize("low", [-1e4, -6e4, -MOST, -65000.0, -INF])
def test_a_masks_negative_side_is_not_near_the_limit(low: float) -> None:
    mask = module(1, "bias", "Mask", low, 0.0)
    scores = op(2, "add", low, 14.0, 1)
    weights = op(3, "_softmax", 0.0, 1.0, 2)
    finding = judge([mask, scores, weights])
    assert finding is None or finding.is_harmless


@pytest.mark.parametrize("low", [-3.4028234663852886e38, -3.3895313892515355e38, -1e30, -1e32])
def test_a_masks_negative_side_is_not_huge(low: float) -> None:
    assert judge([op(1, "add", low, 9.0, dtype="bfloat16"), op(2, "add", low, 9.0, dtype="float32")]) is None


def test_scaled_gradients_near_the_limit_are_no_finding() -> None:
    assert judge([op(1, "mm", -64000.0, 63000.0, phase="backward")]) is None


def test_a_value_is_near_the_limit_from_nine_tenths_on() -> None:
    assert is_near(module(1, "a", "Linear", -10.0, 0.91 * MOST))
    assert not is_near(module(1, "a", "Linear", -10.0, 0.89 * MOST))
    assert is_near(module(1, "a", "Linear", -10.0, 0.6 * MOST), share=0.5)
    assert is_near(module(1, "a", "Linear", -60512.0, 900.0)), "a number that no mask uses"
    assert not is_mask(module(1, "a", "Linear", -61000.0, 900.0))


def test_uninitialised_values_that_nobody_read_are_harmless() -> None:
    finding = judge([op(1, "empty", NAN, NAN), op(2, "zeros", 0.0, 0.0)])
    assert finding is not None
    assert finding.is_harmless


def test_a_mask_is_harmless_and_the_step_is_well() -> None:
    rows = [
        op(1, "bmm", -8.0, 9.0),
        op(2, "masked_fill", -INF, 9.0, 1, intended=True),
        op(3, "_softmax", 0.0, 1.0, 2),
        op(4, "bmm", -3.0, 2.0, 3),
    ]
    finding = judge(rows, 2)
    assert finding is not None
    assert finding.is_harmless


def test_a_division_that_is_masked_out_at_once_is_harmless() -> None:
    rows = [
        op(1, "norm", 0.0, 2.0),
        op(2, "div", NAN, NAN, 1, phase="backward"),
        op(3, "masked_fill", 0.0, 1.0, 2, phase="backward"),
    ]
    finding = judge(rows)
    assert finding is not None
    assert finding.is_harmless


# Walking back.


def test_the_source_is_the_matmul_near_the_limit_not_the_activation_that_overflowed() -> None:
    rows = [
        op(1, "native_layer_norm", -4.0, 4.0, path="l.12.ln"),
        op(2, "addmm", -61440.0, 60990.0, 1, path="l.12.mlp.up_proj"),
        op(3, "mul", -61440.0, 60990.0, 2, path="l.12.mlp.act"),
        op(4, "pow", -INF, INF, 3, path="l.12.mlp.act"),
        op(5, "tanh", NAN, NAN, 4, path="l.12.mlp.act"),
    ]
    finding = found(rows, first=4)
    assert (finding.kind, finding.severity, finding.first.index) == ("inf", "error", 4)
    assert finding.source is not None
    assert finding.source.path == "l.12.mlp.up_proj"
    assert finding.attribution == "likely", "walked back"
    assert "61,440" in reason(finding)
    assert "94 %" in reason(finding)
    assert "1 later outputs" in " ".join(say(one) for one in finding.evidence)


def test_at_module_level_the_run_near_the_limit_is_walked_back_in_time() -> None:
    rows = [
        module(1, "l.12.ln", "LayerNorm", -4.0, 4.0),
        module(2, "l.12.mlp.up_proj", "Linear", -900.0, 61440.0),
        module(3, "l.12.mlp.act", "Act", NAN, NAN),
        module(4, "l.12.mlp.down_proj", "Linear", NAN, NAN),
    ]
    finding = found(rows, first=3)
    assert finding.first.path == "l.12.mlp.act"
    assert finding.source is not None
    assert finding.source.path == "l.12.mlp.up_proj"
    assert finding.attribution == "likely"
    assert any("only modules" in say(one) for one in finding.evidence)


def test_parallel_branches_do_not_break_the_run_but_a_normalisation_does() -> None:
    rows = [
        module(1, "a.q", "Linear", -60000.0, 64000.0),
        module(2, "a.k", "Linear", -10.0, 10.0),
        module(3, "a.v", "Linear", -10.0, 10.0),
        module(4, "a.softmax", "Softmax", NAN, NAN),
    ]
    finding = found(rows)
    assert finding.source is not None
    assert finding.source.path == "a.q"
    normed = [rows[0], module(2, "a.ln", "RMSNorm", -3.0, 3.0), rows[2], module(4, "a.act", "GELU", NAN, NAN)]
    assert found(normed).source is None


def test_a_residual_leads_around_the_normalisation() -> None:
    rows = [
        module(1, "b.3", "Block", -64000.0, 60000.0),
        module(2, "b.4.ln", "LayerNorm", -3.0, 3.0),
        module(3, "b.4.mlp", "Mlp", -9000.0, 9000.0),
        module(4, "b.4", "Block", -INF, 60000.0),
    ]
    finding = found(rows)
    assert finding.first.path == "b.4"
    assert finding.source is not None
    assert finding.source.path == "b.3"


@pytest.mark.parametrize("level", ["ops", "modules"])
def test_a_residual_that_grows_thirty_times_leads_to_the_first_jump(level: str) -> None:
    def made(index: int, path: str, size: float, *sources: int) -> Output:
        if level == "ops":
            return op(index, "add", -size, size, *sources, path=path)
        return module(index, path, "Block", -size, size)

    rows = [
        made(1, "b.0", 1.1),
        made(2, "b.1.dequant", 36.0, 1),
        made(3, "b.2", 1200.0, 2),
        made(4, "b.3", 40000.0, 3),
        made(5, "b.4", INF, 4),
    ]
    finding = found(rows)
    assert finding.first.path == "b.4"
    assert finding.source is not None
    assert finding.source.path == "b.1.dequant"
    assert finding.cause == "jump"
    assert "32.7 times" in reason(finding)


def test_ordinary_growth_is_no_jump() -> None:
    rows = [
        op(1, "add", -0.1, 0.1),
        op(2, "mm", -9.0, 9.0, 1),
        op(3, "mm", -80.0, 90.0, 2),
        op(4, "exp", 0.0, INF, 3),
    ]
    finding = found(rows)
    assert finding.source is finding.first
    assert finding.attribution == "exact"
    assert "exponential of 90" in reason(finding)


def test_a_cycle_in_the_sources_ends() -> None:
    rows = [
        op(1, "add", -60000.0, 60000.0, 2, 1),
        op(2, "add", -60000.0, 60000.0, 1, 2),
        op(3, "add", INF, INF, 2),
    ]
    assert found(rows).source is not None


# What finite inputs can do.


def test_the_logarithm_of_zero_in_the_loss() -> None:
    rows = [
        op(1, "mm", -40.0, 38.0, dtype="float32"),
        op(2, "_softmax", 0.0, 1.0, 1, dtype="float32"),
        op(3, "log", -INF, 0.0, 2, dtype="float32"),
        op(4, "mul", NAN, NAN, 3, dtype="float32"),
    ]
    finding = found(rows)
    assert (finding.first.index, finding.kind, finding.cause) == (3, "inf", "log")
    assert finding.source is not None
    assert finding.source.index == 2
    assert finding.attribution == "exact"
    assert "logarithm of zero" in reason(finding)
    assert any("rounded to zero" in say(one) for one in finding.evidence)


@pytest.mark.parametrize(
    ("name", "low", "bad", "words"),
    [
        ("log", -0.5, NAN, "logarithm of a negative"),
        ("log1p", -1.0, -INF, "logarithm of zero"),
        ("sqrt", -1e-4, NAN, "root of a negative"),
        ("rsqrt", 0.0, INF, "division by zero"),
        ("reciprocal", 0.0, INF, "division by zero"),
        ("reciprocal", 6e-8, INF, "tiny denominator"),
        ("rsqrt", -3.0, NAN, "root of a negative"),
    ],
)
def test_what_an_operator_cannot_stand(name: str, low: float, bad: float, words: str) -> None:
    finding = found([op(1, "mul", low, 2.0), op(2, name, bad, bad, 1)])
    assert finding.source is not None
    assert finding.source.index == 1
    assert finding.attribution == "exact"
    assert words in reason(finding)


def test_a_division_by_a_tiny_denominator() -> None:
    rows = [op(1, "mm", -10.0, 10.0), op(2, "sum", 1e-6, 3.0), op(3, "div", -INF, INF, 1, 2)]
    finding = found(rows)
    assert (finding.cause, finding.source) == ("tiny", rows[1])


def test_zeros_of_the_only_known_input_of_a_division_are_no_sure_cause() -> None:
    finding = found([op(1, "relu", 0.0, 63000.0), op(2, "div", 0.0, INF, 1)])
    assert finding.cause == "near_run"
    finding = found([op(1, "relu", 0.0, 3.0), op(2, "div", NAN, NAN, 1)])
    assert finding.attribution == "likely"


def test_the_gradient_of_a_root_at_zero() -> None:
    rows = [
        op(1, "sum", 0.0, 9.0, dtype="float32", path="dist"),
        op(2, "sqrt", 0.0, 3.0, 1, dtype="float32", path="dist"),
        op(3, "mean", 1.0, 1.0, 2, dtype="float32"),
        op(4, "mul", 0.0, 6.0, 2, dtype="float32", phase="backward"),
        op(5, "div", 0.1, INF, 3, 4, dtype="float32", phase="backward"),
    ]
    finding = found(rows)
    assert (finding.first.index, finding.cause) == (5, "root_zero")
    assert finding.source is not None
    assert (finding.source.index, finding.source.path) == (2, "dist")
    assert "root at zero" in reason(finding)
    assert any("backward pass" in say(one) for one in finding.evidence)


def test_the_sum_in_float16_of_values_within_its_limits() -> None:
    rows = [op(1, "mm", 0.0, 60.0, shape=(64, 2048)), op(2, "sum", 0.0, INF, 1, shape=(64,))]
    finding = found(rows)
    assert (finding.cause, finding.source, finding.attribution) == ("reduction", rows[1], "exact")
    assert "2,048 finite values up to 60" in reason(finding)


def test_attention_logits_leave_the_type_before_the_softmax() -> None:
    rows = [
        op(1, "view", -300.0, 300.0, shape=(8, 128, 64)),
        op(2, "transpose", -310.0, 310.0, shape=(8, 64, 128)),
        op(3, "bmm", -INF, INF, 1, 2, shape=(8, 128, 128)),
        op(4, "_softmax", NAN, NAN, 3, shape=(8, 128, 128)),
    ]
    finding = found(rows)
    assert (finding.first.index, finding.cause, finding.source) == (3, "logits", rows[2])
    assert "attention logits" in reason(finding)


def test_a_cast_of_a_value_that_does_not_fit() -> None:
    rows = [op(1, "add", -9.0, 70000.0, dtype="float32"), op(2, "_to_copy", -9.0, INF, 1)]
    finding = found(rows)
    assert (finding.cause, finding.source, finding.attribution) == ("cast", rows[0], "exact")


def test_a_product_of_two_moderate_inputs() -> None:
    finding = found([op(1, "silu", -0.3, 400.0), op(2, "mm", -300.0, 300.0), op(3, "mul", -INF, INF, 1, 2)])
    assert (finding.cause, finding.attribution, finding.first.index) == ("product", "exact", 3)
    assert finding.source is finding.first


def test_a_written_nan_is_where_it_was_written() -> None:
    rows = [op(1, "mm", -3.0, 3.0), op(2, "fill_", NAN, NAN, 1, path="b.2"), op(3, "mm", NAN, NAN, 2)]
    finding = found(rows)
    assert finding.first.path == "b.2"
    assert finding.source is finding.first
    assert (finding.cause, finding.kind, finding.attribution) == ("written", "nan", "likely")


# Masks that are not well.


def test_a_fully_masked_row_before_the_softmax() -> None:
    rows = [
        op(1, "bmm", -8.0, 9.0),
        op(2, "masked_fill", -INF, 9.0, 1, intended=True),
        op(3, "_softmax", NAN, NAN, 2, path="attn"),
        op(4, "bmm", NAN, NAN, 3),
    ]
    finding = found(rows, first=3)
    assert (finding.kind, finding.first.index, finding.attribution) == ("masked_row", 3, "exact")
    assert finding.source is rows[1]


def test_a_mask_that_was_added_is_walked_back_to_where_it_was_made() -> None:
    rows = [
        op(1, "triu", -INF, 0.0, intended=True),
        op(2, "bmm", -8.0, 9.0),
        op(3, "add", -INF, 9.0, 2, 1),
        op(4, "_softmax", NAN, NAN, 3),
    ]
    finding = found(rows)
    assert (finding.kind, finding.first.index, finding.source) == ("masked_row", 4, rows[0])


def test_the_logarithm_of_a_mask_makes_a_fully_masked_row() -> None:
    rows = [
        op(1, "mul", 0.0, 1.0, dtype="float32"),
        op(2, "log", -INF, 0.0, 1, dtype="float32"),
        op(3, "add", -INF, 4.0, 2, dtype="float32"),
        op(4, "_log_softmax", NAN, NAN, 3, dtype="float32"),
    ]
    finding = found(rows)
    assert (finding.kind, finding.first.index, finding.source) == ("masked_row", 4, rows[1])


def test_a_fully_masked_row_at_module_level() -> None:
    rows = [
        module(1, "attn.softmax", "", -INF, 6.0, part="input"),
        module(2, "attn.softmax", "Softmax", NAN, NAN),
    ]
    finding = found(rows)
    assert (finding.kind, finding.first.index, finding.attribution) == ("masked_row", 2, "likely")


def test_zero_times_a_masks_infinity() -> None:
    rows = [op(1, "full", -INF, -INF, intended=True), op(2, "rsub", 0.0, 1.0), op(3, "mul", NAN, NAN, 1, 2)]
    finding = found(rows)
    assert (finding.kind, finding.cause, finding.source) == ("nan", "zero_times_inf", rows[0])


def test_minus_inf_of_an_overflow_is_no_mask() -> None:
    rows = [op(1, "mm", -60000.0, 3000.0), op(2, "mul", -INF, 4000.0, 1)]
    finding = found(rows)
    assert (finding.first.index, finding.cause) == (2, "near_run")
    assert found([module(1, "up", "Linear", -INF, 30000.0)]).kind == "inf"


# Weights, memory and kernels.


def test_a_bad_row_in_the_weights_of_an_embedding() -> None:
    rows = [module(1, "wte", "Embedding", NAN, NAN), module(2, "ln", "LayerNorm", NAN, NAN)]
    weight = Output(0, "wte.weight", part="parameter", low=NAN, high=NAN, bad_count=768, position=(17, 0))
    finding = found(rows, parameters=[weight])
    assert (finding.first.path, finding.source, finding.attribution) == ("wte", weight, "exact")
    assert "768" in reason(finding)
    assert "17, 0" in reason(finding)
    unseen = found(rows)
    assert (unseen.cause, unseen.source, unseen.attribution) == ("weights", rows[0], "likely")


def test_bad_weights_of_another_module_are_not_blamed() -> None:
    rows = [module(1, "a", "Linear", -3.0, 3.0), module(2, "b", "Act", NAN, NAN)]
    weight = Output(0, "head.weight", part="parameter", low=NAN, high=NAN)
    assert found(rows, parameters=[weight]).source is None


@pytest.mark.parametrize("name", ["clone", "transpose", "relu"])
def test_a_copy_cannot_make_nan_of_finite_values(name: str) -> None:
    finding = found([op(1, "mm", -3.0, 3.0), op(2, name, NAN, NAN, 1), op(3, "mm", NAN, NAN, 2)])
    assert (finding.cause, finding.attribution, finding.source) == ("memory", "async", None)
    assert finding.first.index == 2


def test_a_product_of_small_values_cannot_make_nan() -> None:
    rows = [
        op(1, "mul", -26.0, 19.0, shape=(64, 64), dtype="bfloat16"),
        op(2, "mul", -1.0, 1.0, shape=(64, 64), dtype="bfloat16"),
        op(3, "mm", NAN, NAN, 1, 2, shape=(64, 64), dtype="bfloat16"),
    ]
    finding = found(rows)
    assert (finding.cause, finding.attribution) == ("memory", "async")
    assert "memory or the kernel" in reason(finding)


def test_with_weights_that_nobody_looked_at_the_weights_are_named_too() -> None:
    rows = [module(1, "ln", "LayerNorm", -3.0, 3.0, shape=(4, 64)), module(2, "fc", "Linear", NAN, NAN)]
    finding = found(rows)
    assert (finding.cause, finding.attribution, finding.source) == ("weights_or_memory", "likely", rows[1])
    assert found(rows, parameters=()).cause == "memory"


def test_what_was_read_uninitialised() -> None:
    rows = [op(1, "empty", NAN, NAN), op(2, "add", NAN, NAN, 1)]
    finding = found(rows)
    assert (finding.first.index, finding.cause, finding.source) == (2, "uninitialised", rows[0])


def test_where_only_the_place_is_known_no_cause_is_claimed() -> None:
    rows = [module(1, "conv", "Custom", -3.0, 3.0), module(2, "mixed_qkv", "Custom", NAN, NAN)]
    finding = found(rows)
    assert (finding.source, finding.source_reason, finding.cause) == (None, None, "unknown")
    assert finding.attribution == "likely"
    assert any("only where it was first seen" in say(one) for one in finding.evidence)


def test_an_unknown_operator_with_finite_inputs_is_the_place_itself() -> None:
    rows = [op(1, "mm", -3.0, 3.0), op(2, "moe_gating_top_k_softmax_v9", -1.0, INF, 1)]
    finding = found(rows)
    assert (finding.source, finding.attribution, finding.cause) == (rows[1], "exact", "here")


# Gradients, loss, parameters.


def test_of_bad_gradients_the_last_layers_came_first() -> None:
    rows = [
        Output(i, path, part="gradient", phase="backward", low=0.0, high=NAN)
        for i, path in enumerate(["wte.weight", "b.0.fc.weight", "b.1.fc.weight"])
    ]
    finding = found(rows, first=0)
    assert (finding.kind, finding.first.path, finding.source) == ("gradient", "b.1.fc.weight", None)
    assert "3 bad gradients" in say(finding.evidence[0])


def test_a_loss_alone() -> None:
    finding = found([Output(0, "", part="loss", low=NAN, high=NAN)])
    assert (finding.kind, finding.source) == ("loss", None)


def test_bad_weights_alone() -> None:
    finding = found([Output(0, "wte.weight", part="parameter", low=NAN, high=NAN)])
    assert (finding.kind, finding.first.path) == ("parameter", "wte.weight")


# Near, huge, clamped, zero.


def test_near_the_limit_with_its_climb() -> None:
    rows = [module(1, "ln", "LayerNorm", -4.0, 4.0), module(2, "up", "Linear", -900.0, 61440.0)]
    points = tuple(Point(step, size) for step, size in ((17000, 30000.0), (17500, 48128.0), (17900, 61440.0)))
    finding = found(rows, history=[History("up", points=points)])
    assert (finding.kind, finding.severity, finding.first.path) == ("near_limit", "warning", "up")
    assert finding.source is rows[1]
    said = [say(one) for one in finding.evidence]
    assert any("30,000 → 61,440 from step 17,000 to 17,900" in one for one in said)


def test_huge_but_finite() -> None:
    finding = found([op(1, "mm", -26.0, 3.3e38, dtype="bfloat16")])
    assert (finding.kind, finding.severity) == ("huge", "warning")


def test_a_clamping_chip_shows_its_limit_instead_of_inf() -> None:
    rows = [op(1, "mm", -300.0, 300.0, shape=(8, 64)), op(2, "mm", -290.0, 290.0, shape=(64, 8))]
    rows.append(op(3, "bmm", -MOST, MOST, 1, 2))
    finding = found(rows, saturates=True)
    assert (finding.kind, finding.severity, finding.first.index) == ("saturated", "error", 3)
    assert finding.source is rows[2]
    elsewhere = found(rows, saturates=False)
    assert elsewhere.kind == "near_limit"


def test_a_clamped_value_is_walked_back_to_what_was_near() -> None:
    rows = [op(1, "mm", -900.0, 61440.0, path="up"), op(2, "mul", 0.0, MOST, 1, path="act")]
    finding = found(rows, saturates=True)
    assert (finding.kind, finding.first.path) == ("saturated", "act")
    assert finding.source is rows[0]


def test_an_underflow_to_zero() -> None:
    rows = [op(1, "mul", -1e-5, 1e-5), op(2, "mul", -1e-4, 1e-4), op(3, "mul", 0.0, 0.0, 1, 2)]
    finding = found(rows)
    assert (finding.kind, finding.severity, finding.first.index) == ("underflow", "warning", 3)
    assert judge([op(1, "mul", 0.0, 0.0), op(2, "mul", -1e-4, 1e-4), op(3, "mul", 0.0, 0.0, 1, 2)]) is None


def test_a_module_that_left_its_own_past_is_the_likely_source() -> None:
    points = tuple(Point(step, size) for step, size in ((1, 40.0), (2, 41.0), (3, 39.0), (4, 9000.0)))
    rows = [module(1, "emb", "Custom", -9000.0, 8.0), module(2, "act", "Custom", NAN, NAN)]
    finding = found(rows, history=[History("emb", points=points)])
    assert (finding.source, finding.attribution, finding.cause) == (rows[0], "likely", "sudden")
    assert "225 times" in reason(finding)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (61440.0, "61,440"),
        (3.4e38, "3.4e+38"),
        (INF, "Inf"),
        (-INF, "-Inf"),
        (NAN, "NaN"),
        (0.0, "0"),
        (2.5, "2.5"),
    ],
)
def test_figures(value: float, words: str) -> None:
    assert figure(value) == words
