"""The curve, line by line, and that its past does not move."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_tui import text
from ascend_tui.series import Series
from ascend_tui.widgets.braille import Canvas, can_draw
from ascend_tui.widgets.curve import TILE, CurveView, Picture, Plotted
from ascend_tui.widgets.quiet import Cell, cells, changed
from ascend_tui.widgets.scale import YScale, byte_top, step_label, ticks, time_label

GIB = float(2**30)
MIB = float(2**20)


def drawn(view: CurveView, columns: int = 40, height: int = 7) -> list[str]:
    """Return the picture's lines."""
    return ["".join(character for character, _ in row).rstrip() for row in view.layout_rows(columns, height)]


def plotted(
    values: list[float], name: str = "allocated", label: str = "alloc", role: str = "first"
) -> Plotted:
    """Return a curve with one value per step."""
    series = Series(name, 1.0)
    for step, value in enumerate(values):
        series.add(step, value)
    return Plotted(series.curve(), label, role)


def view_of(*curves: Plotted, unicode: bool = True, **options: object) -> CurveView:
    """Return a view with its picture, not mounted."""
    view = CurveView(unicode=unicode)
    view.picture = Picture(curves, **options)  # type: ignore[arg-type]
    return view


def test_a_ramp_line_by_line() -> None:
    ramp = plotted([step * 30 * MIB for step in range(32)])
    assert drawn(view_of(ramp)) == [
        "   1 GiB ┤              ⣀⠤ alloc",
        "         │          ⢀⡠⠔⠊",
        " 512 MiB ┤       ⣀⠤⠊⠁",
        "         │   ⢀⡠⠒⠉",
        "       0 ┤⡠⠔⠊⠁",
        "         ┼┴─────────┴─────────┴──",
        "    step  0        20        40",
    ]


def test_the_same_in_ascii() -> None:
    lines = drawn(view_of(plotted([step * 30 * MIB for step in range(32)]), unicode=False))
    assert lines == [
        "   1 GiB +              .. alloc",
        "         |          ..:'",
        " 512 MiB +       ..''",
        "         |   ..''",
        "       0 +.:''",
        "         ++---------+---------+--",
        "    step  0        20        40",
    ]


def test_a_peak_of_one_step_in_a_week_is_seen() -> None:
    values = [1.0 * GIB] * 100_000
    values[70_003] = 7 * GIB
    lines = drawn(view_of(plotted(values)))
    assert "   8 GiB ┤" in lines[0]
    assert any("⢸" in line or "⡇" in line for line in lines[1:3])


def test_a_sampled_curve_has_no_holes() -> None:
    series = Series("rss", 1.0)
    for step in range(0, 40, 4):
        series.add(step, GIB)
    assert "⠤" * 18 in drawn(view_of(Plotted(series.curve(), "rss", "first")))[1]


def test_gaps_are_gaps() -> None:
    series = Series("rss", 1.0)
    for step in [*range(10), *range(30, 40)]:
        series.add(step, GIB)
    line = next(
        line
        for line in drawn(view_of(Plotted(series.curve(), "rss", "first")))
        if "⠉" in line or "⠒" in line or "⣀" in line or "⠤" in line
    )
    assert "     " in line[10:30]


@pytest.mark.parametrize("used", [20.0, 50.0])
def test_capacity_is_drawn_where_it_leaves_the_curve_readable(used: float) -> None:
    lines = drawn(view_of(plotted([used * GIB] * 30), capacity=62 * GIB), columns=60)
    assert any("capacity" in line for line in lines) == (used == 50.0)
    assert ("64 GiB" in lines[0]) == (used == 50.0)


def test_marks_stand_on_the_axis() -> None:
    view = view_of(plotted([GIB] * 40), marks=((0, "m"), (20, "!"), (999, "c")))
    assert drawn(view)[-2][10] == "m"
    assert drawn(view)[-2][20] == "!"


def test_two_names_never_lie_on_each_other() -> None:
    curves = [plotted([GIB] * 30, "a", "alloc"), plotted([GIB] * 30, "r", "res", "second")]
    lines = drawn(view_of(*curves))
    assert sum("alloc" in line for line in lines) == 1
    assert sum(line.endswith("res") for line in lines) == 1


def test_a_tile_never_cuts_a_wide_character() -> None:
    text.set_language("zh_CN")
    for steps in range(2, 120):
        view = view_of(plotted([GIB] * steps, label="已分配"), capacity=1.5 * GIB)
        for columns in (48, 61, 80):
            for row in view.layout_rows(columns, 7):
                assert len(row) == columns
                assert all(row[edge][0] for edge in range(TILE, columns, TILE))


def test_the_cursor_shows_the_highest_value_of_its_cell() -> None:
    view = view_of(plotted([float(step) for step in range(400)]))
    view.layout_rows(40, 7)
    view.cursor = 100.0
    found = view.values_at_cursor()["allocated"]
    assert 100 <= found <= 100 + 2 * view._per_dot
    assert "┊" in drawn(view)[0]


