"""What the base of the panes draws, and that one plugin's fault stays in its own pane."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from ascend_tui_plugins.memory.snapshot import MemoryValues, Reuse
from fake import BROKEN, MEMORY, PLAIN, Story

from ascend_tui.frame import Failed
from ascend_tui.plugin import Loaded, Plugin
from ascend_tui.series import Series
from ascend_tui.widgets.desk import arrange
from ascend_tui.widgets.pane import Pane


def lines(app: Any, digit: int = 1) -> str:
    """Return what a pane shows, its shared notice included."""
    pane = app.desk.panes[digit - 1]
    return "\n".join(["".join(pane._notice.as_text()) if pane._notice.display else "", *pane.as_text()])


class Faulty(Pane):
    """A third party's pane with a slip in it."""

    def draw(self, snapshot: Any, status: Any) -> None:
        raise KeyError("no such column")

    def summary(self, snapshot: Any) -> str:
        raise KeyError("no such column")


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (Failed("ValueError: bad record"), "failed: ValueError: bad record"),
        (object(), "failed: KeyError: 'no such column'"),
        (None, "waiting for data"),
    ],
)
async def test_a_failing_plugin_says_so_in_its_pane(monitor: Any, snapshot: Any, words: str) -> None:
    faulty = Loaded("faulty", Plugin("faulty", "Faulty", "", f"{__name__}:Faulty"))
    app, controls = monitor(MEMORY, faulty)
    story = Story()
    story.forward(20)
    for size in ((120, 40), (60, 20)):
        async with app.run_test(size=size) as pilot:
            controls.deliver(story.frame(plugins={"memory": story.memory(), "faulty": snapshot}))
            await pilot.pause()
            assert words in lines(app, 2)
            assert "allocated" in lines(app, 1)
        app, controls = monitor(MEMORY, faulty)


@pytest.mark.parametrize("pane", ["no.such.module:Pane", "ascend_tui.text:tr", ""])
async def test_a_pane_that_cannot_be_loaded_is_a_pane_that_says_so(monitor: Any, pane: str) -> None:
    app, controls = monitor(Loaded("gone", Plugin("gone", "Gone", "", pane)), MEMORY)
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(Story().forward())
        await pilot.pause()
        assert "failed: " in lines(app, 1)


async def test_last_data_stay_after_the_connection_is_lost(monitor: Any) -> None:
    app, controls = monitor(MEMORY)
    story = Story()
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(story.forward(50))
        controls.deliver(story.frame(state="disconnected"))
        await pilot.pause()
        assert "┤" in lines(app)
        assert "✕ last data" in str(app.desk.panes[0].border_title)


async def test_without_plugins_the_screen_says_what_helps(monitor: Any) -> None:
    app, controls = monitor()
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(Story().forward())
        await pilot.pause()
        assert "No plugin is installed" in "".join(app.query_one("#empty").as_text())


@pytest.mark.parametrize(
    ("size", "panes", "recent", "seen", "columns"),
    [
        ((120, 38), 1, [0], (0,), 1),
        ((120, 38), 2, [0], (0, 1), 2),
        ((120, 38), 3, [0], (0, 1, 2), 2),
        ((120, 38), 4, [0], (0, 1, 2, 3), 2),
        ((120, 38), 5, [0], (0, 1, 2, 3, 4), 2),
        ((120, 16), 5, [0], (0, 1), 2),
        ((100, 38), 4, [0], (0, 1), 1),
        ((100, 38), 4, [3, 0], (0, 3), 1),
        ((100, 14), 4, [3, 0], (3,), 1),
        ((79, 38), 4, [2], (2,), 1),
        ((79, 38), 0, [], (), 1),
    ],
)
def test_layout(size: Any, panes: int, recent: Any, seen: Any, columns: int) -> None:
    found = arrange(*size, panes, recent, zoomed=False)
    assert (found.seen, found.columns) == (seen, columns)
    assert sorted(found.seen + found.lines) == list(range(panes))


@pytest.mark.parametrize("size", [(1, 1), (10, 3), (59, 12), (200, 60)])
async def test_any_size_is_survived(monitor: Any, size: Any) -> None:
    app, controls = monitor(MEMORY, *PLAIN, BROKEN, language="zh_CN")
    story = Story()
    async with app.run_test(size=size) as pilot:
        controls.deliver(story.forward(300))
        await pilot.pause()
        await pilot.resize_terminal(120, 40)
        controls.deliver(story.forward(1))
        await pilot.pause()
        await pilot.resize_terminal(*size)
        await pilot.press("z", "2")
        assert app.is_running


async def test_an_allocator_that_counts_nothing_shows_the_card(monitor: Any) -> None:
    app, controls = monitor(MEMORY)
    story = Story()
    story.forward(40)
    card = Series("device_used", 1.0)
    for step in range(100):
        card.add(step, (3 + step / 100) * 2**30)
    now = MemoryValues(device_used_bytes=4 * 2**30, device_total_bytes=62 * 2**30, rss_bytes=2**30)
    snapshot = dataclasses.replace(
        story.memory(),
        lead="device_used",
        reuse=Reuse("off", at_launch=True),
        slope=None,
        current=now,
        peak=now,
        step_curves=(card.curve(),),
        time_curves=(),
    )
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(story.frame(plugins={"memory": snapshot}))
        await pilot.pause()
        shown = lines(app)
        assert "device" in shown
        assert "allocated" not in shown
        assert "reuse off at launch: counters blind, curve is the card" in app.desk.panes[0].mode(snapshot)
