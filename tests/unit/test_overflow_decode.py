"""What probes send is checked: what fits is taken as it is, what does not is left out, and nothing raises."""

from __future__ import annotations

import math
from typing import Any

import pytest
from ascend_tui_plugins.overflow import decode
from ascend_tui_plugins.overflow.snapshot import Line, Point
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_tui.text import say

ROW = {
    "i": 7,
    "path": "blocks.0.mlp.2",
    "part": "output",
    "type": "Linear",
    "op": "aten::addmm",
    "phase": "forward",
    "dtype": "torch.float16",
    "shape": [4, 128, 64],
    "min": "-Infinity",
    "max": 61440,
    "near": 0.02,
    "zero": 0.0,
    "bad": 3,
    "position": [0, 5, 9],
    "from": [5, 6],
    "intended": True,
}


def test_a_row_is_taken_as_it_is() -> None:
    row = decode.output(ROW)
    assert row is not None
    assert (row.index, row.path, row.part, row.module_type, row.op) == (
        7,
        "blocks.0.mlp.2",
        "output",
        "Linear",
        "aten::addmm",
    )
    assert (row.phase, row.dtype, row.shape) == ("forward", "float16", (4, 128, 64))
    assert (row.low, row.high, row.abs_max) == (-math.inf, 61440.0, math.inf)
    assert (row.near_share, row.zero_share, row.bad_count) == (0.02, 0.0, 3)
    assert (row.position, row.sources, row.intended) == ((0, 5, 9), (5, 6), True)


def test_what_is_missing_has_its_own_value() -> None:
    row = decode.output({"i": 1, "min": "NaN", "max": "NaN"})
    assert row is not None
    assert math.isnan(row.low)
    assert math.isnan(row.abs_max)
    assert (row.path, row.part, row.phase, row.sources, row.position) == ("", "output", "forward", None, None)
    assert decode.output({"i": 1}) is None, "no values"
    assert decode.output({"min": 0.0, "max": 1.0}) is None, "no place in the order"
    bad = decode.output({"i": 1, "bad": 2})
    assert bad is not None
    assert math.isnan(bad.low)
    one = decode.output({"i": 1, "max": 2.0})
    assert one is not None
    assert (one.low, one.high) == (2.0, 2.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("part", "weird"),
        ("part", ["output"]),
        ("phase", {}),
        ("shape", "abc"),
        ("shape", [-1, True, None, "3"]),
        ("from", 7),
        ("near", 12.0),
        ("bad", -3),
        ("bad", 10**400),
        ("position", [[1]]),
        ("intended", "yes"),
        ("path", 12),
        ("dtype", None),
    ],
)
def test_a_wrong_type_is_left_out(field: str, value: Any) -> None:
    row = decode.output({"i": 1, "min": 0.0, "max": 1.0, field: value})
    assert row == decode.output({"i": 1, "min": 0.0, "max": 1.0})


@pytest.mark.parametrize("value", [None, "7", True, -1, math.nan, 10**400, [1], 2.0**60])
def test_a_row_without_a_real_index_is_left_out(value: Any) -> None:
    assert decode.output({"i": value, "min": 0.0, "max": 1.0}) is None


def test_foreign_text_is_made_safe_and_short() -> None:
    row = decode.output({"i": 1, "min": 0, "max": 0, "path": "a\x1b[2Jb‮" + "x" * 5000, "op": "\n"})
    assert row is not None
    assert "\x1b" not in row.path
    assert "‮" not in row.path
    assert len(row.path) <= decode.MOST_TEXT
    assert row.op == " "


def test_a_parameter_without_a_name_is_told_by_its_place() -> None:
    row = decode.output({"i": 1, "min": 0, "max": "NaN", "part": "gradient", "path": "", "index": 12})
    assert row is not None
    assert row.path == "parameters[12]"


def test_numbers_that_are_not_finite_come_as_words() -> None:
    assert decode.number("Infinity") == math.inf
    assert decode.number("-Infinity") == -math.inf
    assert math.isnan(decode.number("NaN") or 0.0)
    for value in ("nan", "1.0", True, None, [], 10**400):
        assert decode.number(value) is None


def test_rows_are_in_order_and_each_index_is_there_once() -> None:
    rows = decode.outputs([{"i": i, "min": 0, "max": i} for i in (3, 1, 2, 1)])
    assert [row.index for row in rows] == [1, 2, 3]
    assert len(decode.outputs([{"i": i, "min": 0, "max": 1} for i in range(5000)])) == decode.MOST_ROWS


