"""The overflow pane on the screen: the stream, the choice, the story, the filter, and what a tick costs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from ascend_tui_plugins.overflow.snapshot import Level, OverflowSnapshot
from fake import MEMORY, PLAIN, Story
from overflow_story import (
    CLIMB,
    COMPILED,
    LEVELS,
    OVERFLOW,
    SKIPPED,
    calm,
    climbing,
    hostile,
    inf,
    of_every_kind,
    picture,
)
from textual.app import App, ComposeResult
from textual.widget import Widget

from ascend_tui.frame import CommandState, Cost
from ascend_tui.plugin import Message
from ascend_tui.text import width
from ascend_tui.widgets.feed import Entry, Feed
from ascend_tui.widgets.filter_line import FilterLine
from ascend_tui.widgets.quiet import Quiet


def pane_of(app: Any) -> Any:
    return next(pane for pane in app.desk.panes if pane.loaded.name == "overflow")


def seen(app: Any) -> str:
    """Return what stands on the screen in the pane, each part's rows as far as they are in sight."""
    parts = [one for one in pane_of(app).query(Quiet) if one.display and "notice" not in one.classes]
    return "\n".join(line for one in parts for line in one.as_text()[: one.size.height])


def part(app: Any, name: str) -> str:
    return "\n".join(pane_of(app).query_one(f"#{name}", Quiet).as_text())


async def show(pilot: Any, controls: Any, snapshot: Any, **changes: Any) -> None:
    story = Story()
    story.forward(20)
    plugins = {"memory": story.memory(), "overflow": snapshot}
    controls.deliver(story.frame(plugins=plugins, **{"step": 18_442, **changes}))
    await pilot.pause()
    await pilot.pause()


# The stream.


async def test_the_picture_of_the_design(monitor: Any) -> None:
    app, controls = monitor(MEMORY, OVERFLOW, *PLAIN[:2])
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, picture())
        assert part(app, "feed").splitlines()[:5] == [
            " ! error  18,401  layers.12.mlp.act gelu  Inf  fp16  ×3",
            "         source, likely: layers.12.mlp.up_proj 61,440",
            " · info   18,230  GradScaler skipped a step (normal)",
            " ▲ warn   17,900  layers.12.mlp.up_proj  near limit  fp16",
            "         |x| max 48,128 → 61,440 over 900 steps",
        ]
        assert part(app, "numbers") == "loss     2.31  grad norm     1.20  scale   65,536"
        assert part(app, "words").splitlines() == [
            "! Inf: layers.12.mlp.act   since step 18,398",
            "keep the up projection in fp32, or scale its weights",
            "down",
            "d drill down (op level, 3 steps, +20 %)",
        ]
        assert str(pane_of(app).border_title).endswith("gradients + modules 1/10")
        assert (pane_of(app).size.width, pane_of(app).size.height) == (58, 17)


async def test_at_80_columns_the_same_in_half_the_height(monitor: Any) -> None:
    app, controls = monitor(MEMORY, OVERFLOW, *PLAIN[:2])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("2")
        await show(pilot, controls, picture())
        lines = seen(app).splitlines()
        assert lines[0] == " ! error  18,401  layers.12.mlp.act gelu  Inf  fp16  ×3"
        assert "skipped       12" in part(app, "numbers")
        assert "! Inf: layers.12.mlp.act   since step 18,398" in lines
        assert "d drill down (op level, 3 steps, +20 %)" in lines


