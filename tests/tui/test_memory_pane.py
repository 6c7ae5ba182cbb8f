"""The memory pane on the screen: which parts there are, what scrolls, and that an idle tick costs nothing."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from ascend_tui_plugins.memory.pane import share_rows
from ascend_tui_plugins.memory.snapshot import Holders, MemorySnapshot, Reuse
from fake import MEMORY, PLAIN, WORKERS, Story, holders, segments
from textual.widget import Widget

from ascend_tui.frame import CommandState
from ascend_tui.plugin import Message


def text_of(app: Any) -> str:
    return "\n".join(app.desk.panes[0].as_text())


def full(snapshot: MemorySnapshot) -> MemorySnapshot:
    """Return a snapshot in which everything is known that the pane can show."""
    return dataclasses.replace(snapshot, holders=holders(), segments=segments(), workers=WORKERS)


async def show(pilot: Any, controls: Any, story: Story, snapshot: Any = None, **changes: Any) -> None:
    plugins = {"memory": snapshot or story.memory()}
    controls.deliver(story.frame(plugins=plugins, **changes))
    await pilot.pause()
    await pilot.pause()


@pytest.fixture
def story() -> Story:
    found = Story()
    found.forward(200)
    return found


def test_the_rows_add_up_and_the_curve_keeps_its_own() -> None:
    for height, zoomed, detail in itertools.product(range(1, 60), (False, True), (0, 2, 40)):
        rows = share_rows(height, zoomed, 2, detail)
        taken = rows.curve * (2 if rows.tail else 1) + rows.numbers + rows.words + rows.detail
        assert height - 1 <= taken <= max(height, 2)
        assert rows.detail <= detail * zoomed
        assert rows.detail == 0 or rows.curve >= 7
        assert height < 20 or rows.curve >= 7


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_a_tick_that_brings_nothing_new_paints_nothing(
    monitor: Any, story: Story, size: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, controls = monitor(MEMORY)
    painted: list[Any] = []
    async with app.run_test(size=size) as pilot:
        for keys, snapshot in (("", story.memory()), ("z", full(story.memory()))):
            await pilot.press(*keys)
            for _ in range(3):
                await show(pilot, controls, story, snapshot)
            refresh = Widget.refresh

            def counted(self: Widget, *regions: Any, refresh: Any = refresh, **options: Any) -> Any:
                painted.append((self, regions, options))
                return refresh(self, *regions, **options)

            with monkeypatch.context() as patched:
                patched.setattr(Widget, "refresh", counted)
                await show(pilot, controls, story, snapshot)
                assert not painted
                await show(pilot, controls, story, dataclasses.replace(snapshot, current=story.values(9)))
                assert painted
            painted.clear()


async def test_the_site_stands_beside_the_verdict_and_the_table_on_the_whole_screen(
    monitor: Any, story: Story
) -> None:
    app, controls = monitor(MEMORY, *PLAIN)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, story, full(story.memory()))
        assert "train.py:88 log_loss  +4.10 MiB/step" in text_of(app)
        assert "Recorder.keep" not in text_of(app)
        await pilot.press("z")
        await show(pilot, controls, story, full(story.memory()))
        shown = text_of(app)
        assert "who holds what the 20 steps up to step 2,090 allocated, by the allocator's history" in shown
        assert "Recorder.keep" in shown
        assert "pinned by little" in shown
        assert shown.index("Recorder.keep") < shown.index("pinned by little")
        await pilot.press("escape")
        await show(pilot, controls, story, full(story.memory()))
        assert "Recorder.keep" not in text_of(app)


async def test_the_tables_scroll_and_no_further_than_they_go(monitor: Any, story: Story) -> None:
    app, controls = monitor(MEMORY)
    snapshot = full(story.memory())
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, story, snapshot)
        await pilot.press("z")
        await show(pilot, controls, story, snapshot)
        assert "processes it started" not in text_of(app)
        assert "↑ 0 ↓" in text_of(app)
        await pilot.press("down", "down")
        assert "↑ 2 ↓" in text_of(app)
        await pilot.press(*["pagedown"] * 30)
        assert "↓ 0 lines more" in text_of(app)
        assert "processes it started: pt_data_worker 41300 1.00 GiB" in text_of(app)
        at_the_end = app.desk.panes[0].top
        await pilot.press("down")
        assert app.desk.panes[0].top == at_the_end
        await pilot.press(*["pageup"] * 30)
        assert "↑ 0 ↓" in text_of(app)


async def test_the_newer_table_stands_first(monitor: Any, story: Story) -> None:
    app, controls = monitor(MEMORY)
    snapshot = full(story.memory())
    newer = dataclasses.replace(snapshot, segments=dataclasses.replace(segments(), step=2095))
    async with app.run_test(size=(120, 50)) as pilot:
        await show(pilot, controls, story, newer)
        await pilot.press("z")
        await show(pilot, controls, story, newer)
        assert text_of(app).index("pinned by little") < text_of(app).index("Recorder.keep")


@pytest.mark.parametrize(
    ("device", "changes", "wanted", "unwanted"),
    [
        ("npu:0", {}, ("press w: who holds what the next 20 steps", "press f:", "about 10 % slower"), ()),
        ("cpu", {}, ("press w: who holds what the next 20 steps",), ("press f:",)),
        ("npu:0", {"commands": (CommandState("memory", "holders", "on"),)}, ("press f:",), ("press w",)),
        ("npu:0", {"state": "passive"}, (), ("press w", "press f", "press r")),
    ],
)
async def test_an_empty_table_teaches_the_key_where_it_does_something(
    monitor: Any, device: str, changes: Any, wanted: Any, unwanted: Any
) -> None:
    story = Story(device)
    story.forward(200)
    app, controls = monitor(MEMORY)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, story, **changes)
        await pilot.press("z")
        await show(pilot, controls, story, **changes)
        assert all(words in text_of(app) for words in wanted)
        assert not any(words in text_of(app) for words in unwanted)


async def test_what_is_being_looked_for_and_what_is_refused_is_said_without_the_zoom(
    monitor: Any, story: Story
) -> None:
    app, controls = monitor(MEMORY)
    why = Message("the training records a memory history itself")
    async with app.run_test(size=(120, 40)) as pilot:
        for found, words in (
            (Holders("collecting", "allocator history", 20, 600), "who holds it: looking at 20 steps"),
            (Holders("refused", "", 20, 600, why=why), "the training records a memory history itself"),
        ):
            await show(pilot, controls, story, dataclasses.replace(story.memory(), holders=found))
            assert words in text_of(app)


async def test_the_card_is_a_third_curve_while_it_is_apart_from_torch(monitor: Any, story: Story) -> None:
    app, controls = monitor(MEMORY)
    snapshot = story.memory()
    reserved = snapshot.current.reserved_bytes or 0

    def outside(share: float) -> MemorySnapshot:
        used = int(reserved / (1 - share))
        now = dataclasses.replace(snapshot.current, device_used_bytes=used, outside_bytes=used - reserved)
        return dataclasses.replace(snapshot, current=now)

    async with app.run_test(size=(120, 40)) as pilot:
        seen = []
        # Once it is there, a value at the border does not take it away again.
        for share in (0.03, 0.05, 0.03, 0.01, 0.03):
            await show(pilot, controls, story, outside(share))
            seen.append([one.label for one in app.desk.panes[0].curve.picture.curves])
        three, two = ["res", "alloc", "device"], ["res", "alloc"]
        assert seen == [two, three, three, two, two]


async def test_the_mode_stands_in_the_title_and_is_short_where_there_is_no_room(
    monitor: Any, story: Story
) -> None:
    app, controls = monitor(MEMORY, *PLAIN)
    off = dataclasses.replace(story.memory(), reuse=Reuse("off", "empty_cache", 1300.0, 1.04))
    async with app.run_test(size=(120, 40)) as pilot:
        on = (CommandState("memory", "reuse", "on"),)
        await show(pilot, controls, story, off, commands=on)
        assert "reuse across steps off: 1.3 ms/step, ×1.04" in str(app.desk.panes[0].border_title)
        # That its command is on is not said a second time; that it is being switched is.
        assert app.desk.panes[0]._mode_words() == [app.desk.panes[0].mode(off)]
        await show(pilot, controls, story, commands=(CommandState("memory", "reuse", "arming"),))
        assert app.desk.panes[0]._mode_words() == ["reuse arming", "reuse on"]
        await pilot.press("z")
        await show(pilot, controls, story, off)
        assert "reuse across steps off: empty_cache, 1.3 ms/step, ×1.04" in str(
            app.desk.panes[0].border_title
        )
        assert "press r" not in text_of(app)


async def test_the_cursor_hides_the_gaps_of_another_moment(monitor: Any, story: Story) -> None:
    app, controls = monitor(MEMORY)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, story)
        assert "cache " in text_of(app)
        await pilot.press("left_square_bracket", "left_square_bracket")
        assert "at step " in text_of(app)
        assert "in fragments" not in text_of(app)