def test_moving_the_cursor_stays_in_the_run_and_ends_live() -> None:
    view = view_of()
    view.move_cursor(-1)
    assert view.cursor is None
    view = view_of(plotted([1.0] * 100))
    view.layout_rows(40, 7)
    for _ in range(500):
        view.move_cursor(-1)
    assert view.cursor == 0.0
    for _ in range(500):
        view.move_cursor(1)
    assert view.cursor is None


def test_an_empty_picture_is_blank_rows() -> None:
    assert drawn(view_of()) == [""] * 7
    assert drawn(view_of(plotted([])), 40, 7) == [""] * 7
    assert len(view_of(plotted([1.0])).layout_rows(3, 1)) == 1


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(1e6, 6e10), min_size=30, max_size=120), st.integers(40, 130))
def test_the_past_stays_where_it_was_drawn(values: list[float], columns: int) -> None:
    """Between two doublings, and on one scale, a further sample only adds at the right end."""
    view = CurveView(unicode=True)
    series = Series("rss", 1.0)
    before: tuple[float, float, list[list[Cell]], int] | None = None
    for step, value in enumerate([*values, 7e10, *values]):
        series.add(step, value)
        if step < 20:
            continue
        view.picture = Picture((Plotted(series.curve(), "", "first"),))
        rows = view.layout_rows(columns, 9)
        x = 10 + math.floor(series.curve().end / view._per_dot / 2) - 2
        now = (view._per_dot, view.scale.high, rows, x)
        if before and before[:2] == now[:2]:
            assert [row[: before[3]] for row in before[2][:7]] == [row[: before[3]] for row in rows[:7]]
        before = now


TEXTS = st.text(st.sampled_from("ab 显存⠿-"), max_size=30)


@given(TEXTS, TEXTS, st.integers(1, 40))
def test_painting_the_changed_span_gives_the_new_row(old: str, new: str, columns: int) -> None:
    before, after = cells(old, columns), cells(new, columns)
    assert len(before) == len(after) == columns
    span = changed(before, after)
    if span is None:
        assert before == after
        return
    start, end = span
    assert before[:start] + after[start:end] + before[end:] == after
    # Neither edge lies inside a wide character, on screen or in the new row.
    for row in (before, after):
        assert start == 0 or row[start][0]
        assert end == columns or row[end][0]


@given(st.lists(st.tuples(st.floats(0, 1e12), st.floats(0, 1e12)), min_size=1, max_size=30))
def test_a_scale_always_holds_its_data(ranges: list[tuple[float, float]]) -> None:
    whole, window = YScale(), YScale()
    for one, other in ranges:
        low, high = min(one, other), max(one, other)
        whole.hold(0.0, high)
        window.hold(low, high)
        assert whole.low == 0.0 <= high <= whole.high
        assert window.low <= low <= high <= window.high


def test_a_scale_does_not_jump_with_noise() -> None:
    scale, tops = YScale(), set()
    for step in range(200):
        scale.hold(0.0, (24 + math.sin(step)) * GIB)
        tops.add(scale.high)
    assert len(tops) <= 2
    assert scale.high == 32 * GIB


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (5, 6), (700, 768), (1000, 1024), (20 * GIB, 24 * GIB), (62 * GIB, 64 * GIB)]
)
def test_round_amounts(value: float, top: float) -> None:
    assert byte_top(value) == top


def test_axis_labels() -> None:
    assert [step_label(one) for one in (0, 950, 1500, 20_000, 2_500_000)] == [
        "0",
        "950",
        "1.5k",
        "20k",
        "2.5M",
    ]
    assert [time_label(one) for one in (0, 30, 90, 7200, 129_600)] == ["0", "30 s", "1.5 min", "2 h", "1.5 d"]
    assert [at for at, _ in ticks(0, 100, 60, step_label, False)] == [0, 20, 40, 60, 80, 100]
    assert [at for at, _ in ticks(0, 7200, 60, time_label, True)] == [0, 1800, 3600, 5400, 7200]
    assert ticks(5, 5, 60, step_label, False) == []
    for end in (1, 7, 999, 86_400 * 30, 86_400 * 4000):
        for seconds in (False, True):
            assert 1 <= len(ticks(0, end, 60, step_label, seconds)) <= 9


def test_encodings() -> None:
    assert can_draw("utf-8")
    assert not can_draw("ascii")
    assert not can_draw("no-such-encoding")


def test_a_dot_outside_the_canvas_is_not_drawn() -> None:
    canvas = Canvas(2, 1)
    assert canvas.column(9, 0, 3) == []
    assert canvas.column(0, -5, 99) == [(0, 0)]
    assert canvas.character(0, 0, True) == "⡇"
    assert canvas.character(0, 0, False) == ":"
    assert canvas.character(1, 0, True) == " "
