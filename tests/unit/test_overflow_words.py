"""What the overflow pane says of an incident, of the levels and of a filter, without a screen."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from ascend_tui_plugins.overflow import climb_view, detail_view, window_view
from ascend_tui_plugins.overflow.figures import bad_value, fit_end, op_word, place_of, plain, type_word
from ascend_tui_plugins.overflow.filtering import parse
from ascend_tui_plugins.overflow.snapshot import Incident, Level, Output, OverflowSnapshot, Point
from ascend_tui_plugins.overflow.stream import entry_lines, ranks_words, second_line, worst
from ascend_tui_plugins.overflow.words import closing_lines, mode_words, numbers_line, summary_words

from ascend_tui.plugin import Command, Lease, Message
from ascend_tui.text import width

INF, NAN = math.inf, math.nan
MODULES = Command("modules", "modules", "about +1 %", Lease(9, 9.0), hotkey="o")
OPS = Command("ops", "drill down", "op level, 3 steps, +20 %", Lease(3, 9.0), hotkey="d")
CAN = {"modules": MODULES, "ops": OPS}
ACT = Output(14, "layers.12.mlp.act", dtype="float16", high=INF)
UP = Output(12, "layers.12.mlp.up_proj", dtype="float16", low=-61440.0, high=48128.0)


def words(line: Any) -> str:
    return line if isinstance(line, str) else "".join(text for text, _ in line)


def incident(**changes: Any) -> Incident:
    fields: dict[str, Any] = {
        "kind": "inf",
        "severity": "error",
        "headline": Message("Inf"),
        "step": 18_401,
        "first_seen": ACT,
        "source": UP,
    }
    return Incident(**{**fields, **changes})


def shown(one: Incident, cells: int = 56, rank: int | None = 0) -> list[str]:
    return [words(line).rstrip() for line in entry_lines(one, cells, 7, rank)]


# The stream.


def test_a_line_of_the_stream_and_its_source() -> None:
    assert shown(incident(count=3)) == [
        "! error  18,401  layers.12.mlp.act  Inf  fp16  ×3",
        "        source, likely: layers.12.mlp.up_proj 61,440",
    ]


@pytest.mark.parametrize("cells", [30, 40, 56, 78, 200])
def test_the_path_gives_way_and_the_kind_does_not(cells: int) -> None:
    deep = Output(1, "model." * 40 + "mlp.act", dtype="float16", low=NAN, high=NAN)
    first, *_ = shown(incident(kind="nan", first_seen=deep, source=None), cells)
    assert first.endswith("act  NaN  fp16")
    assert width(first) <= max(cells, 42)


ALONE = {"source": None}
LOSS = Output(0, "", "loss", low=NAN, high=NAN)
GRADIENT = Output(0, "a.weight", "gradient", high=INF)
PARAMETER = Output(0, "a.bias", "parameter", low=-INF)
HERE = {"source": ACT, "source_reason": Message("all inputs finite")}
COLLAPSE = {"kind": "scale_collapse", "headline": Message("the scale collapses"), "first_seen": None, **ALONE}
CLIMB = (Point(100, 48128.0), Point(1000, 61440.0))


@pytest.mark.parametrize(
    ("changes", "first", "second"),
    [
        ({"attribution": "exact"}, "", "source, exact: layers.12.mlp.up_proj 61,440"),
        ({"attribution": "async"}, "", "source, unsure: layers.12.mlp.up_proj 61,440"),
        (HERE, "", "source, likely: here; all inputs finite"),
        ({**ALONE, "source_reason": Message("not watched")}, "", "source not known: not watched"),
        (ALONE, "", None),
        ({"kind": "loss", "first_seen": LOSS, **ALONE}, "the loss  loss NaN", None),
        ({"kind": "gradient", "first_seen": GRADIENT, **ALONE}, "a.weight  gradient Inf", None),
        ({"kind": "parameter", "first_seen": PARAMETER, **ALONE}, "a.bias  parameter -Inf", None),
        ({"kind": "masked_row", **ALONE}, "layers.12.mlp.act  fully masked row  fp16", None),
        ({"kind": "underflow", **ALONE}, "layers.12.mlp.act  underflow to 0  fp16", None),
        ({"kind": "saturated", **ALONE}, "layers.12.mlp.act  clamped  fp16", None),
        ({"kind": "huge", **ALONE}, "layers.12.mlp.act  huge  fp16", None),
        (COLLAPSE, "the scale collapses", None),
        (
            {"kind": "near_limit", "climb": CLIMB},
            "near limit",
            "|x| max 48,128 → 61,440 over 900 steps",
        ),
    ],
)
def test_each_kind_in_words(changes: Any, first: str, second: str | None) -> None:
    lines = shown(incident(**changes), 78)
    assert first in lines[0]
    assert (lines[1].strip() if len(lines) > 1 else None) == second


def test_ranks_are_said_where_they_are_not_just_this_one() -> None:
    assert "rank" not in shown(incident(ranks=(0,)))[0]
    assert shown(incident(ranks=(3,)))[0].endswith("rank 3")
    assert shown(incident(ranks=(0, 1, 2, 5)))[0].endswith("ranks 0-2,5")
    assert ranks_words(range(0, 40, 2)) == "ranks 0,2,4,6,8,10…"


def test_the_gravest_and_of_those_the_newest_is_the_verdict() -> None:
    info = incident(kind="scale_search", severity="info", step=30)
    old, new = incident(step=10), incident(step=20)
    assert worst((old, new, info)) is new
    assert worst((info,)) is info
    assert worst(()) is None


def test_a_climb_that_says_nothing_is_no_line() -> None:
    assert second_line(incident(kind="near_limit", climb=(Point(1, 5.0),)), 60) == ""


# Mode, numbers, last lines.


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ((), ""),
        ((Level("loss"), Level("gradients")), "off"),
        ((Level("loss", on=True),), "loss"),
        ((Level("loss", on=True), Level("gradients", on=True, every=10)), "gradients 1/10"),
        (
            (Level("gradients", on=True, every=10), Level("modules", on=True, every=10)),
            "gradients + modules 1/10",
        ),
        (
            (Level("gradients", on=True, every=10), Level("modules", on=True)),
            "gradients 1/10 + modules",
        ),
        ((Level("gradients", on=True), Level("ops", on=True)), "ops: 3 steps"),
        (
            (Level("gradients", on=True), Level("modules", why=Message("torch.compile"))),
            "gradients · modules off: torch.compile",
        ),
        (
            (Level("gradients", on=True), Level("modules", why=Message("compiled " * 20))),
            "gradients · modules off",
        ),
    ],
)
def test_the_mode(levels: Any, expected: str) -> None:
    assert mode_words(levels, 3, 1, 60) == expected


def test_the_mode_says_that_it_is_thinned_where_there_is_room() -> None:
    levels = (Level("gradients", on=True, every=10),)
    assert mode_words(levels, 3, 4, 60) == "gradients 1/10, sampling 1/4: over budget"
    assert mode_words(levels, 3, 4, 20) == "gradients 1/10"


def test_the_numbers_keep_their_places() -> None:
    now = OverflowSnapshot(loss=2.314, grad_norm=1.2, scale=65536.0, skipped=12)
    later = OverflowSnapshot(loss=12345.0, grad_norm=0.0312, scale=1.0, skipped=9)
    first, second = words(numbers_line(now, 78)), words(numbers_line(later, 78))
    assert first == "loss     2.31  grad norm     1.20  scale   65,536  skipped       12"
    assert [first.index(name) for name in ("grad", "scale", "skipped")] == [
        second.index(name) for name in ("grad", "scale", "skipped")
    ]
    assert words(numbers_line(now, 30)) == "loss     2.31"
    assert numbers_line(OverflowSnapshot(loss=NAN), 60)[1] == ("      NaN", "bad")
    assert numbers_line(OverflowSnapshot(), 60) == []


LEVELS = (Level("loss", on=True), Level("gradients", on=True, every=10), Level("modules"), Level("ops"))


def closing(snapshot: OverflowSnapshot, cells: int = 110, rows: int = 5, **options: Any) -> list[str]:
    return [words(line) for line in closing_lines(snapshot, cells, rows, options.pop("can", CAN), **options)]


def test_the_empty_state_teaches() -> None:
    calm = OverflowSnapshot(steps_watched=18_442, levels=LEVELS)
    assert closing(calm) == [
        "No overflow in 18,442 steps. Watching loss, gradients 1/10. Press o to watch modules (about +1 %)."
    ]
    assert closing(calm, can={}) == ["No overflow in 18,442 steps. Watching loss, gradients 1/10."]
    assert summary_words(calm) == "no overflow; watching loss, gradients 1/10"
    assert summary_words(OverflowSnapshot()) == "no step has been looked at yet"
    assert closing(OverflowSnapshot())[0] == "No step has been looked at yet."


def test_a_refused_level_says_why_and_its_key_is_not_offered() -> None:
    levels = (*LEVELS[:2], Level("modules", why=Message("the model is compiled (torch.compile)")))
    lines = closing(OverflowSnapshot(steps_watched=10, levels=levels))
    assert "modules cannot be watched: the model is compiled (torch.compile)" in lines
    assert "Press o" not in " ".join(lines)


def test_a_chip_that_clamps_is_said() -> None:
    lines = closing(OverflowSnapshot(steps_watched=10, levels=LEVELS, saturates=True))
    assert "this chip clamps: overflow shows as 65,504, not Inf" in lines


def test_an_incident_is_the_verdict_with_its_source_its_advice_and_the_next_key() -> None:
    one = incident(first_step=18_398, advice=(Message("keep it in fp32"),))
    snapshot = OverflowSnapshot(steps_watched=10, levels=LEVELS, incidents=(one,))
    assert closing(snapshot) == [
        "! Inf: layers.12.mlp.act   since step 18,398   source, likely: layers.12.mlp.up_proj 61,440",
        "keep it in fp32",
        "d drill down (op level, 3 steps, +20 %)  o modules (about +1 %)",
    ]
    # What is most needed is kept: the state and the key.
    assert closing(snapshot, 56, 2) == [
        "! Inf: layers.12.mlp.act   since step 18,398",
        "d drill down (op level, 3 steps, +20 %)",
    ]


def test_a_sentence_that_lost_its_end_says_so() -> None:
    snapshot = OverflowSnapshot(steps_watched=10, levels=LEVELS, notes=(Message("word " * 30),))
    assert closing(snapshot, 60, 3)[-1].endswith("word…")


def test_a_cost_that_is_long_is_said_whole() -> None:
    cost = "operators of 3 steps, about +20 %, several times slower with small operators"
    can = {"ops": dataclasses.replace(OPS, cost=cost)}
    snapshot = OverflowSnapshot(steps_watched=10, levels=LEVELS, incidents=(incident(),))
    assert closing(snapshot, 56, can=can)[1:] == [
        "d drill down (operators of 3 steps, about +20 %,",
        "  several times slower with small operators)",
    ]
    assert closing(snapshot, 56, 2, can=can)[1].endswith("+20 %,…")


# The story.


@pytest.mark.parametrize("cells", [40, 57, 71, 110])
def test_the_table_fits_and_names_source_and_first_seen(cells: int) -> None:
    mask = Output(13, "layers.12.attn", op="aten::masked_fill", low=-INF, intended=True)
    rows = tuple(
        dataclasses.replace(one, op="aten::addmm", shape=(8, 128, 4096), near_share=0.004, sources=(10,))
        for one in (UP, ACT)
    )
    one = incident(first_seen=rows[1], source=rows[0], window=(rows[0], mask, rows[1]))
    lines = [words(line) for line in window_view.lines_of(one, cells)]
    assert all(width(line) <= cells for line in lines)
    assert [line[0] for line in lines[:4]] == [" ", "▸", "~", "!"]
    assert "61,440" in lines[1]
    assert "Inf" in lines[3]
    assert "▸ source   ! first seen" in lines[4]
    assert ("0.4 %" in lines[1]) == (cells >= 71)
    assert ("[8, 128, 4096]" in lines[1]) == (cells >= 110)


def test_the_climb_is_drawn_from_low_to_high_and_bad_values_stand_above() -> None:
    points = (*(Point(step, 100.0 + step) for step in range(0, 1000, 10)), Point(1000, INF))
    lines = [words(line) for line in climb_view.lines_of(points, 50, unicode=True)]
    assert lines[0].rstrip().endswith("!")
    assert lines[1].startswith("     1,090 │")
    assert lines[3].startswith("       100 │⣀")
    assert lines[4].split() == ["0", "1,000"]
    assert climb_view.lines_of(points[:1], 50) == []
    assert climb_view.lines_of((Point(1, NAN), Point(2, NAN)), 50) == []
    wide = [words(line) for line in climb_view.lines_of((Point(0, 1.0), Point(9, 1e9)), 50, unicode=False)]
    assert wide[1].split("|")[0].strip() == "log"
    assert all(line.isascii() for line in wide)


def test_the_story_is_in_its_order() -> None:
    one = incident(
        first_seen=Output(14, "m.act", dtype="float16", high=INF, bad_count=3, position=(0, 17)),
        source_reason=Message("it passed 60,000"),
        window=(UP, ACT),
        climb=(Point(0, 1.0), Point(9, 2.0)),
        evidence=(Message("finite in, Inf out"),),
        advice=(Message("keep it in fp32"),),
        keep_fp32="with x:\n    y()",
    )
    lines = [
        words(line) for line in detail_view.lines_of(one, 80, [Message("compiled modules are not seen")])
    ]
    text = "\n".join(lines)
    wanted = (
        "! error  Inf",
        "step 18,401",
        "first seen     m.act",
        "Inf, 3 values, the first at [0, 17]",
        "likely source  layers.12.mlp.up_proj",
        "|x| max 61,440, 93.8 % of the limit",
        "it passed 60,000",
        "likely: concluded from the values around it, not proven",
        "in order of execution",
        "|x| max 1 → 2 over 9 steps",
        "Why we think so",
        "· finite in, Inf out",
        "What to do",
        "· keep it in fp32",
        "To keep it in fp32",
        "  with x:",
        "      y()",
        "· compiled modules are not seen",
        "Raw",
        '"path": "m.act"',
    )
    places = [text.index(part) for part in wanted]
    assert places == sorted(places)
    assert all(width(line) <= 80 for line in lines)


def test_a_step_without_a_source_says_that_it_is_not_known() -> None:
    text = "\n".join(words(line) for line in detail_view.lines_of(incident(source=None), 80))
    assert "source         not known" in text


# Numbers, places and filters.


def test_bad_values_types_and_operators() -> None:
    ranges = ((NAN, 1.0), (-INF, INF), (-INF, 1.0), (0.0, INF), (0.0, 1.0))
    found = [bad_value(Output(0, "", low=low, high=high), "-") for low, high in ranges]
    assert found == ["NaN", "±Inf", "-Inf", "Inf", "-"]
    assert [type_word(one) for one in ("float16", "torch.bfloat16", "int8", "")] == [
        "fp16",
        "bf16",
        "int8",
        "",
    ]
    assert [op_word(one) for one in ("aten::addmm", "npu::npu_fusion", "")] == [
        "addmm",
        "npu::npu_fusion",
        "",
    ]


def test_a_place_is_cut_at_its_beginning_and_never_empty() -> None:
    assert place_of(Output(0, "a.b.c"), 4) == "…b.c"
    assert place_of(Output(0, "层.层.层"), 5) == "….层"
    assert place_of(Output(0, "a.b", "input"), 30) == "input of a.b"
    assert place_of(Output(0, "", module_type="Net"), 30) == "Net"
    assert place_of(Output(0, "", op="aten::log"), 30) == "log"
    assert place_of(Output(0, ""), 30) == "no module"
    assert fit_end("abc", 3) == "abc"
    assert plain("a\x1b[31m\nb" + "c" * 10_000) == "a␛[31m b" + "c" * 192 + "…" + "c" * 200


@pytest.mark.parametrize(
    ("typed", "fits"),
    [
        ("", True),
        ("layers.12", True),
        ("LAYERS.12.mlp", True),
        ("layers.1", False),
        ("up_proj", True),
        ("layers.12 up_proj", True),
        ("layers.12 layers.13", False),
        ("18000-18500", True),
        ("18,000-18,500", True),
        ("18500-18000", True),
        ("18399", True),
        ("18402", False),
        ("18402-", False),
        ("-18398", True),
        ("-18397", False),
        ("layers.12 17000-18000", False),
        ("12", True),
        ("13", False),
        ("float16", True),
        ("-", False),
        ("(", False),
        ("[red]", False),
        ("9" * 5000, False),
        ("²", False),
    ],
)
def test_a_filter(typed: str, fits: bool) -> None:
    assert parse(typed).fits(incident(first_step=18_398)) is fits
