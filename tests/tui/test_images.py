"""How the screen looks, as images: every size live, and each state once.

`pytest tests/tui/test_images.py --snapshot-update` draws them anew; look at them before they are
committed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from fake import MEMORY, PLAIN, STACKS, WORKERS, Story, holders, moving, segments, still

from ascend_tui.app import MonitorApp
from ascend_tui.plugin import Message

SIZES = [(60, 20), (80, 24), (120, 40), (200, 50)]


def showing(monitor: Any, *keys: str, ticks: int = 700, **options: Any) -> tuple[MonitorApp, Any]:
    """Return an app and what to do before its picture is taken."""
    frame_changes = options.pop("frame", {})
    app, controls = monitor(MEMORY, *PLAIN, **options)
    story = Story()

    async def before(pilot: Any) -> None:
        controls.deliver(story.forward(ticks))
        controls.deliver(story.frame(**frame_changes))
        await pilot.pause()
        await pilot.press(*keys)
        if "space" in keys:
            for _ in range(12):
                controls.deliver(story.forward())
                await pilot.pause()
        await pilot.pause()

    return app, before


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_live(snap_compare: Any, monitor: Any, size: tuple[int, int]) -> None:
    app, before = showing(monitor)
    assert snap_compare(app, run_before=before, terminal_size=size)


def test_frozen(snap_compare: Any, monitor: Any) -> None:
    app, before = showing(monitor, "space")
    assert snap_compare(app, run_before=before, terminal_size=(80, 24))


def test_exited(snap_compare: Any, monitor: Any) -> None:
    gone = {"state": "exited", "reason": Message.of("target exited (signal {signal})", signal=9)}
    app, before = showing(monitor, frame=gone)
    assert snap_compare(app, run_before=before, terminal_size=(80, 24))


def test_help(snap_compare: Any, monitor: Any) -> None:
    app, before = showing(monitor, "question_mark")
    assert snap_compare(app, run_before=before, terminal_size=(120, 40))


def test_zoomed_with_a_cursor(snap_compare: Any, monitor: Any) -> None:
    app, before = showing(monitor, "z", *["left_square_bracket"] * 9)
    assert snap_compare(app, run_before=before, terminal_size=(120, 40))


def test_chinese(snap_compare: Any, monitor: Any) -> None:
    app, before = showing(monitor, language="zh_CN")
    assert snap_compare(app, run_before=before, terminal_size=(120, 40))


def test_the_colours_of_the_terminal(snap_compare: Any, monitor: Any) -> None:
    app, before = showing(monitor, theme="ansi-dark")
    assert snap_compare(app, run_before=before, terminal_size=(80, 24))


@pytest.mark.parametrize(
    ("size", "language"),
    [((120, 40), "en"), ((80, 24), "zh_CN")],
    ids=lambda one: one if isinstance(one, str) else f"{one[0]}x{one[1]}",
)
def test_a_training_that_stands_still(snap_compare: Any, monitor: Any, size: Any, language: str) -> None:
    app, controls = monitor(MEMORY, STACKS, language=language)
    story = Story()
    story.forward(300)

    async def before(pilot: Any) -> None:
        controls.deliver(story.frame(plugins={"memory": story.memory(), "stacks": still()}))
        await pilot.pause()

    assert snap_compare(app, run_before=before, terminal_size=size)


def test_stacks_that_rest_are_one_line(snap_compare: Any, monitor: Any) -> None:
    app, controls = monitor(MEMORY, STACKS)
    story = Story()
    story.forward(700)

    async def before(pilot: Any) -> None:
        controls.deliver(story.frame(plugins={"memory": story.memory(), "stacks": moving()}))
        await pilot.pause()

    assert snap_compare(app, run_before=before, terminal_size=(120, 40))


@pytest.mark.parametrize(
    ("size", "language"),
    [((120, 40), "en"), ((80, 24), "zh_CN")],
    ids=lambda one: one if isinstance(one, str) else f"{one[0]}x{one[1]}",
)
def test_who_holds_it(snap_compare: Any, monitor: Any, size: Any, language: str) -> None:
    app, controls = monitor(MEMORY, *PLAIN, language=language)
    story = Story()
    story.forward(700)
    known = {"holders": holders(), "segments": segments(), "workers": WORKERS}

    async def before(pilot: Any) -> None:
        controls.deliver(story.frame(plugins={"memory": dataclasses.replace(story.memory(), **known)}))
        await pilot.pause()
        await pilot.press("z")
        await pilot.pause()

    assert snap_compare(app, run_before=before, terminal_size=size)
