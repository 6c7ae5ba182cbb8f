"""What stands still comes up by itself, once, and goes back; stacks are text and can be scrolled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from ascend_tui_plugins.stacks.snapshot import StacksSnapshot
from fake import MEMORY, PLAIN, STACKS, Story, alert, moving, still

from ascend_tui.frame import Failed, Frame, TargetFrame
from ascend_tui.plugin import Loaded, Message, Plugin
from ascend_tui.target import TargetId
from ascend_tui.widgets.desk import arrange
from ascend_tui.widgets.pane import Pane

OTHER = TargetId(41234, 992)


@pytest.fixture
def story() -> Story:
    found = Story()
    found.forward(50)
    return found


@pytest.fixture
def show(story: Story) -> Callable[..., Any]:
    """Return what delivers a frame with these stacks."""

    async def deliver(pilot: Any, controls: Any, stacks: Any, **changes: Any) -> None:
        plugins = {"memory": story.memory(), "stacks": stacks}
        controls.deliver(story.frame(plugins=plugins, **changes))
        await settled(pilot)

    return deliver


async def settled(pilot: Any) -> None:
    """Wait until what has come up is laid out: on a busy machine that takes more than one pause."""
    for _ in range(50):
        await pilot.pause()
        pane = pilot.app.desk.panes[1]
        if not pane.display or not hasattr(pane, "verdict") or pane.verdict.rows:
            break


def seen(app: Any) -> list[int]:
    """Return the digits of the panes that are seen."""
    return [pane.digit for pane in app.desk.panes if pane.display]


def text_of(app: Any) -> str:
    return "\n".join(app.desk.panes[1].as_text())


async def test_while_steps_end_the_stacks_are_one_line_and_nothing_else(monitor: Any, show: Any) -> None:
    alone, alone_controls = monitor(MEMORY)
    story = Story()
    async with alone.run_test(size=(120, 40)) as pilot:
        alone_controls.deliver(story.forward(50))
        await pilot.pause()
        before = alone.desk.panes[0].size
    app, controls = monitor(MEMORY, STACKS)
    async with app.run_test(size=(120, 40)) as pilot:
        # Not even before the first frame is there a pane that would vanish with it.
        assert seen(app) == [1]
        await show(pilot, controls, moving())
        assert seen(app) == [1]
        assert app.desk.panes[0].size == (before.width, before.height - 1)
        assert app.desk._summaries[1].as_text() == [
            "2 Stacks  steps end; when none does, the stack of every thread is here"
        ]
        await pilot.press("2")
        assert seen(app) == [1, 2]
        assert "steps end; the median step takes 800 ms" in text_of(app)
        await pilot.press("1")
        assert seen(app) == [1]


async def test_a_standstill_comes_up_alone_and_goes_back_when_it_is_over(monitor: Any, show: Any) -> None:
    app, controls = monitor(MEMORY, STACKS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, moving())
        await show(pilot, controls, still())
        assert seen(app) == [2]
        assert app.desk.chosen.digit == 2
        assert "Esc: back" in app.desk.panes[1]._mode_words()
        assert "! no step has ended for 42 s" in text_of(app)
        assert "main waits for the data loader, in train_epoch (trainer.py:212)" in text_of(app)
        await show(pilot, controls, moving())
        assert seen(app) == [1]
        assert app.desk.chosen.digit == 1
        assert "Esc: back" not in app.desk.panes[1]._mode_words()


@pytest.mark.parametrize(
    ("key", "panes", "chosen"), [("escape", [1, 2], 1), ("z", [1, 2], 2), ("1", [1, 2], 1), ("2", [1, 2], 2)]
)
async def test_a_key_leaves_it_and_it_does_not_come_again(
    monitor: Any, show: Any, key: str, panes: list[int], chosen: int
) -> None:
    app, controls = monitor(MEMORY, STACKS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, still(10.0))
        assert seen(app) == [2]
        await pilot.press(key)
        assert (seen(app), app.desk.chosen.digit) == (panes, chosen)
        await show(pilot, controls, still(11.0))
        assert (seen(app), app.desk.chosen.digit) == (panes, chosen)
        # The next time is another episode.
        await show(pilot, controls, moving())
        assert seen(app) == ([1] if chosen == 1 else [1, 2])
        await show(pilot, controls, still(10.0))
        assert seen(app) == [2]


async def test_the_zoom_that_was_there_before_comes_back(monitor: Any, show: Any) -> None:
    app, controls = monitor(MEMORY, *PLAIN, STACKS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, moving())
        await pilot.press("3", "z")
        assert seen(app) == [3]
        await show(pilot, controls, still())
        assert seen(app) == [5]
        await show(pilot, controls, moving())
        assert seen(app) == [3]
        await pilot.press("escape")
        assert seen(app) == [1, 2, 3, 4]
        await pilot.press("escape")
        assert seen(app) == [1, 2, 3, 4]


async def test_an_alert_that_is_walked_to_is_left_in_peace(monitor: Any, story: Story) -> None:
    app, controls = monitor(MEMORY, STACKS)
    plugins = {"memory": story.memory(), "stacks": still()}
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(story.frame(alerts=(alert(),), plugins=plugins))
        await settled(pilot)
        assert seen(app) == [2]
        await pilot.press("n")
        controls.deliver(story.frame(plugins=plugins))
        await pilot.pause()
        assert (seen(app), app.desk.chosen.digit) == ([1, 2], 1)


async def test_each_rank_has_its_own_standstill(monitor: Any, story: Story) -> None:
    app, controls = monitor(MEMORY, STACKS)

    def both() -> Frame:
        one = TargetFrame(story.status(), {"memory": story.memory(), "stacks": moving()})
        other = TargetFrame(story.status(id=OTHER), {"memory": story.memory(), "stacks": still()})
        return Frame(story.frame().wall_s, (one, other))

    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(both())
        await pilot.pause()
        assert seen(app) == [1]
        await pilot.press("greater_than_sign")
        assert seen(app) == [2]
        await pilot.press("less_than_sign")
        assert seen(app) == [1]
        await pilot.press("greater_than_sign", "escape", "less_than_sign", "greater_than_sign")
        assert seen(app) == [1, 2]


async def test_before_the_first_step_it_comes_up_too_and_says_what_is_not_known(
    monitor: Any, show: Any
) -> None:
    app, controls = monitor(MEMORY, STACKS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, StacksSnapshot("waiting"), state="waiting", step=None)
        assert seen(app) == [1]
        await show(pilot, controls, still(None), state="waiting", step=None)
        assert seen(app) == [2]
        pane = app.desk.panes[1]
        assert not pane._notice.display
        assert "! no step has ended since the attach 1 min 03 s ago (before that is not known)" in text_of(
            app
        )


async def test_busy_is_said_in_the_line_and_takes_no_room(monitor: Any, show: Any) -> None:
    app, controls = monitor(MEMORY, STACKS)
    busy = dataclasses.replace(
        still(), stuck="busy", doing=Message.of("main is in {place}", place="evaluate (train.py:9)")
    )
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, busy)
        assert seen(app) == [1]
        line = app.desk._summaries[1].as_text()
        assert line == ["2 Stacks  no step has ended for 42 s; main is in evaluate (train.py:9)"]


async def test_the_same_stacks_are_folded_and_foreign_text_is_only_text(monitor: Any, show: Any) -> None:
    app, controls = monitor(MEMORY, STACKS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, still())
        shown = text_of(app)
        assert "pool-0_0␛[31m × 7  waits for a lock or another thread" in shown
        assert "QueueFeederThread × 2" in shown
        assert "\x1b" not in shown
        # The innermost call first; what every thread starts with is left out.
        places = [
            shown.index(name) for name in ("poll()", "_PollLikeSelector.select", "train_epoch", "main ")
        ]
        assert places[0] < places[1]
        assert "_bootstrap" not in shown
        assert "pt_autograd_0 × 2, python3.11 × 14" in shown


async def test_a_long_stack_is_scrolled_and_stops_at_its_ends(monitor: Any, show: Any) -> None:
    app, controls = monitor(MEMORY, STACKS)
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, still())
        top = text_of(app)
        assert "MainThread" in top
        assert "_worker" not in top
        await pilot.press("down")
        assert "MainThread" not in text_of(app)
        await pilot.press("pagedown", "pagedown")
        assert "_worker" in text_of(app)
        bottom = text_of(app)
        await pilot.press("down")
        assert text_of(app) == bottom
        await pilot.press("pageup", "pageup", "up")
        assert text_of(app) == top
        # The next reading leaves the place alone.
        await pilot.press("down")
        await show(pilot, controls, still(43.0))
        assert "MainThread" not in text_of(app)


async def test_an_unchanged_standstill_repaints_two_numbers(monitor: Any, show: Any) -> None:
    app, controls = monitor(MEMORY, STACKS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, still(42.0))
        pane = app.desk.panes[1]
        painted: list[Any] = []
        for widget in (pane.verdict, pane.stacks, pane.more):
            widget.refresh = lambda *regions, **_: painted.extend(regions)
        await show(pilot, controls, still(43.0))
        assert [region.size for region in painted] == [(1, 1)]


class Slipping(Pane):
    """A third party's pane that fails when it is asked."""

    def rests(self, snapshot: Any) -> bool:
        raise KeyError("rests")

    def is_urgent(self, snapshot: Any) -> bool:
        raise KeyError("urgent")


