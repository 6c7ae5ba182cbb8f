"""The key that filters the chosen pane, and the one that opens what is chosen."""

from __future__ import annotations

from typing import Any

from fake import MEMORY, PLAIN, Story
from overflow_story import OVERFLOW, picture

from ascend_tui.widgets.filter_line import FilterLine
from ascend_tui.widgets.key_line import KeyLine


async def test_slash_filters_as_it_is_typed_and_enter_opens_the_story(monitor: Any) -> None:
    app, controls = monitor(MEMORY, OVERFLOW, *PLAIN[:2])
    story = Story()
    story.forward(20)
    async with app.run_test(size=(120, 40)) as pilot:
        controls.deliver(story.frame(plugins={"memory": story.memory(), "overflow": picture()}))
        await pilot.press("slash", "x")
        assert not app.query_one(FilterLine).display  # the memory pane filters nothing
        pane = app.desk.panes[1]
        await pilot.press("2", "slash", *"up_proj", "space", *"17900")
        await pilot.pause()
        assert pane.filter_text == "up_proj 17900"
        assert len(pane.feed.entries) == 1
        assert not app.query_one(KeyLine).display
        await pilot.press("enter")
        await pilot.pause()
        assert app.query_one(KeyLine).display
        assert not app.desk.zoomed
        await pilot.press("enter")
        assert app.desk.zoomed
        await pilot.press("slash", *"zzz", "escape")
        await pilot.pause()
        assert app.desk.zoomed
        assert pane.filter_text == "up_proj 17900"
        await pilot.press("escape")
        assert not app.desk.zoomed
