"""What the hotspots pane says and writes: numbers, order, filter, verdict, stories, and its files."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from typing import Any

import pytest
from ascend_tui_plugins.hotspots import detail_view, export, step_view
from ascend_tui_plugins.hotspots.figures import (
    bar,
    fit_middle,
    micro,
    per_cent,
    place_of,
    ratio_words,
    short_name,
    signed_micro,
    span,
    spark,
    stack_of,
    tally,
    trend_of,
)
from ascend_tui_plugins.hotspots.filtering import parse
from ascend_tui_plugins.hotspots.ordering import HOLD_S, Held, added_us, in_order, keyed, next_of
from ascend_tui_plugins.hotspots.ranking import ranked
from ascend_tui_plugins.hotspots.snapshot import (
    Change,
    DeviceUse,
    Finding,
    HotspotsSnapshot,
    Jitter,
    Outlier,
    Phase,
    Place,
    Row,
    Sampling,
    Site,
    Sync,
    Units,
    Use,
)
from ascend_tui_plugins.hotspots.table_view import columns_of, header, line_of
from ascend_tui_plugins.hotspots.words import closing_lines, empty_lines, mode_words, strongest, summary_words
from markdown_it import MarkdownIt

from ascend_tui import text
from ascend_tui.plugin import Command, Lease, Message
from ascend_tui.text import width

INF, NAN = math.inf, math.nan
PROFILE = Command("profile", "profile now", "one step, measured and shown", Lease(3, 120.0), hotkey="p")
CAN = {"profile": PROFILE}


def words(line: Any) -> str:
    return line if isinstance(line, str) else "".join(part for part, _ in line)


def said(lines: Any) -> str:
    return "\n".join(words(line).rstrip() for line in lines)


def row(name: str = "aten::addmm", time_us: float = 100.0, calls: int = 4, **changes: Any) -> Row:
    fields: dict[str, Any] = {
        "kind": "compute",
        "share": 0.0,
        "cumulative_share": 0.0,
        "avg_us": time_us / (calls or 1),
    }
    return Row(name=name, self_time_us=time_us, calls=calls, **{**fields, **changes})


def table(*rows: Row, total: float = 1000.0, **changes: Any) -> HotspotsSnapshot:
    fields: dict[str, Any] = {"state": "live", "step": 18_400, "sampling": Sampling(True, 640, 3)}
    return HotspotsSnapshot(rows=ranked(rows, total)[0], **{**fields, **changes})


# Numbers.


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (NAN, "-"),
        (INF, "-"),
        (-1.0, "-"),
        (0.0, "0.00"),
        (0.014, "0.01"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (99.94, "99.9"),
        (99.96, "100"),
        (1502.4, "1,502"),
        (999_999.4, "999,999"),
        (1_234_567.0, "1.2e6"),
        (1e300, "1.0e300"),
    ],
)
def test_microseconds_are_of_one_width_at_most(value: Any, shown: str) -> None:
    assert micro(value) == shown
    assert len(micro(value)) <= 7


def test_calls_changes_and_times() -> None:
    assert [tally(one) for one in (0, 0.5, 2640, 99_999, 123_456, 1e12, NAN, None)] == [
        "0",
        "0.5",
        "2,640",
        "99,999",
        "1.2e5",
        "1.0e12",
        "-",
        "-",
    ]
    assert [signed_micro(one) for one in (11_408.0, -13_200.0, 0.0, NAN)] == [
        "+11,408",
        "-13,200",
        "+0.00",
        "-",
    ]
    assert [ratio_words(one) for one in (1.31, 0.84, 1.0, 12.4, INF, NAN, -1.0)] == [
        "+31 %",
        "-16 %",
        "+0 %",
        "×12",
        "-",
        "-",
        "-",
    ]
    assert [span(one) for one in (3.1, 999.7, 48_208.0, 999_600.0, 2.5e6, None, NAN)] == [
        "3.10 us",
        "1.00 ms",
        "48.2 ms",
        "1.00 s",
        "2.50 s",
        "-",
        "-",
    ]
    assert per_cent(None) == per_cent(NAN) == "-"


def test_a_bar_shows_what_is_there_at_all_and_never_more_than_its_width() -> None:
    assert [bar(one, 10) for one in (0.0, 0.001, 0.5, 1.0, 7.0, NAN, None)] == [
        "",
        "▏",
        "█████",
        "█" * 10,
        "█" * 10,
        "",
        "",
    ]


def test_a_curve_stands_on_nought_so_that_a_small_change_looks_small() -> None:
    assert spark((100.0, 101.0, 102.0), 10) == "███"
    assert spark((10.0, 50.0, 100.0, NAN), 10) == "▁▄█ "
    assert spark((1.0,) * 90, 10) == "█" * 10
    assert spark((0.0, 0.0), 10) == spark((), 10) == ""


def test_a_glyph_tells_of_a_change_from_a_tenth_on() -> None:
    ratios = (1.09, 1.1, 0.91, 0.9, NAN, INF)
    glyphs = [trend_of(row(change=Change(1.0, 1.0, 1.0, ratio)))[0] for ratio in ratios]
    assert glyphs == [" ", "▲", " ", "▼", " ", "▲"]
    assert trend_of(row())[0] == " "


def test_names_lose_their_middle_and_keep_both_ends() -> None:
    assert short_name("aten::addmm") == "addmm"
    assert short_name("autograd::engine::evaluate_function: AddmmBackward0") == "autograd AddmmBackward0"
    assert (short_name("aten::"), short_name("")) == ("aten::", "-")
    assert fit_middle("FlashAttentionScoreGrad", 16) == "FlashAtte…reGrad"
    for cells in range(30):
        assert width(fit_middle("数据搬运MatMulV3数据搬运", cells)) <= cells


def test_the_place_of_a_call_is_file_and_line_or_the_innermost_of_its_stack() -> None:
    assert place_of(Site("/a/b/train.py", 212, "main")) == "train.py:212"
    assert place_of(Site("train.py")) == "train.py:?"
    assert place_of(Site(stack="\n  model.py:1 f;\ntrain.py:2 g")) == "model.py:1 f"
    assert stack_of(Site(stack="a;;b\r\nc")) == ["a", "b", "c"]
    assert place_of(None) == place_of(Site()) == ""


# The order and the filter.


def test_each_order_has_what_is_not_known_last() -> None:
    rows = (
        row("a", 100.0, 4, max_us=50.0),
        row("b", 90.0, 0, avg_us=0.0, change=Change(1.0, 10.0, 1.0, 9.0)),
        row("C", 80.0, 400, max_us=70.0, change=Change(1.0, 200.0, 0.4, 0.4)),
        row("d", NAN, 1, avg_us=NAN, max_us=NAN),
    )

    def by(order: str) -> str:
        return "".join(one.name for _, one in in_order(keyed(rows).items(), order))

    assert by("share") == "abCd"
    assert by("avg") == "aCbd"
    assert by("calls") == "Cadb"
    assert by("max") == "Cabd"
    assert by("change") == "bCad"
    assert by("name") == "abCd"
    assert added_us(rows[1]) == 80.0
    assert added_us(rows[0]) is None


def test_the_next_order_is_one_in_which_something_is_known() -> None:
    assert next_of("share", (row(),)) == "avg"
    assert next_of("calls", (row(),)) == "name"
    assert next_of("calls", (row(max_us=3.0),)) == "max"
    assert next_of("name", ()) == "name"


def test_twins_have_keys_of_their_own_and_the_order_is_held_for_a_while() -> None:
    keys = list(keyed((row("a"), row("a"), row("a", core="AI_CORE"))))
    assert len(set(keys)) == 3
    held = Held(("share",), 100.0, tuple(keys))
    assert held.still_holds(("share",), 100.0 + HOLD_S - 0.1, keys[::-1])
    assert not held.still_holds(("share",), 100.0 + HOLD_S, keys)
    assert not held.still_holds(("share",), 99.0, keys)  # a clock that was set back
    assert not held.still_holds(("calls",), 101.0, keys)
    assert not held.still_holds(("share",), 101.0, keys[:2])


@pytest.mark.parametrize(
    ("typed", "fits"),
    [
        ("", True),
        ("CAST", True),
        ("cast layers.12", True),
        ("layers.1", False),
        ("ayers.12.mlp", True),
        ("2.mlp", False),
        ("kind:movement", True),
        ("kind:mov kind:comp", True),
        ("kind:compute", False),
        ("kind:", True),
        ("kind：move cast", True),
        ("vector_core", True),
        ("cast matmul", False),
        ("[(*", False),
    ],
)
def test_a_filter_is_of_names_kinds_and_module_paths(typed: str, fits: bool) -> None:
    one = row("Cast", kind="movement", core="AI_VECTOR_CORE", places=(Place("model.layers.12.mlp"),))
    assert parse(typed).fits(one) is fits


def test_a_filter_is_bounded() -> None:
    assert len(parse("a " * 500).words) == 16


# The table.


@pytest.mark.parametrize("cells", [*range(8, 140, 3), 300])
@pytest.mark.parametrize("order", ["share", "avg", "calls", "max", "change", "name"])
def test_titles_and_rows_have_the_same_cells_and_the_order_is_marked_once(cells: int, order: str) -> None:
    columns = columns_of(cells, order)
    title = words(header(columns, cells, order, "op"))
    long = row("数据搬运" * 40, 1e9, 10**9, max_us=1e9, share=1.0, change=Change(1.0, 1.0, 1.0, 5e9))
    lines = [words(line_of(one, columns, cells, 0.2, 1.0)) for one in (long, row(share=0.12))]
    assert {width(line) for line in lines} == {width(title)}
    if cells >= 30:
        assert title.count("▾") == 1
        assert width(title) <= cells


def test_without_a_baseline_there_is_no_column_of_changes() -> None:
    assert "ratio" in {one.key for one in columns_of(80, "share")}
    assert "ratio" not in {one.key for one in columns_of(80, "share", changed=False)}


def test_the_whole_is_said_in_six_cells() -> None:
    columns = columns_of(56, "share")
    line = words(line_of(row(share=1.0), columns, 56, 0.0, 0.9999))
    assert line.count("100 %") == 2


# The verdict.


def closing(snapshot: HotspotsSnapshot, rows: int = 6, cells: int = 56, **more: Any) -> list[str]:
    return said(closing_lines(snapshot, cells, rows, CAN, **more)).splitlines()


def test_host_bound_is_said_only_where_it_is_known() -> None:
    device = DeviceUse(700.0, 300.0, 0.3)
    assert closing(table(row(), device=device))[0] == "device idle 30.0 %"
    device = dataclasses.replace(device, host_bound_share=0.18)
    assert closing(table(row(), device=device))[0] == "host-bound 18.0 %   device idle 30.0 %"
    assert "host-bound" not in "".join(closing(table(row())))


def test_a_training_without_a_device_tells_of_data_and_of_what_is_in_no_operator() -> None:
    snapshot = table(row(), phases=(Phase("data", 120.0, 0.12),), outside_us=228.0, step_time_us=1000.0)
    assert closing(snapshot)[0] == "data wait 12.0 %   in no operator 22.8 %"
    assert "in no operator" not in "".join(closing(dataclasses.replace(snapshot, step_time_us=0.0)))


def test_synchronising_calls_are_told_with_their_line_or_that_it_is_not_known() -> None:
    site = Site("/home/me/train.py", 212)
    many = (Sync("aten::item", 1.0, 3100.0, site), Sync("aten::nonzero", 2.0, 5.0))
    assert closing(table(row(), syncs=many))[0] == "sync: train.py:212 item 1/step  3.10 ms  +1"
    unknown = (Sync("aclrtSynchronizeStream", 0.5, 10.0),)
    assert closing(table(row(), syncs=unknown))[0] == "sync: line not known aclrtSynchronizeStream 0.5/step"
    # Where rows are few, one line says both.
    device = DeviceUse(700.0, 300.0, 0.3, host_bound_share=0.18)
    assert closing(table(row(), syncs=many, device=device), rows=3)[0] == (
        "host-bound 18.0 %   sync: train.py:212 item 1/step"
    )


def test_the_gravest_finding_stays_where_there_is_one_row_less_and_less() -> None:
    findings = (
        Finding("a", Message("something to know")),
        Finding(
            "b",
            Message.of(
                "{share} of the time is {what} and more words than one line holds",
                share="41.0 %",
                what="movement",
            ),
            "warning",
        ),
        Finding("c", Message("another"), "warning"),
    )
    assert strongest(findings) is findings[1]
    assert strongest(()) is None
    snapshot = table(row(), findings=findings, jitter=Jitter(9, 0.8, 1.2), missing=(Message("x"),))
    assert closing(snapshot) == [
        "steps p50 800 ms  p99 1.20 s (of 9)",
        "▲ 41.0 % of the time is movement and more words than",
        "  one line holds",
        "x",
        "p profile now (one step, measured and shown)",
    ]
    assert closing(snapshot, rows=2) == [
        "▲ 41.0 % of the time is movement and more words than…",
        "p profile now (one step, measured and shown)",
    ]
    assert closing(snapshot, rows=1) == ["p profile now (one step, measured and shown)"]


def test_a_cost_that_has_no_room_is_cut_where_the_line_ends() -> None:
    costly = dataclasses.replace(PROFILE, cost="a_word_that_is_longer_than_what_is_left_of_the_line_here")
    lines = said(closing_lines(table(row()), 40, 1, {"profile": costly})).splitlines()
    assert lines == ["p profile now (a_word_that_is_longer_th…"]
    assert len(closing_lines(table(row()), 40, 9, {"profile": costly})) == 2


def test_nothing_is_said_twice_beside_the_story() -> None:
    snapshot = table(row(), findings=(Finding("a", Message("something")),))
    assert closing(snapshot, zoomed=True, hints=(("c", "sort"), ("v", "kernels"))) == [
        "p profile now (one step, measured and shown)",
        "c sort  v kernels",
    ]


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (60, "step 18,400 · 1/640 · host times"),
        (24, "step 18,400 · host times"),
        (12, "host times"),
        (4, ""),
    ],
)
def test_the_mode_is_as_much_as_fits(cells: int, shown: str) -> None:
    assert mode_words(table(row()), "host", 1, cells) == shown


def test_the_mode_before_the_first_step_and_without_samples() -> None:
    assert (
        mode_words(HotspotsSnapshot("live", sampling=Sampling(True, 640)), "host", 1, 60) == "sampling 1/640"
    )
    assert mode_words(HotspotsSnapshot("live"), "host", 1, 60) == "sampling off"
    assert mode_words(HotspotsSnapshot(), "host", 1, 60) == ""
    assert mode_words(table(row()), "device", 4, 60) == "step 18,400 · 1/640, over budget · device times"


def test_one_line_says_whose_clock_it_was_and_the_verdict() -> None:
    snapshot = table(row("aten::a", 500.0), row("aten::b", 300.0), row("aten::c", 100.0))
    assert summary_words(snapshot, 80) == "a 50.0 %, b 30.0 %, c 10.0 % (host times)"
    device = DeviceUse(1.0, 1.0, 0.5, host_bound_share=0.18)
    npu = dataclasses.replace(snapshot, clock="device", device=device)
    assert summary_words(npu, 80) == "a 50.0 %, b 30.0 %, c 10.0 %   host-bound 18.0 %"
    assert summary_words(npu, 30) == "a 50.0 %   host-bound 18.0 %"
    assert summary_words(HotspotsSnapshot(), 80) == "no step has been looked at yet"


def test_why_no_step_can_be_looked_at_is_said_and_no_key_that_would_do_nothing() -> None:
    why = Sampling(True, why=Message("the training runs a profiler of its own"))
    lines = said(empty_lines(HotspotsSnapshot("live", sampling=why), 80, CAN, 7))
    assert lines.splitlines()[1] == "None can be: the training runs a profiler of its own"
    assert "Press p" not in lines
    assert "`ascend-tui do 7 hotspots.sample on`" in said(empty_lines(HotspotsSnapshot("live"), 80, {}, 7))
    assert "Sampling is off" not in said(empty_lines(HotspotsSnapshot(), 80, {}, 7))


# The stories.


def test_the_story_of_an_operator_has_what_is_known_and_nothing_else() -> None:
    bare = said(detail_view.lines_of(row(), table(row()), 70))
    for title in ("Shapes", "Where in the model", "Called here", "Units", "Why we think so", "baseline"):
        assert title not in bare
    assert "us of a call  25.0 on average" in bare
    full = row(
        uses=(Use("[2, 3]", "float32", 3, 60.0),),
        shapes_seen=9,
        places=tuple(Place(f"layers.{one}", "backward", 1, 5.0) for one in range(9)),
        sites=(Site("a.py", 1, "f", 2.0, 0.0),),
        units=Units(cube_ratio=0.2, mte2_ratio=0.9, memory_bound=4.5, block_num=20, bound="mte2"),
        min_us=1.0,
        trend=(50.0, 100.0),
        change=Change(20.0, 80.0, 1.25, 1.25, 1000),
    )
    about = Finding(
        "x",
        Message("it is slow"),
        evidence=(Message("it took {n}"),),
        advice=(Message("less"),),
        ops=(full.name,),
    )
    text_of = said(
        detail_view.lines_of(full, table(full, findings=(about, Finding("y", Message("other")))), 70)
    )
    for wanted in (
        "+25 % against the baseline since step 1,000",
        "in all 80.0 us → 100 us; a call 20.0 → 25.0 us (+25 %)",
        "25.0 on average, 1.00 to -",
        "▄█",
        "8 more sets of shapes",
        "layers.5  backward",
        "3 more",
        "a.py:1 f",
        "cube       20.0 %  ████",
        "mte2 over the larger of cube and vector: 4.50 · blocks 20",
        "bound by reading memory (mte2)",
        "· it took {n}",
        "· less",
    ):
        assert wanted in text_of, wanted
    assert "other" not in text_of.partition("Raw")[0]
    assert "layers.6" not in text_of.partition("Raw")[0]


def test_units_that_do_not_tell_say_so() -> None:
    lines = said(detail_view.lines_of(row(units=Units(vector_ratio=0.3)), table(row()), 70))
    assert "the numbers do not tell what bounds it" in lines


def test_the_story_of_the_step_labels_host_times_beside_a_device() -> None:
    host = "times are those of the host inside each call, not those of the kernels"
    with_device = table(row(), device=DeviceUse(1.0, 1.0, 0.5), clock="host")
    assert host in said(step_view.lines_of(with_device, 100))
    assert host in said(step_view.lines_of(table(row(), runs_on="npu"), 100))
    assert host not in said(step_view.lines_of(table(row(), runs_on="cpu"), 100))
    assert host not in said(step_view.lines_of(table(row()), 100))
    assert host not in said(step_view.lines_of(dataclasses.replace(with_device, clock="device"), 100))


def test_the_story_of_the_step() -> None:
    snapshot = table(
        row(),
        step_time_us=1000.0,
        source="kineto",
        phases=(Phase("forward", 500.0, 0.5), Phase("data", 1.0, 0.001)),
        device=DeviceUse(700.0, 300.0, 0.3, 70.0, 0.18, 93, 41.0, 17),
        syncs=(Sync("aten::item", 1.0, 3100.0, Site("/x/train.py", 212, "main")),),
        jitter=Jitter(
            100, 0.8, 1.2, (Outlier(5, 1.0, 2.4, 3.0, Message("a checkpoint")), Outlier(9, 1.0, 2.0, 2.5))
        ),
        sampling=Sampling(True, 640, 3, 19_040, 9100.0, 0.0011),
        findings=(Finding("a", Message("know"), evidence=(Message("seen"),), advice=(Message("do"),)),),
        missing=(Message("no kernel times"),),
        notes=(Message("a note"),),
    )
    lines = said(step_view.lines_of(snapshot, 120))
    for wanted in (
        "1.00 ms long · host times · taken by kineto",
        "forward     50.0 %   500 us  ████████████",
        "data wait    0.1 %  1.00 us  ▏",
        "busy 700 us (70.0 %) · idle 300 us (30.0 %) · communication 70.0 us (7.0 %) · 93 kernels",
        "host-bound 18.0 %: idle while",
        "longest gap 41.0 us · 17 gaps under 0.1 ms",
        "train.py:212 main",
        "· step 5: 2.40 s, ×3.0 of the median: a checkpoint",
        "· step 9: 2.00 s, ×2.5 of the median: cause not known",
        "· know\n  seen\n  → do",
        "What cannot be seen\n· no kernel times",
        "steps looked at: 3; their cost over all steps: 0.11 %; the last one held the training up by 9.10 ms",
        "· a note",
    ):
        assert wanted in lines, wanted
    nothing = said(step_view.lines_of(HotspotsSnapshot(), 60))
    assert nothing.strip() == "The whole step"
    looked = dataclasses.replace(table(row(), runs_on="cpu"), syncs_known=True)
    assert "none in this step" not in said(step_view.lines_of(looked, 60))
    looked = dataclasses.replace(looked, runs_on="npu")
    assert "none in this step" in said(step_view.lines_of(looked, 60))


@pytest.mark.parametrize("cells", [1, 8, 20, 57, 120])
def test_stories_fit_what_a_story_can_fit(cells: int) -> None:
    long = row("x" * 10_000, places=(Place("层" * 5000),), uses=(Use("[1]" * 9000),), core="c" * 9000)
    snapshot = table(long, syncs=(Sync("s" * 9000, 1.0, 1.0, Site("f" * 9000, 1)),), source="k" * 9000)
    for lines in (detail_view.lines_of(long, snapshot, cells), step_view.lines_of(snapshot, cells)):
        assert len(lines) < 900
        if cells >= 57:
            assert max(width(words(line)) for line in lines) <= cells


# Files.


HOSTILE = (
    "a|b",
    "=cmd|' /C calc'!A0",
    "+1+2",
    "-1",
    "@SUM(A1)",
    ' "=1"',
    'say "x", y',
    "two\nlines",
    "\x1b[31mred",
    "back`tick",
    "a\\|b",
    "<img src=x>",
    "[link](http://x)",
    "x" * 10_000,
    "",
)


def test_csv_is_read_back_and_no_cell_is_a_formula() -> None:
    rows = tuple(
        row(name, 100.0 - place, core=name, places=(Place(name),)) for place, name in enumerate(HOSTILE)
    )
    read = list(csv.DictReader(io.StringIO(export.csv_of(rows))))
    assert len(read) == len(rows)
    assert list(read[0]) == list(export.COLUMNS)
    assert [one["name"] for one in read[:9]] == [
        "a|b",
        "'=cmd|' /C calc'!A0",
        "'+1+2",
        "'-1",
        "'@SUM(A1)",
        '\' "=1"',
        'say "x", y',
        "two lines",
        "␛[31mred",
    ]
    assert len(read[13]["name"]) <= 1001
    for one in read:
        for column in ("name", "core", "modules", "sites"):
            assert not one[column].startswith(("=", "+", "-", "@", "\t"))


def test_csv_leaves_open_what_is_not_known() -> None:
    unknown = row("a", 12.5, 0, max_us=None, total_time_us=NAN)
    known = row("b", 1 / 3, 7, max_us=0.0, change=Change(1.5, 2.5, 1.1, 1.2, None), sites=(Site("t.py", 4),))
    one, two = csv.DictReader(io.StringIO(export.csv_of((unknown, known))))
    assert (one["avg_us"], one["max_us"], one["total_time_us"], one["time_ratio"]) == ("", "", "", "")
    assert (one["self_time_us"], one["calls"]) == ("12.5", "0")
    assert (two["self_time_us"], two["max_us"], two["time_ratio"]) == ("0.333333333", "0", "1.2")
    assert (two["since_step"], two["sites"]) == ("", "t.py:4")


def test_markdown_is_one_table_whatever_the_names_are() -> None:
    snapshot = table(*(row(name, 100.0 - place) for place, name in enumerate(HOSTILE)), source="<b>|`")
    parser = MarkdownIt("commonmark").enable("table")
    tokens = parser.parse(export.markdown_of(snapshot))
    assert sum(token.type == "table_open" for token in tokens) == 1
    cells: list[str] = []
    for token in tokens:
        if token.type == "tr_open":
            cells.append("")
            first = True
        elif token.type == "inline" and cells and first:
            cells[-1] = "".join(child.content for child in token.children or ())
            first = False
        assert "html" not in token.type
        assert all("html" not in child.type and "link" not in child.type for child in token.children or ())
    names = cells[1:]
    assert names[:5] == ["a|b", "=cmd|' /C calc'!A0", "+1+2", "-1", "@SUM(A1)"]
    assert names[7:13] == ["two lines", "␛[31mred", "back`tick", "a\\|b", "<img src=x>", "[link](http://x)"]
    assert names[14] == "-"


def test_markdown_says_what_it_is_of() -> None:
    changed = row("b", 300.0, change=Change(1.0, 200.0, 1.5, 1.5))
    snapshot = table(row("a", 500.0), changed, source="kineto", step_time_us=2000.0, rows_dropped=3)
    assert export.markdown_of(snapshot).splitlines() == [
        "step 18,400 · taken by `kineto` · host times · 2.00 ms long",
        "",
        "| op | kind | time | share | cum | avg us | max us | calls | change |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| `a` | compute | 500 us | 50.0 % | 50.0 % | 125 | - | 4 | - |",
        "| `b` | compute | 300 us | 30.0 % | 80.0 % | 75.0 | - | 4 | +50 % |",
        "",
        "3 too small to be listed",
    ]


def test_files_are_those_of_the_tables_that_there_are() -> None:
    assert export.files_of(HotspotsSnapshot()) == {}
    assert list(export.files_of(table(row()))) == ["hotspots.csv", "hotspots.md"]
    both = table(row(), host_rows=(row("h"),))
    assert list(export.files_of(both)) == ["hotspots.csv", "hotspots.md", "hotspots-host.csv"]


def test_markdown_speaks_the_language_of_the_screen_and_csv_does_not() -> None:
    text.set_language("zh_CN")
    try:
        assert "算子" in export.markdown_of(table(row()))
        assert export.csv_of((row(),)).startswith("name,kind,")
    finally:
        text.set_language("en")
