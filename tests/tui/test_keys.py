"""Every key, with no data, with data, after the target's end, and beside a plugin that fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake import BROKEN, MEMORY, PLAIN, FakeControls, Story, alert

from ascend_tui import keys, text
from ascend_tui.plugin import Message
from ascend_tui.widgets.help import HelpScreen
from ascend_tui.widgets.status import StatusLine

NAMES = {"[": "left_square_bracket", "]": "right_square_bracket", "+": "plus", "-": "minus"}
NAMES |= {"<": "less_than_sign", ">": "greater_than_sign", "?": "question_mark"}
EVERY_KEY = [NAMES.get(key.key, key.key) for key in keys.KEYS if key.id not in ("quit", "remove")]


def status_text(app: Any) -> str:
    """Return the status line as it is drawn."""
    return " ".join("".join(widget.as_text()) for widget in app.screen_stack[0].query("StatusLine QuietLine"))


def pane_text(app: Any, digit: int = 1) -> str:
    """Return a pane as it is copied."""
    return "\n".join(app.desk.panes[digit - 1].as_text())


async def press_all(app: Any, pilot: Any) -> None:
    """Press every key, and those that toggle a second time."""
    for key in [*"12349", *EVERY_KEY, "z", "space", "L", "r", "o", "tab"]:
        await pilot.press(key)
        while len(app.screen_stack) > 1:
            await pilot.press("escape")


@pytest.mark.parametrize("plugins", [(), (MEMORY, *PLAIN, BROKEN)])
async def test_every_key_without_a_frame(monitor: Any, plugins: Any) -> None:
    app, _ = monitor(*plugins, export=lambda name, data: Path(name))
    async with app.run_test(size=(120, 40)) as pilot:
        await press_all(app, pilot)
        assert app.is_running
        await pilot.press("q")
    assert app.return_code == 0


@pytest.mark.parametrize(("size", "device"), [((60, 20), "cpu"), ((120, 40), "npu:0")])
async def test_every_key_with_data_and_after_the_end(monitor: Any, size: Any, device: str) -> None:
    app, controls = monitor(MEMORY, BROKEN, export=lambda name, data: Path(name))
    story = Story(device)
    async with app.run_test(size=size) as pilot:
        controls.deliver(story.forward(50))
        await press_all(app, pilot)
        controls.deliver(
            story.frame(state="exited", reason=Message.of("target exited (code {code})", code=1))
        )
        await pilot.pause()
        assert "target exited (code 1)" in status_text(app)
        await press_all(app, pilot)
        assert app.is_running


async def test_one_target_after_another_is_released_before_the_screen_goes(monitor: Any) -> None:
    app, controls = monitor(MEMORY)
    async with app.run_test() as pilot:
        controls.deliver(Story().forward())
        await pilot.pause()
        await pilot.press("q")
        await pilot.pause()
    assert controls.asked[-2:] == [("release", 41233), ("stop",)]
    assert app.farewell == []


async def test_removing_prints_the_residue_afterwards(monitor: Any) -> None:
    app, controls = monitor(MEMORY)
    async with app.run_test() as pilot:
        controls.deliver(Story().forward())
        await pilot.pause()
        await pilot.press("Q")
        await pilot.pause()
    assert ("remove", 41233) in controls.asked
    assert app.farewell == ["left behind: one fork sentinel"]


async def test_a_shim_that_does_not_answer_cannot_keep_the_user(monitor: Any) -> None:
    app, controls = monitor(MEMORY, controls=FakeControls(answers=False))
    async with app.run_test() as pilot:
        controls.deliver(Story().forward())
        await pilot.pause()
        await pilot.press("q")
        await pilot.pause()
        assert app.is_running
        app.leaving.give_up()
        await pilot.pause()
    assert app.farewell == ["a shim did not answer; what it runs ends with its lease"]


async def test_the_second_q_closes_at_once(monitor: Any) -> None:
    app, controls = monitor(MEMORY, controls=FakeControls(answers=False))
    async with app.run_test() as pilot:
        controls.deliver(Story().forward())
        await pilot.pause()
        await pilot.press("q", "q")
        await pilot.pause()
        assert not app.is_running


async def test_frozen_frames_are_counted_and_not_drawn(monitor: Any) -> None:
    app, controls = monitor(MEMORY)
    story = Story()
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(story.forward(40))
        await pilot.pause()
        await pilot.press("space")
        before = pane_text(app)
        for _ in range(12):
            controls.deliver(story.forward())
            await pilot.pause()
        # Nothing moves by itself; any key has the count brought up to date.
        assert "‖ frozen +0" in status_text(app)
        await pilot.press("h")
        assert "‖ frozen +12" in status_text(app)
        assert pane_text(app) == before
        await pilot.press("space")
        await pilot.pause()
        assert "frozen" not in status_text(app)
        assert pane_text(app) != before


async def test_a_frozen_screen_says_that_the_target_is_gone(monitor: Any) -> None:
    app, controls = monitor(MEMORY)
    story = Story()
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(story.forward(40))
        await pilot.pause()
        await pilot.press("space")
        before = pane_text(app)
        reason = Message.of("target exited (signal {signal})", signal=9)
        controls.deliver(story.frame(state="exited", reason=reason))
        await pilot.pause()
        assert "‖ frozen" in status_text(app)
        assert "target exited (signal 9)" in status_text(app)
        assert pane_text(app) == before


async def test_zoom_fills_the_screen_and_gives_it_back(monitor: Any) -> None:
    app, controls = monitor(MEMORY, *PLAIN)
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(Story().forward(50))
        await pilot.press("3", "z")
        await pilot.pause()
        assert [pane.digit for pane in app.desk.panes if pane.display] == [3]
        await pilot.press("z")
        await pilot.pause()
        assert [pane.digit for pane in app.desk.panes if pane.display] == [1, 2, 3, 4]


async def test_a_command_that_slows_wants_a_second_press(monitor: Any, clock: Any) -> None:
    app, controls = monitor(MEMORY)
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(Story().forward())
        await pilot.pause()
        await pilot.press("r")
        assert "reuse: switches the allocator cache off; press r again" in status_text(app)
        clock.now += 5.1
        await pilot.press("r")
        assert not [one for one in controls.asked if one[0] == "command"]
        clock.now += 4.9
        await pilot.press("r")
        assert controls.asked[-1] == ("command", 41233, "memory", "reuse", True)


async def test_a_command_that_costs_nothing_starts_at_once_and_stops(monitor: Any) -> None:
    from ascend_tui.frame import CommandState

    app, controls = monitor(MEMORY)
    story = Story()
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(story.forward())
        await pilot.pause()
        await pilot.press("o")
        assert controls.asked[-1] == ("command", 41233, "memory", "watch", True)
        controls.deliver(story.frame(commands=(CommandState("memory", "watch", "on"),)))
        await pilot.pause()
        assert app.desk.panes[0]._mode_words()[0] == "watch on"
        await pilot.press("o")
        assert controls.asked[-1] == ("command", 41233, "memory", "watch", False)


async def test_a_read_only_screen_refuses_what_changes_the_target(monitor: Any) -> None:
    app, controls = monitor(MEMORY, readonly=True)
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(Story().forward())
        await pilot.pause()
        await pilot.press("o")
        assert "read-only" in status_text(app)
        await pilot.press("Q")
        await pilot.pause()
        assert app.is_running
        assert {one[0] for one in controls.asked} == {"start"}


async def test_a_notice_goes_after_some_seconds(monitor: Any, clock: Any) -> None:
    app, controls = monitor(MEMORY)
    story = Story()
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(story.forward())
        await pilot.pause()
        await pilot.press("m")
        assert controls.asked[-1] == ("mark", 41233)
        assert "marked" in status_text(app)
        clock.now += 7
        controls.deliver(story.forward())
        await pilot.pause()
        assert "41233 train.py" in status_text(app)


async def test_stepping_in_time_shows_that_moment(monitor: Any) -> None:
    app, controls = monitor(MEMORY)
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(Story().forward(200))
        await pilot.pause()
        await pilot.press(*["left_square_bracket"] * 4)
        assert "at step 5" in pane_text(app)
        assert "┊" in pane_text(app)
        await pilot.press(*["right_square_bracket"] * 5)
        assert "┊" not in pane_text(app)


async def test_alerts_are_walked_and_none_is_lost_by_skipped_frames(monitor: Any) -> None:
    app, controls = monitor(MEMORY, *PLAIN)
    story = Story()
    async with app.run_test(size=(120, 40)) as pilot:
        story.forward(100)
        controls.deliver(story.frame(alerts=(alert(120),)))
        controls.deliver(story.frame(alerts=(alert(240, "logs"),)))
        controls.deliver(story.frame())
        await pilot.pause()
        await pilot.press("n")
        assert "error 1/2" in status_text(app)
        await pilot.press("n")
        assert "error 2/2  step 240  Inf in mlp.act" in status_text(app)
        assert app.desk.chosen.loaded.name == "logs"
        assert "!" in pane_text(app)
        await pilot.press("N")
        assert "1/2" in status_text(app)


async def test_rate_goes_through_its_steps_and_no_further(monitor: Any) -> None:
    app, controls = monitor(MEMORY)
    async with app.run_test() as pilot:
        await pilot.press("plus", "plus", "plus", "minus", "minus", "minus", "minus")
    assert [one[1] for one in controls.asked if one[0] == "tick"] == [0.5, 0.25, 0.25, 0.5, 1.0, 2.0, 2.0]


async def test_export_writes_the_screen_and_strict_json(monitor: Any, tmp_path: Path) -> None:
    def export(name: str, data: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    app, controls = monitor(MEMORY, export=export)
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(Story().forward(30))
        await pilot.pause()
        await pilot.press("e")
        assert f"saved to {tmp_path}"[:30] in status_text(app)
    drawn, numbers = sorted(tmp_path.iterdir())
    assert drawn.read_text().startswith("<svg")
    assert json.loads(numbers.read_text())["plugins"]["memory"]["lead"] == "allocated"


async def test_a_full_disk_is_a_notice(monitor: Any) -> None:
    def export(name: str, data: bytes) -> Path:
        raise OSError(28, "No space left on device")

    app, controls = monitor(MEMORY, export=export)
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(Story().forward(30))
        await pilot.pause()
        await pilot.press("e")
        assert "could not save: [Errno 28]" in status_text(app)


async def test_copy_takes_the_pane_as_text(monitor: Any) -> None:
    app, controls = monitor(MEMORY)
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(Story().forward(200))
        await pilot.pause()
        await pilot.press("y")
        assert app.clipboard.startswith("1 Memory  allocated")
        assert "GiB ┤" in app.clipboard
        assert "copied" in status_text(app)


async def test_language_switches_what_is_on_screen(monitor: Any) -> None:
    app, controls = monitor(MEMORY)
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(Story().forward(200))
        await pilot.pause()
        await pilot.press("L")
        assert text.language() == "zh_CN"
        assert "显存" in pane_text(app)
        assert "已分配" in pane_text(app)
        await pilot.press("L")
        assert "allocated" in pane_text(app)


async def test_help_lists_every_key_that_is_bound(monitor: Any) -> None:
    app, controls = monitor(MEMORY)
    async with app.run_test(size=(120, 60)) as pilot:
        controls.deliver(Story().forward())
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        words = "\n".join(
            "".join(part if isinstance(part, str) else part[0] for part in line)
            for line in app.screen.lines()
        )
        for key in keys.KEYS:
            assert (key.title in words) == (key.id != "export")
        assert "reuse (switches the allocator cache off)" in words
        assert "torch_npu" in words
        controls.deliver(Story().forward(2))
        await pilot.pause()
        await pilot.press("q")
        assert not isinstance(app.screen, HelpScreen)


async def test_keys_can_be_moved(monitor: Any) -> None:
    app, controls = monitor(MEMORY, keymap={"freeze": "p", "memory.watch": "x"})
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(Story().forward())
        await pilot.pause()
        assert "p freeze" in "".join(app.query_one("KeyLine").as_text())
        await pilot.press("p")
        assert app.shown.frozen
        await pilot.press("x")
        assert controls.asked[-1] == ("command", 41233, "memory", "watch", True)


async def test_foreign_text_is_text(monitor: Any) -> None:
    app, controls = monitor(MEMORY)
    hostile = "[bold red]x[/] \x1b]0;pwn\x07\x1b[2J \u202eevil\n"
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(Story().forward())
        controls.deliver(Story().frame(title=hostile, notes=(Message.of("{note}", note=hostile),)))
        await pilot.pause()
        await pilot.press("question_mark")
        await pilot.pause()
        drawn = "".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "\x1b" not in drawn
        assert "\u202e" not in drawn
        assert "[bold red]x[/] ␛]0;pwn␇␛[2J evil" in drawn
        assert "[bold red]x[/]" in status_text(app)


async def test_the_state_line_is_there_for_every_state(monitor: Any) -> None:
    app, controls = monitor(MEMORY)
    story = Story()
    story.forward(30)
    reason = Message.of("{why}", why="[Errno 111]")
    async with app.run_test(size=(80, 24)) as pilot:
        for change, words in (
            ({"state": "attaching"}, "○ attaching"),
            ({"state": "waiting"}, "○ waiting for the first step"),
            ({"state": "live"}, "● 0.0 s"),
            ({"state": "disconnected", "reason": reason}, "✕ disconnected: [Errno 111]"),
            ({"state": "exited"}, "✕ target exited: how is unknown"),
            ({"state": "refused", "reason": reason}, "✕ refused: [Errno 111]"),
        ):
            controls.deliver(story.frame(**change))
            await pilot.pause()
            assert words in status_text(app)
            assert app.query_one(StatusLine).size.height == 1


@pytest.mark.parametrize("frames", [0, 1])
async def test_a_silent_session_is_not_drawn_as_live(monitor: Any, clock: Any, frames: int) -> None:
    app, controls = monitor(MEMORY)
    async with app.run_test(size=(120, 40)) as pilot:
        for _ in range(frames):
            controls.deliver(Story().forward())
        await pilot.pause()
        clock.now += 8
        app.draw_lines()
        await pilot.pause()
        assert "✕ no news for 8.00 s" in status_text(app)
        assert "●" not in status_text(app)
        controls.deliver(Story().forward())
        await pilot.pause()
        assert "●" in status_text(app)
