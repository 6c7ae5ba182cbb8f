"""From a mark in a frame to a sign on the axis: bounded, never twice, and what matters most on top."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from fake import MEMORY, START, TARGET, Story, alert

from ascend_tui.frame import Frame, json_lines
from ascend_tui.marks import mark_of
from ascend_tui.moments import Moment, Moments, fold
from ascend_tui.plugin import Loaded, Mark, Message, Record
from ascend_tui.target import TargetId
from ascend_tui.widgets.axes import GUTTER, UNICODE, XAxis

OTHER = TargetId(7, 7)


def mark(sign: str, step: int, target: TargetId = TARGET, plugin: str = "memory", wall: float = 0.0) -> Mark:
    """Return a mark at a step that ends each second."""
    return Mark(target, plugin, wall or START + step, sign, Message("checkpoint"), step)


def with_marks(frame: Frame, *marks: Mark) -> Frame:
    """Return the frame with these marks."""
    return dataclasses.replace(frame, targets=(dataclasses.replace(frame.targets[0], marks=marks),))


def record(kind: str, **data: Any) -> Record:
    """Return a record of the core."""
    return Record(1, "core", kind, 41, START, 5.0, data)


def axis(marks: list[tuple[float, str]], across: int = 60, per_cell: float = 1.0) -> str:
    """Return the line with the marks, ticks made plain."""
    line = XAxis(0.0, per_cell, across, False).rows(across + GUTTER, marks, UNICODE)[0][GUTTER:]
    return "".join(character for character, _ in line).replace(UNICODE["mark"], "─").rstrip()


# Records of the core.


def test_a_command_that_slows_the_training_is_marked_at_both_ends() -> None:
    began = mark_of(TARGET, record("command", plugin="memory", name="reuse", phase="started"), [MEMORY])
    assert began is not None
    assert (began.sign, began.step, began.plugin, began.wall) == ("r", 41, "memory", START)
    assert began.label.render() == "memory.reuse starts"
    ended = mark_of(TARGET, record("command", plugin="memory", name="reuse", phase="ended"), [MEMORY])
    assert ended is not None
    assert ended.label.render() == "memory.reuse ends"


@pytest.mark.parametrize(
    "data",
    [
        {"plugin": "memory", "name": "watch", "phase": "started"},
        {"plugin": "unknown", "name": "reuse", "phase": "started"},
        {"plugin": ["memory"], "name": None},
        {},
    ],
)
def test_other_commands_have_no_mark(data: dict[str, Any]) -> None:
    assert mark_of(TARGET, record("command", **data), [MEMORY, Loaded("broken", failed="no")]) is None
    assert mark_of(TARGET, record("something", **data), [MEMORY]) is None


def test_a_mark_of_a_user_is_text_whatever_it_says() -> None:
    found = mark_of(TARGET, record("mark", sign="", label="{0} [bold]"), [])
    assert found is not None
    assert (found.sign, found.label.render()) == ("m", "{0} [bold]")
    assert mark_of(TARGET, record("mark", sign=7, label=None), []) is not None


# What is remembered.


def test_marks_of_frames_stand_on_the_axis_of_their_target() -> None:
    moments = Moments()
    frame = with_marks(Story().forward(10), mark("c", 10), mark("e", 20))
    moments.take(frame)
    moments.take(Story().frame(alerts=(alert(15),)))
    assert [(one.sign, one.step) for one in moments.of(TARGET)] == [("!", 15), ("c", 10), ("e", 20)]
    assert [one.label for one in moments.of(TARGET)][1] == Message("checkpoint")
    assert moments.of(OTHER) == ()


def test_a_mark_made_here_stands_at_once_and_not_twice() -> None:
    moments = Moments()
    moments.mark(TARGET, Moment(START + 30, 30, "m"))
    assert [one.step for one in moments.of(TARGET)] == [30]
    moments.take(with_marks(Story().frame(), mark("m", 31, plugin="core", wall=START + 30.7)))
    assert [one.step for one in moments.of(TARGET)] == [31]
    # This one the target never tells of: it is out of reach.
    moments.mark(TARGET, Moment(START + 90, 90, "m"))
    assert [one.step for one in moments.of(TARGET)] == [31, 90]
    assert moments.of(OTHER) == ()


def test_three_weeks_of_marks_are_bounded_and_what_is_rare_stays() -> None:
    moments, story = Moments(), Story()
    for day in range(21):
        new = [mark("ec"[n % 2], day * 10_000 + n) for n in range(2000)]
        if day % 10 == 0:
            new.append(mark("r", day * 10_000 + 5000))
        for at in range(0, len(new), 100):
            moments.take(with_marks(story.frame(), *new[at : at + 100]))
    found = moments.of(TARGET)
    assert 500 < len(found) <= 1000
    assert [one.step for one in found if one.sign == "r"] == [5000, 105_000, 205_000]
    steps = [one.step or 0 for one in found]
    assert steps == sorted(steps)
    assert steps[0] < 10_000
    assert steps[-1] == 205_000


def test_the_past_that_comes_late_is_put_into_its_place() -> None:
    late = tuple(Moment(float(n), n, "e") for n in [*range(500, 1000), *range(500)])
    folded = fold((*late, Moment(1000.0, 1000, "e")), 1000)
    assert [one.step for one in folded] == sorted(one.step or 0 for one in folded)
    assert fold(late, 1000) == late
    unique = tuple(Moment(float(n), n, chr(0x4E00 + n)) for n in range(3000))
    assert len(fold(unique, 1000)) == 1000


def test_the_json_line_has_the_marks() -> None:
    line = json_lines(with_marks(Story().forward(), mark("c", 4)))[0]
    assert line["marks"] == [
        {
            "target": {"pid": TARGET.pid, "start_ticks": TARGET.start_ticks},
            "plugin": "memory",
            "wall": START + 4,
            "sign": "c",
            "label": "checkpoint",
            "step": 4,
        }
    ]
    assert json_lines(Story().forward())[0]["marks"] == []


# The axis.


def test_of_several_marks_in_a_cell_the_most_telling_is_seen() -> None:
    for signs, seen in [("ce", "e"), ("oc", "c"), ("er", "r"), ("rm", "m"), ("m!ceor", "!"), ("!", "!")]:
        for order in (signs, signs[::-1]):
            assert axis([(7.2, sign) for sign in order])[7] == seen


def test_what_happens_all_the_time_leaves_the_axis_readable() -> None:
    often = [(float(n), "e") for n in range(0, 60, 2)]
    line = axis([*often, (21.0, "r"), (40.0, "!")])
    assert line.count("e") == 1
    assert line[58] == "e"
    assert (line[21], line[40]) == ("r", "!")
    few = axis([(float(n), "e") for n in range(0, 60, 15)])
    assert few.count("e") == 4


def test_signs_from_outside_never_break_the_line() -> None:
    line = axis(
        [(3.0, "\x1b"), (4.0, "宽"), (5.0, ""), (6.0, "ab"), (float("9"), "x"), (-4.0, "y"), (99.0, "z")]
    )
    assert len(line) == 60
    assert set(line) == {"─", "x"}


async def test_marks_of_the_training_are_drawn_in_the_pane(monitor: Any) -> None:
    app, controls = monitor(MEMORY)
    story = Story()
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(with_marks(story.forward(100), mark("c", 50), mark("r", 200)))
        await pilot.pause()
        controls.deliver(story.forward(1))
        await pilot.pause()
        lines = app.desk.panes[0].as_text()
        axis_line = next(line for line in lines if "┼" in line)
        assert "c" in axis_line
        assert "r" in axis_line
        assert axis_line.index("c") < axis_line.index("r")
        await pilot.press("m")
        await pilot.pause()
        assert "m" in next(line for line in app.desk.panes[0].as_text() if "┼" in line)