@pytest.mark.parametrize(
    ("size", "language"), [((120, 40), "zh_CN"), ((80, 24), "zh_CN"), ((60, 20), "en"), ((200, 50), "en")]
)
@pytest.mark.parametrize("zoomed", [False, True])
async def test_every_kind_fits_and_the_choice_is_always_seen(
    monitor: Any, size: Any, zoomed: bool, language: str
) -> None:
    app, controls = monitor(MEMORY, OVERFLOW, *PLAIN[:2], language=language)
    snapshot = picture(incidents=of_every_kind(), saturates=True, dropped=120)
    async with app.run_test(size=size) as pilot:
        await pilot.press("2", *["z"] * zoomed)
        await show(pilot, controls, snapshot)
        pane = pane_of(app)
        for _ in range(len(snapshot.incidents) + 1):
            chosen = pane.feed.entries[pane.feed.current]
            if pane.feed.chosen is not None:
                marked = [row for row in part(app, "feed").splitlines() if row.startswith("▌")]
                assert len(marked) == len(chosen.lines)
            for one in pane.query(Quiet):
                if one.display:
                    assert len(one.rows) <= max(one.size.height, 1) or one.id == "numbers"
                    assert all(len(row) == one.size.width for row in one.rows)
            assert not pane._fault
            await pilot.press("down")
        assert pane.feed.current == len(snapshot.incidents) - 1


async def test_chinese_lines_are_cut_by_cells(monitor: Any) -> None:
    app, controls = monitor(MEMORY, OVERFLOW, *PLAIN[:2], language="zh_CN")
    path = "模型.解码器.第十二层.前馈网络.上投影.激活函数.很长的名字" * 3
    long = inf(first_seen=dataclasses.replace(inf().first_seen, path=path))
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, picture(incidents=(long,)))
        first = part(app, "feed").splitlines()[0]
        assert width(first) <= 57
        assert first.endswith("Inf  fp16  ×3")
        assert "很长的名字" in first


async def test_nothing_moves_by_itself_and_the_choice_stays_when_new_incidents_come(monitor: Any) -> None:
    app, controls = monitor(OVERFLOW)
    old = tuple(inf(step=step, first_step=step, count=1) for step in range(100, 130))
    new = tuple(inf(step=step, first_step=step, count=1) for step in range(130, 140))
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, picture(incidents=old))
        # While nobody has chosen, the newest stands at the top.
        await show(pilot, controls, picture(incidents=old + new[:1]))
        assert " 130 " in part(app, "feed").splitlines()[0]
        await pilot.press("down", "down", "down")
        before = part(app, "feed").splitlines()
        assert before[4].startswith("▌! error     128")
        await show(pilot, controls, picture(incidents=old + new))
        after = part(app, "feed").splitlines()
        assert after[:-1] == before[:-1]
        assert "↑ 9" in after[-1]
        # Its count grows, it is still the same one.
        grown = [dataclasses.replace(one, count=7, step=500) if one.step == 128 else one for one in old + new]
        await show(pilot, controls, picture(incidents=tuple(grown)))
        assert part(app, "feed").splitlines()[4].startswith("▌! error     500")
        # One that the collector let go is chosen no more.
        await show(pilot, controls, picture(incidents=new))
        assert pane_of(app).feed.chosen is None


async def test_up_from_the_first_follows_the_newest_again(monitor: Any) -> None:
    app, controls = monitor(OVERFLOW)
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, picture())
        await pilot.press("up")
        assert "▌" not in seen(app)
        await pilot.press("down")
        assert part(app, "feed").startswith("▌! error  18,401")
        await pilot.press("down", "down", "down", "down")
        assert pane_of(app).feed.current == 2
        await pilot.press("up", "up", "up")
        assert "▌" not in seen(app)


