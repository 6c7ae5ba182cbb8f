"""Numbers, foreign text and the status line's way of running out of room."""

from __future__ import annotations

import pytest
from fake import Story
from hypothesis import given
from hypothesis import strategies as st

from ascend_tui import text
from ascend_tui.frame import Cost, Frame, TargetFrame, TargetStatus
from ascend_tui.plugin import Message
from ascend_tui.shown import Shown
from ascend_tui.target import TargetId
from ascend_tui.widgets import status
from ascend_tui.widgets.quiet import cells


@given(st.text())
def test_clean_text_is_one_line_that_a_terminal_does_not_obey(foreign: str) -> None:
    shown = text.clean(foreign)
    assert text.clean(shown) == shown
    assert all(ord(character) >= 0x20 and not 0x7F <= ord(character) < 0xA0 for character in shown)
    assert len(cells(foreign, 20)) == 20


def test_clean_shows_what_it_took_away() -> None:
    assert text.clean("a\x1b[31mb\x00\x7f\x9b\u202e\ufe0f\ud800\tc\n") == "a␛[31mb␀␡?? c "


@given(st.text(), st.integers(0, 30))
def test_folded_lines_fit_and_lose_nothing(foreign: str, room: int) -> None:
    known = text.clean(foreign)
    lines = text.fold(known, max(room, 2))
    assert all(text.width(line) <= max(room, 2) for line in lines)
    assert "".join(lines).replace(" ", "") == known.replace(" ", "")


@given(st.text(), st.integers(0, 30))
def test_fit_never_takes_more_cells(foreign: str, room: int) -> None:
    assert text.width(text.fit(text.clean(foreign), room)) <= room


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (41.2 * 2**30, "41.2 GiB"), (2**50, "1024 TiB")],
)
def test_byte_sizes(value: float, shown: str) -> None:
    assert text.byte_size(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.00031, "310 µs"),
        (0.812, "812 ms"),
        (1.2, "1.20 s"),
        (61, "1 min 01 s"),
        (3599, "59 min"),
        (8000, "2 h 13 min"),
        (200_000, "2 d 7 h"),
        (float("inf"), "∞"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert text.duration(seconds) == shown


def line(parts: list[status.Part], room: int) -> str:
    return "".join(part for part, _ in status.spans(status.fitted(parts, room)))


def test_the_status_line_at_full_width() -> None:
    story = Story()
    story.forward(100)
    left = line(status.identity(story.status(), (0, 1)), 99)
    assert left == "ascend-tui  41233 train.py  rank 0/8  npu:0 910B3"
    assert line(status.pulse(story.status(), None), 99) == "step 300   814 ms  ours 0.3 %  ● 0.0 s"


@given(st.integers(0, 60))
def test_the_state_is_the_last_thing_that_goes(room: int) -> None:
    gone = Story().status(state="exited", reason=Message("target exited (signal 9)"))
    shown = line(status.pulse(gone, None), room)
    assert text.width(shown) <= room
    assert shown.startswith("✕") or "  ✕" in shown or room < 2


def test_a_cost_that_is_not_known_is_not_a_zero() -> None:
    assert status.own_cost(Cost()) == "ours unknown"


def test_thinning_notes_and_losses_are_shown() -> None:
    notes = (Message("hooks refused"), Message("no NPU"))
    troubled = Story().status(cost=Cost(share=0.04, thinning=4), notes=notes, dropped=1200)
    left = line(status.identity(troubled, (1, 8)), 200)
    assert "sampling 1/4: over budget" in left
    assert "hooks refused (+1)" in left
    assert "<2/8>" in left
    assert "dropped 1,200" in line(status.pulse(troubled, None), 200)


def test_an_attach_is_told_once_also_when_it_was_done_before_the_first_frame() -> None:
    new = TargetStatus(TargetId(1, 2), "a", "waiting", method="thread", stop_ms=0.3, hello_ms=80.0)
    old = TargetStatus(TargetId(3, 4), "b", "waiting", method="reused", hello_ms=3.0)
    frame = Frame(0.0, (TargetFrame(new, {}), TargetFrame(old, {})))
    shown = Shown()
    assert [shown.came_in(frame), shown.came_in(frame)] == [[new], []]
    assert "attached by thread, one thread stopped for 0.3 ms" in status.how_attached(new)