async def test_a_plugin_that_fails_when_asked_has_its_pane_as_ever(monitor: Any, show: Any) -> None:
    slipping = Loaded("stacks", Plugin("stacks", "Stacks", "", f"{__name__}:Slipping"))
    app, controls = monitor(MEMORY, slipping)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, still())
        assert seen(app) == [1, 2]


async def test_failed_stacks_are_one_line_that_says_why(monitor: Any, show: Any) -> None:
    app, controls = monitor(MEMORY, STACKS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, Failed("RuntimeError: fell"))
        assert seen(app) == [1]
        assert app.desk._summaries[1].as_text() == ["2 Stacks  failed: RuntimeError: fell"]


async def test_without_a_shim_it_says_that_it_needs_one(monitor: Any, show: Any) -> None:
    app, controls = monitor(MEMORY, STACKS)
    async with app.run_test(size=(120, 40)) as pilot:
        waiting = StacksSnapshot("waiting", reason=Message("waiting for the first reading"))
        await show(pilot, controls, waiting, state="passive")
        assert "needs the shim" in app.desk._summaries[1].as_text()[0]


@pytest.mark.parametrize(
    ("size", "recent", "resting", "seen", "lines", "columns"),
    [
        ((120, 38), [0], {1}, (0,), (1,), 1),
        ((120, 38), [1, 0], {1}, (0, 1), (), 2),
        ((80, 22), [0], {1}, (0,), (1,), 1),
        ((120, 38), [0], {0, 1}, (0,), (1,), 1),
        ((120, 38), [2], {1}, (0, 2), (1,), 2),
    ],
)
def test_what_rests_is_a_line(
    size: Any, recent: Any, resting: Any, seen: Any, lines: Any, columns: int
) -> None:
    found = arrange(*size, max(*recent, *resting) + 1, recent, False, resting)
    assert (found.seen, found.lines, found.columns) == (seen, lines, columns)