# The story.


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_zoomed_the_story_of_the_chosen_one_stands_beside_or_below(monitor: Any, size: Any) -> None:
    app, controls = monitor(MEMORY, OVERFLOW, *PLAIN[:2])
    async with app.run_test(size=size) as pilot:
        await pilot.press("2")
        await show(pilot, controls, picture())
        await pilot.press("z")
        await show(pilot, controls, picture())
        feed, story = pane_of(app).feed, pane_of(app).story
        assert part(app, "story").startswith("! error  Inf in layers.12.mlp.act")
        assert "first seen     layers.12.mlp.act" in part(app, "story")
        assert (story.region.x >= feed.region.right) == (size[0] == 120)
        assert (story.region.y >= feed.region.bottom) == (size[0] < 120)
        assert len(story.rows) == story.size.height
        # The keys go on choosing; the pages go through the story, and no further than it goes.
        await pilot.press("down", "down")
        assert part(app, "story").startswith("▲ warn  near limit")
        await pilot.press("up", "up", "pagedown")
        assert "↑" in part(app, "story")
        assert not part(app, "story").startswith("! error")
        await pilot.press(*["pagedown"] * 20)
        assert "↓ 0 lines more" in part(app, "story")
        assert '"path": "layers.12.mlp.up_proj"' in part(app, "story").replace("\n", " ")
        await pilot.press(*["pageup"] * 30, "escape")
        await show(pilot, controls, picture())
        assert not story.display
        assert feed.size.width == pane_of(app).size.width - 1


async def test_the_copy_holds_the_whole_story(monitor: Any) -> None:
    app, controls = monitor(OVERFLOW)
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, picture())
        await pilot.press("z")
        await show(pilot, controls, picture(unseen=(Message("compiled modules were not looked at"),)))
        text = "\n".join(pane_of(app).as_text())
        for words in (
            "▸ 12",
            "layers.12.mlp.up_proj",
            "/home/me/project/model.py:41 Mlp.forward",
            'with torch.autocast("npu", enabled=False):',
            "every input of the activation was finite",
            "compiled modules were not looked at",
        ):
            assert words in text
        assert text.index("model.py:41") < text.index("train.py:160")


# Without incidents.


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_the_empty_state_teaches(monitor: Any, size: Any) -> None:
    app, controls = monitor(MEMORY, OVERFLOW, *PLAIN[:2])
    async with app.run_test(size=size) as pilot:
        await pilot.press("2")
        await show(pilot, controls, calm())
        said = part(app, "words").replace("\n", " ")
        assert said.strip() == (
            "No overflow in 18,442 steps. Watching loss, gradients 1/10. "
            "Press o to watch modules (about +1 %)."
        )
        assert "nearest to the limit of their type" in seen(app)
        assert "61,440   93.8 %" in seen(app)
        await pilot.press("z")
        await show(pilot, controls, calm())
        assert "● gradients    one in 10 steps" in seen(app)
        assert "○ modules      off   press o (about +1 %)" in seen(app)


async def test_no_key_is_offered_that_would_do_nothing(monitor: Any) -> None:
    app, controls = monitor(OVERFLOW)
    async with app.run_test(size=(120, 40)) as pilot:
        for changes in (
            {"state": "exited"},
            {"commands": (CommandState("overflow", "modules", "arming"),)},
        ):
            await show(pilot, controls, calm(), **changes)
            assert "Press o" not in seen(app)
            assert "No overflow in 18,442 steps" in seen(app)


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_a_refused_level_and_a_chip_that_clamps_say_so(monitor: Any, size: Any) -> None:
    app, controls = monitor(MEMORY, OVERFLOW)
    levels = (*LEVELS[:2], Level("modules", why=COMPILED), LEVELS[3])
    async with app.run_test(size=size) as pilot:
        await pilot.press("2", "z")
        await show(pilot, controls, calm(levels=levels, saturates=True))
        said = " ".join(seen(app).split())
        assert (
            "✕ modules off: the model is compiled (torch.compile), and a hook would compile it anew" in said
        )
        assert "this chip clamps: overflow shows as 65,504, not Inf" in said
        assert "modules off" in str(pane_of(app).border_title)
        await pilot.press("escape")
        await show(pilot, controls, calm(levels=levels, saturates=True))
        assert "modules cannot be watched: the model is compiled" in part(app, "words")


async def test_states_of_the_base_and_what_is_missing(monitor: Any) -> None:
    app, controls = monitor(OVERFLOW)
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, OverflowSnapshot())
        assert pane_of(app).notice() == "waiting for data"
        degraded = calm(state="degraded", notes=(Message("the model is compiled"),))
        await show(pilot, controls, degraded)
        assert pane_of(app).notice() == "degraded: the model is compiled"
        await show(pilot, controls, picture(), cost=Cost(thinning=4))
        assert "sampling 1/4: over budget" in str(pane_of(app).border_title)