def test_the_evidence_of_a_step() -> None:
    rows = decode.rows(
        {
            "level": "modules",
            "step": 18401,
            "first": 7,
            "near": [6],
            "total": 42,
            "bad": 5,
            "rows": [{"i": 6, "min": 0, "max": 61440}, {"i": 7}],
            "history": [{"path": "up", "part": "output", "points": [[1, 2.0], [2, "Infinity"], [3]]}],
            "stack": [["train.py", 12, "step"], ["bad"]],
            "loss": "NaN",
            "scale": 65536,
            "why": "loss",
        }
    )
    assert rows is not None
    assert (rows.level, rows.step, rows.first, rows.near, rows.total, rows.bad) == (
        "modules",
        18401,
        7,
        (6,),
        42,
        5,
    )
    assert [row.index for row in rows.outputs] == [6, 7]
    assert math.isnan(rows.outputs[1].low), "the first bad one is bad, also without its numbers"
    assert rows.history[0].points == (Point(1, 2.0), Point(2, math.inf))
    assert rows.stack == (Line("train.py", 12, "step"),)
    assert math.isnan(rows.loss or 0.0)
    assert (rows.scale, rows.why, rows.calm, rows.of_weights) == (65536.0, "loss", False, False)


def test_rows_of_weights_and_of_no_known_level() -> None:
    weights = decode.rows({"level": "parameters", "step": 3, "rows": []})
    assert weights is not None
    assert weights.of_weights
    assert decode.rows({"level": "everything"}) is None
    assert decode.rows({}) is None


def test_a_pulse() -> None:
    pulse = decode.pulse(
        {
            "losses": [[1, 2.5], [2, "NaN"], "x", [None, 1]],
            "grads": [[1, 0.3]],
            "scales": [[1, 65536]],
            "skips": [4, -1, "5"],
            "skipped": 9,
            "watched": 100,
            "rank": 3,
            "device": "npu:0",
            "levels": [
                {"name": "gradients", "on": True, "every": 10},
                {"name": "ops", "on": False, "why": "a {mode} is on"},
                {"name": "nonsense"},
                7,
            ],
            "saturates": False,
            "register": True,
            "register_step": 4,
            "hottest": [{"i": 1, "min": 0, "max": 50000}],
            "unseen": {"compiled": 3, "late": 0, "other": 5},
            "fp16_zero_grads": [4, 0.75],
        }
    )
    assert pulse.losses[0] == (1, 2.5)
    assert len(pulse.losses) == 2
    assert (pulse.skips, pulse.skipped, pulse.watched, pulse.rank, pulse.device) == ((4,), 9, 100, 3, "npu")
    assert pulse.levels is not None
    assert [(level.name, level.on, level.every) for level in pulse.levels] == [
        ("gradients", True, 10),
        ("ops", False, 1),
    ]
    why = pulse.levels[1].why
    assert why is not None
    assert say(why) == "a {mode} is on"
    assert (pulse.saturates, pulse.register_step, pulse.zero_grads) == (False, 4, (4, 0.75))
    assert pulse.unseen is not None
    assert [say(one) for one in pulse.unseen] == ["3 outputs inside compiled code were not seen"]


def test_a_pulse_that_says_nothing_changes_nothing() -> None:
    pulse = decode.pulse({})
    assert (pulse.levels, pulse.hottest, pulse.unseen, pulse.saturates, pulse.register_step) == (None,) * 5
    assert decode.pulse({"register": True}).register_step == 0


_JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(["NaN", "Infinity", "loss", "modules", "gradient"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(
                [*ROW, "rows", "level", "losses", "levels", "name", "points", "first", "history"]
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=20,
)
_FIELDS = st.sampled_from(
    [
        "losses",
        "grads",
        "scales",
        "skips",
        "skipped",
        "levels",
        "hottest",
        "unseen",
        "fp16_zero_grads",
        "register",
        "saturates",
        "level",
        "step",
        "first",
        "near",
        "rows",
        "history",
        "stack",
        "loss",
        "why",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(_FIELDS, _JUNK, max_size=8))
def test_nothing_that_is_sent_raises(data: dict[str, Any]) -> None:
    pulse = decode.pulse(data)
    assert all(isinstance(loss, float) for _, loss in pulse.losses)
    assert len(pulse.hottest or ()) <= decode.MOST_HOTTEST
    for rows in (decode.rows(data), decode.rows({**data, "level": "ops"})):
        assert rows is None or len(rows.outputs) <= decode.MOST_ROWS