async def test_the_summary_of_a_pane_without_room(monitor: Any) -> None:
    app, controls = monitor(MEMORY, OVERFLOW, *PLAIN[:2])
    async with app.run_test(size=(60, 20)) as pilot:
        await show(pilot, controls, calm())
        assert pane_of(app).one_line() == "2 Overflow  no overflow; watching loss, gradients 1/10"
        await show(pilot, controls, picture())
        assert pane_of(app).one_line().startswith("2 Overflow  ! error 18,401  Inf: layers.12.mlp.act  ×3")


# The filter and the alerts.


async def test_the_filter_is_of_modules_and_steps(monitor: Any) -> None:
    app, controls = monitor(OVERFLOW)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, picture())
        pane = pane_of(app)
        pane.set_filter("layers.12 18000-19000")
        assert [
            row[:17]
            for row in part(app, "feed").splitlines()
            if ",401" in row or "info" in row or "warn" in row
        ] == [" ! error  18,401 "]
        assert "1 of 3 shown" in part(app, "feed")
        assert "/layers.12 18000-19000 · gradients" in str(pane.border_title)
        pane.set_filter("layers.99")
        await pilot.pause()
        assert "none of 3 incidents fits /layers.99; an empty filter shows all" in seen(app)
        # The verdict is of everything: a filter hides no fault.
        assert "! Inf: layers.12.mlp.act" in part(app, "words")
        pane.set_filter("")
        await pilot.pause()
        assert "GradScaler skipped a step" in part(app, "feed")
        assert "shown" not in part(app, "feed")


async def test_an_alert_leads_to_its_incident_also_past_the_filter(monitor: Any) -> None:
    app, controls = monitor(MEMORY, OVERFLOW)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, picture())
        pane = pane_of(app)
        for step, first in (
            (17_900, "▲ warn   17,900"),
            (18_398, "! error  18,401"),
            (18_400, "! error  18,401"),
        ):
            app.desk.go_to("overflow", step)
            await pilot.pause()
            assert f"▌{first}" in part(app, "feed")
            assert app.desk.chosen is pane
        # Another plugin's alert at a step of which nothing is known here leaves the choice.
        app.desk.go_to("memory", 5)
        assert f"▌{first}" in part(app, "feed")
        pane.set_filter("layers.99")
        app.desk.go_to("overflow", 18_230)
        await pilot.pause()
        assert "▌· info   18,230" in part(app, "feed")
        assert pane.filter_text == ""
        pane.go_to(None)
        assert "▌" not in part(app, "feed")


class Typing(App[None]):
    """A screen of a filter line and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, bool]] = []

    def compose(self) -> ComposeResult:
        yield FilterLine()

    def on_filter_line_typed(self, message: FilterLine.Typed) -> None:
        self.heard.append((message.text, message.is_done))


async def test_what_is_typed_counts_at_once_and_escape_takes_it_back() -> None:
    app = Typing()
    async with app.run_test(size=(60, 20)) as pilot:
        line = app.query_one(FilterLine)
        assert not line.display
        assert app.focused is None
        line.ask("Overflow", "old")
        await pilot.press("x", "enter")
        assert app.heard == [("oldx", False), ("oldx", True)]
        assert not line.display
        app.heard.clear()
        line.ask("Overflow", "old")
        await pilot.press("y", "escape")
        assert app.heard == [("oldy", False), ("old", True)]
        assert not line.display


async def test_a_choice_in_a_list_without_a_size_or_entries_is_survived() -> None:
    feed = Feed()
    feed.move(1)
    feed.show([Entry(1, ("a",))])
    feed.move(1)
    assert feed.chosen == 1
    feed.show([])
    assert feed.chosen is None
    assert feed.layout_rows(10, 3) == []


# Foreign text, and the cost.


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20), (1, 1), (10, 3)])
@pytest.mark.parametrize("zoomed", [False, True])
async def test_hostile_text_is_text(monitor: Any, size: Any, zoomed: bool) -> None:
    app, controls = monitor(OVERFLOW)
    async with app.run_test(size=size) as pilot:
        await show(pilot, controls, hostile())
        if zoomed:
            await pilot.press("z")
        pane = pane_of(app)
        pane.set_filter("[red]\x1b[31m(")
        await show(pilot, controls, hostile())
        pane.set_filter("")
        await show(pilot, controls, hostile())
        assert not pane._fault
        text = "\n".join(pane.as_text()) + seen(app) + str(pane.border_title)
        assert not set(text) & {"\x1b", "\x07", "\u202e", "\r"}
        if size == (120, 40):
            assert "[bold]end" in seen(app)
            assert "␛" in seen(app) or not zoomed


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
@pytest.mark.parametrize("zoomed", [False, True])
async def test_a_tick_that_brings_nothing_new_paints_nothing_and_a_new_line_what_differs(
    monitor: Any, size: Any, zoomed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, controls = monitor(OVERFLOW)
    painted: list[Any] = []
    refresh = Widget.refresh

    def counted(self: Widget, *regions: Any, **options: Any) -> Any:
        painted.append((self, regions, options))
        return refresh(self, *regions, **options)

    async with app.run_test(size=size) as pilot:
        await pilot.press(*["z"] * zoomed)
        for _ in range(3):
            await show(pilot, controls, picture())
        with monkeypatch.context() as patched:
            patched.setattr(Widget, "refresh", counted)
            # As a collector does it: equal, and made anew.
            await show(pilot, controls, picture(incidents=(climbing(), SKIPPED, inf())))
            assert not painted
            await show(pilot, controls, picture(loss=2.3))
            assert [(one.id, regions) for one, regions, _ in painted] == [("numbers", painted[0][1])]
            assert sum(region.width for region in painted[0][1]) <= 2
            painted.clear()
            again = inf(count=4)
            await show(pilot, controls, picture(loss=2.3, incidents=(climbing(), SKIPPED, again)))
            assert {one.id for one, _, _ in painted} <= {"feed", "story"}
            assert all(regions and not options for _, regions, options in painted)
            in_feed = [region for one, regions, _ in painted if one.id == "feed" for region in regions]
            assert [(region.width, region.height) for region in in_feed] == [(1, 1)]


async def test_a_curve_of_one_point_and_one_that_ends_in_inf_are_told(monitor: Any) -> None:
    app, controls = monitor(OVERFLOW)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("z")
        for climb, words in (
            (CLIMB[:1], "layers.12.mlp.up_proj"),
            ((*CLIMB, dataclasses.replace(CLIMB[-1], step=18_402, abs_max=float("inf"))), "48,128 → Inf"),
        ):
            await show(pilot, controls, picture(incidents=(inf(climb=climb),)))
            assert words in part(app, "story")
            assert not pane_of(app)._fault


@pytest.mark.parametrize(
    ("size", "keys", "name"),
    [
        ((120, 40), "2", "picture"),
        ((120, 40), "2z", "picture"),
        ((80, 24), "2z", "picture"),
        ((60, 20), "2", "calm"),
    ],
    ids=["stream-120x40", "story-120x40", "story-80x24", "calm-60x20"],
)
def test_image(snap_compare: Any, monitor: Any, size: Any, keys: str, name: str) -> None:
    app, controls = monitor(MEMORY, OVERFLOW, *PLAIN[:2])
    levels = (*LEVELS[:2], Level("modules", why=COMPILED), LEVELS[3])
    snapshot = picture(dropped=120) if name == "picture" else calm(levels=levels, saturates=True)

    async def before(pilot: Any) -> None:
        await show(pilot, controls, snapshot)
        await pilot.press(*keys)
        await show(pilot, controls, snapshot)

    assert snap_compare(app, run_before=before, terminal_size=size)
