"""The hotspots pane on the screen: the table, its order and filter, the stories, and what a tick costs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from ascend_tui_plugins.hotspots.snapshot import HotspotsSnapshot, Sampling
from fake import MEMORY, PLAIN, Story
from hotspots_story import HOTSPOTS, KERNELS, MISSING, STORM, cpu, hostile, many, npu, waiting
from textual.widget import Widget

from ascend_tui.exporting import save
from ascend_tui.frame import Cost, Frame, TargetFrame
from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message
from ascend_tui.widgets.quiet import Quiet


def pane_of(app: Any) -> Any:
    return next(pane for pane in app.desk.panes if pane.loaded.name == "hotspots")


def part(app: Any, name: str) -> list[str]:
    return pane_of(app).query_one(f"#{name}", Quiet).as_text()


def seen(app: Any) -> str:
    """Return what stands on the screen in the pane, each part's rows as far as they are in sight."""
    pane = pane_of(app)
    parts = [one for one in pane.query(Quiet) if "notice" not in one.classes and one.display]
    return "\n".join(line for one in parts if one.parent.display for line in one.as_text()[: one.size.height])


async def show(pilot: Any, controls: Any, snapshot: Any, wall_s: float = 0.0, **changes: Any) -> None:
    story = Story()
    story.forward(20)
    plugins = {"memory": story.memory(), "hotspots": snapshot}
    frame = story.frame(plugins=plugins, **{"step": 18_442, **changes})
    if wall_s:
        frame = dataclasses.replace(frame, wall_s=wall_s)
    controls.deliver(frame)
    await pilot.pause()
    await pilot.pause()


# The table.


async def test_the_picture_of_the_design(monitor: Any) -> None:
    app, controls = monitor(MEMORY, *PLAIN[1:2], HOTSPOTS, *PLAIN[2:])
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, npu())
        assert part(app, "titles") == ["op                  share▾    cum  avg us  calls kind"]
        assert part(app, "feed")[:4] == [
            " FlashAtten…nScore   12.4 % 12.4 %     306    320 compute",
            " MatMulV3          ▼  8.7 % 21.1 %     212    324 compute",
            " hcom_allReduce_      7.9 % 29.0 %     195    320 comm",
            " Cast              ▲  6.1 % 35.1 %    18.3  2,640 move",
        ]
        assert part(app, "feed")[-1] == " ↑ 0 ↓ 8 more  12 too small to be listed"
        assert part(app, "words") == [
            "host-bound 18.0 %   device idle 23.4 %",
            "sync: train.py:212 item 1/step  3.10 ms  +1",
            "steps p50 812 ms  p99 1.21 s (of 1,000)  outliers: 2",
            "▲ Cast +31 % since step 1,000: a per-weight cast loop?",
            "p profile now (one step with its operators, shapes and…",
            "c sort  v host operators  z the whole step",
        ]
        assert str(pane_of(app).border_title).endswith("step 18,400 · 1/640 · device times")
        assert (pane_of(app).size.width, pane_of(app).size.height) == (58, 17)


async def test_where_there_is_room_the_bars_make_stairs(monitor: Any) -> None:
    app, controls = monitor(HOTSPOTS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, cpu())
        bars = [row.split()[-1] for row in part(app, "feed")[:4]]
        assert bars == ["████████", "────────████", "────────────██", "──────────────██"]


@pytest.mark.parametrize(
    ("size", "language"), [((120, 40), "zh_CN"), ((80, 24), "zh_CN"), ((60, 20), "en"), ((200, 50), "en")]
)
@pytest.mark.parametrize("zoomed", [False, True])
@pytest.mark.parametrize("make", [npu, cpu, waiting, many], ids=lambda one: one.__name__)
async def test_every_part_fits_and_the_choice_is_always_seen(
    monitor: Any, size: Any, zoomed: bool, language: str, make: Any
) -> None:
    app, controls = monitor(MEMORY, HOTSPOTS, *PLAIN[:2], language=language)
    async with app.run_test(size=size) as pilot:
        await pilot.press("2", *["z"] * zoomed)
        await show(pilot, controls, make())
        pane = pane_of(app)
        for _ in range(6):
            if pane.feed.chosen is not None:
                assert len([row for row in part(app, "feed") if row.startswith("▌")]) == 1
            for one in pane.query(Quiet):
                if one.display and one.parent.display:
                    assert len(one.rows) <= max(one.size.height, 1)
                    assert all(len(row) == one.size.width for row in one.rows)
            assert not pane._fault
            await pilot.press("down")
        if make is not waiting:
            assert pane.feed.current == min(5, len(pane._shown) - 1)


async def test_unknown_is_a_dash_and_never_nought(monitor: Any) -> None:
    app, controls = monitor(HOTSPOTS)
    bare = dataclasses.replace(KERNELS[0], max_us=None, min_us=None, calls=0, avg_us=0.0, change=None)
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, npu(rows=(bare,), host_rows=()))
        assert part(app, "feed")[0].split()[1:] == ["12.4", "%", "12.4", "%", "-", "-", "0", "compute"]


async def test_the_keys_sort_by_what_is_known_and_say_by_what(monitor: Any) -> None:
    app, controls = monitor(MEMORY, HOTSPOTS, *PLAIN[:2])
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("c")
        assert "this pane has nothing to sort" in status(app)
        await pilot.press("2")
        await show(pilot, controls, npu())
        firsts = []
        for order in (
            "time of a call",
            "calls",
            "longest call",
            "change since the baseline",
            "name",
            "share",
        ):
            await pilot.press("c")
            assert f"sorted by {order}" in status(app)
            firsts.append(part(app, "feed")[0].split()[0])
            title = part(app, "titles")[0]
            assert title.count("▾") == 1
        assert firsts == ["AdamW", "Cast", "AdamW", "Cast", "aclnnMatmu…tMulV2", "FlashAtten…nScore"]
        # Of an order in which nothing is known none is made.
        await show(pilot, controls, cpu())
        said = []
        for _ in range(5):
            await pilot.press("c")
            said.append(pane_of(app).order)
        assert said == ["avg", "calls", "max", "name", "share"]


async def test_the_column_of_the_order_is_there_in_a_narrow_pane_too(monitor: Any) -> None:
    app, controls = monitor(MEMORY, HOTSPOTS)
    async with app.run_test(size=(60, 20)) as pilot:
        await pilot.press("2")
        await show(pilot, controls, npu())
        await pilot.press("c", "c", "c")
        assert "max us▾" in part(app, "titles")[0]
        await pilot.press("c")
        assert "± us▾" in part(app, "titles")[0]
        assert "+11,408" in part(app, "feed")[0]
        assert "-13,200" in part(app, "feed")[1]


async def test_rows_keep_their_places_for_some_seconds_while_samples_come(monitor: Any) -> None:
    app, controls = monitor(HOTSPOTS)
    first, second = KERNELS[0], KERNELS[1]
    swapped = (dataclasses.replace(first, self_time_us=1.0), second, *KERNELS[2:])
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, npu(), wall_s=1000.0)
        await show(pilot, controls, npu(rows=swapped), wall_s=1002.0)
        assert part(app, "feed")[0].startswith(" FlashAttention")
        await show(pilot, controls, npu(rows=swapped), wall_s=1006.0)
        assert part(app, "feed")[0].startswith(" MatMulV3")
        # A choice goes with its row.
        await pilot.press("down")
        assert part(app, "feed")[0].startswith("▌MatMulV3")
        await show(pilot, controls, npu(), wall_s=1020.0)
        assert [row for row in part(app, "feed") if row.startswith("▌")] == [
            row for row in part(app, "feed") if "MatMulV3" in row
        ]
        # A row that comes in is shown at once.
        await show(pilot, controls, npu(rows=KERNELS[:3]), wall_s=1021.0)
        assert len(pane_of(app)._shown) == 3


async def test_the_filter_is_of_names_kinds_and_modules(monitor: Any) -> None:
    app, controls = monitor(HOTSPOTS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, npu())
        await pilot.press("slash", *"kind", "colon", *"move")
        await pilot.pause()
        assert [row.split()[0] for row in part(app, "feed") if " move" in row] == [
            "Cast",
            "TransData",
            "MemcpyAsync",
            "Transpose",
        ]
        assert "4 of 17 shown" in part(app, "feed")[-1]
        await pilot.press("enter")
        assert "/kind:move · step 18,400" in str(pane_of(app).border_title)
        pane_of(app).set_filter("layers.12 ")
        assert len(pane_of(app)._shown) == 1
        pane_of(app).set_filter("layers.1")
        await pilot.pause()
        assert "none of 17 operators fits /layers.1; an empty filter shows all" in seen(app)
        # The verdict is of everything.
        assert "host-bound 18.0 %" in seen(app)
        pane_of(app).set_filter("")
        assert len(pane_of(app)._shown) == 17


async def test_host_operators_in_the_place_of_kernels(monitor: Any) -> None:
    app, controls = monitor(MEMORY, HOTSPOTS)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("v")
        assert "this pane has no other table" in status(app)
        await pilot.press("2")
        await show(pilot, controls, npu())
        await pilot.press("v")
        assert "operators on the host" in status(app)
        assert part(app, "feed")[0].startswith(" addmm")
        assert "host times" in str(pane_of(app).border_title)
        assert "too small" not in part(app, "feed")[-1]
        # Where the next sample has one table only, that one is shown.
        await show(pilot, controls, npu(host_rows=()))
        assert part(app, "feed")[0].startswith(" FlashAtten")
        assert "device times" in str(pane_of(app).border_title)
        await pilot.press("v")
        assert "this pane has no other table" in status(app)


# The stories.


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_zoomed_the_whole_step_and_then_one_operator(monitor: Any, size: Any) -> None:
    app, controls = monitor(MEMORY, HOTSPOTS, *PLAIN[:2])
    async with app.run_test(size=size) as pilot:
        await pilot.press("2")
        await show(pilot, controls, npu())
        await pilot.press("enter")
        await show(pilot, controls, npu())
        story, table = pane_of(app).story, pane_of(app).list
        assert part(app, "story")[0] == "The whole step 18,400"
        assert (story.region.x >= table.region.right) == (size[0] == 120)
        assert (story.region.y >= table.region.bottom) == (size[0] < 120)
        await pilot.press("down", "down", "down", "down")
        assert part(app, "story")[0] == "Cast"
        await pilot.press("pagedown")
        assert "↑" in part(app, "story")[-1]
        await pilot.press(*["pagedown"] * 20)
        assert "↓ 0 lines more" in part(app, "story")[-1]
        # A choice begins its story at the top; above the first stands the whole step again.
        await pilot.press("up", "up", "up", "up")
        assert part(app, "story")[0] == "The whole step 18,400"
        await pilot.press("escape")
        await show(pilot, controls, npu())
        assert not story.display


async def test_the_copy_holds_the_whole_table_and_the_whole_story(monitor: Any) -> None:
    app, controls = monitor(HOTSPOTS)
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, npu())
        await pilot.press("z", "down", "down", "down", "down")
        copied = "\n".join(pane_of(app).as_text())
        for words in (
            "EventRecord",
            "FlashAttentionScoreGrad",
            "movement · device times · AI_VECTOR_CORE · step 18,400",
            "▲ +31 % against the baseline since step 1,000",
            "a call 14.1 → 18.3 us (+30 %)",
            "[4096, 11008] float32 → bfloat16",
            "12 more sets of shapes",
            "33.2 %   16.0 ms     640  model.layers.12.mlp.up_proj  forward",
            "no module  optimizer",
            "model.py:88 Mlp.forward",
            "/home/me/project/train.py:160 main",
            "mte2       87.4 %",
            "bound by reading memory (mte2)",
            "320 different weights are cast, each once",
            "cast the weights once, before the first step",
        ):
            assert words in copied, words
        assert copied.index("Why we think so") < copied.index("What to do") < copied.index("Raw")


# Without a table.


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_the_empty_state_teaches(monitor: Any, size: Any) -> None:
    app, controls = monitor(MEMORY, HOTSPOTS, *PLAIN[:2])
    async with app.run_test(size=size) as pilot:
        await pilot.press("2")
        await show(pilot, controls, waiting())
        said = " ".join(" ".join(part(app, "story")).split())
        assert said == (
            "No step has been looked at yet. One step in 640 is looked at. The next one is step 640. "
            "Press p to look at the next step."
        )
        await show(pilot, controls, waiting(sampling=Sampling(False)))
        assert "`ascend-tui do 41233 hotspots.sample on`" in " ".join(part(app, "story"))
        assert str(pane_of(app).border_title).endswith("sampling off")
        why = Message("the training runs a profiler of its own")
        await show(pilot, controls, waiting(sampling=Sampling(True, why=why), missing=(MISSING,)))
        said = " ".join(" ".join(part(app, "story")).split())
        assert "None can be: the training runs a profiler of its own" in said
        assert "Press p" not in said
        assert "they are looked for" in said


async def test_states_of_the_base(monitor: Any) -> None:
    app, controls = monitor(HOTSPOTS)
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, HotspotsSnapshot())
        # Nothing was heard yet: whether steps are sampled is not known.
        assert pane_of(app).notice() == ""
        assert part(app, "story")[:2] == ["No step has been looked at yet.", "waiting for data"]
        await show(pilot, controls, HotspotsSnapshot(runs_on="cpu"))
        assert "Sampling is off" in " ".join(part(app, "story"))
        why = Message("a profiler runs")
        await show(pilot, controls, HotspotsSnapshot("degraded", why, sampling=Sampling(True, why=why)))
        assert pane_of(app).notice() == "degraded: a profiler runs"
        assert part(app, "story") == ["No step has been looked at yet."]
        reason = Message("the training runs a profiler of its own")
        await show(pilot, controls, cpu(state="degraded", reason=reason))
        assert pane_of(app).notice() == "degraded: the training runs a profiler of its own"
        assert part(app, "feed")[0].startswith(" addmm")
        await show(pilot, controls, npu(), cost=Cost(thinning=4))
        assert "1/640, over budget" in str(pane_of(app).border_title)
        await show(pilot, controls, npu(), state="exited")
        assert "p profile now" not in seen(app)
        assert part(app, "feed")[0].startswith(" FlashAttention")


async def test_the_summary_of_a_pane_without_room(monitor: Any) -> None:
    app, controls = monitor(MEMORY, HOTSPOTS, *PLAIN[:2])
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, npu())
        assert pane_of(app).one_line() == (
            "2 Hotspots  FlashAttentionScore 12.4 %, MatMulV3 8.7 %   host-bound 18.0 %"
        )
        await show(pilot, controls, cpu(findings=(STORM,)))
        assert pane_of(app).one_line().startswith("2 Hotspots  addmm 43.7 % (host times)   ▲ Cast +31 %")
        await show(pilot, controls, waiting())
        assert pane_of(app).one_line() == "2 Hotspots  no step has been looked at yet"


# Foreign text, and the cost.


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20), (1, 1), (10, 3)])
@pytest.mark.parametrize("zoomed", [False, True])
async def test_hostile_text_is_text(monitor: Any, size: Any, zoomed: bool) -> None:
    app, controls = monitor(HOTSPOTS)
    async with app.run_test(size=size) as pilot:
        await show(pilot, controls, hostile())
        if zoomed:
            await pilot.press("z")
        pane = pane_of(app)
        for filtered in ("[red]\x1b[31m(", "kind:", "kind:[", "\x1b" * 400, ""):
            pane.set_filter(filtered)
            await show(pilot, controls, hostile())
            assert not pane._fault
        for _ in range(8):
            await pilot.press("down", "c")
            assert not pane._fault
            drawn = "\n".join(pane.as_text()) + seen(app) + str(pane.border_title)
            assert not set(drawn) & {"\x1b", "\x07", "\u202e", "\r", "\t"}
        if size == (120, 40) and not zoomed:
            assert "[bold]end" in seen(app)
            assert "␛[31m" in seen(app)


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
@pytest.mark.parametrize("zoomed", [False, True])
async def test_a_tick_that_brings_nothing_new_paints_nothing_and_a_sample_what_differs(
    monitor: Any, size: Any, zoomed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, controls = monitor(HOTSPOTS)
    painted: list[Any] = []
    refresh = Widget.refresh

    def counted(self: Widget, *regions: Any, **options: Any) -> Any:
        painted.append((self, regions, options))
        return refresh(self, *regions, **options)

    async with app.run_test(size=size) as pilot:
        await pilot.press(*["z"] * zoomed)
        for _ in range(3):
            await show(pilot, controls, npu())
        more = dataclasses.replace(KERNELS[1], calls=325)
        with monkeypatch.context() as patched:
            patched.setattr(Widget, "refresh", counted)
            # As a collector does it: equal, and made anew.
            await show(pilot, controls, npu(rows=tuple(dataclasses.replace(one) for one in KERNELS)))
            assert not painted
            await show(pilot, controls, npu(rows=(KERNELS[0], more, *KERNELS[2:])))
            assert {one.id for one, _, _ in painted} == {"feed"}
            assert [region.width for _, regions, _ in painted for region in regions] == [1]


async def test_a_table_of_500_rows_draws_what_is_in_sight(monitor: Any) -> None:
    app, controls = monitor(HOTSPOTS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, many())
        pane = pane_of(app)
        assert len(pane.feed.rows) == pane.feed.size.height < 40
        await pilot.press("down", *["pagedown"] * 20)
        assert part(app, "feed")[-1].strip() == f"↑ {501 - pane.feed.size.height} ↓ 0 more"
        assert "100 %" in part(app, "feed")[-2]
        before = pane._said
        await show(pilot, controls, many())
        assert all(pane._said[key] is entry for key, entry in before.items())


# Files.


@frozen
class Offering:
    """A snapshot that offers numbers and two files that are ready."""

    state: str = "live"

    def evidence(self) -> dict[str, object]:
        return {"table.csv": 'a,"b\nc"\n', "rows": (1, 2), "odd.md": "\ud800"}


def test_a_text_that_a_snapshot_offers_is_a_file_of_its_name(tmp_path: Path) -> None:
    def export(name: str, data: bytes) -> Path:
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    frame = Frame(1_790_000_000.0, (TargetFrame(Story().status(), {"x": Offering()}),))
    assert save(export, frame, "<svg/>") == tmp_path
    assert (tmp_path / "table.csv").read_text() == 'a,"b\nc"\n'
    assert (tmp_path / "rows.json").read_text() == "[1, 2]\n"
    assert (tmp_path / "odd.md").read_text() == "?"
    assert len(list(tmp_path.iterdir())) == 5


def status(app: Any) -> str:
    return "".join("".join(line.as_text()) for line in app.query("StatusLine QuietLine").results(Quiet))


@pytest.mark.parametrize(
    ("size", "keys", "make"),
    [
        ((120, 40), "2", npu),
        ((120, 40), "2z", npu),
        ((120, 40), "2zdddd", npu),
        ((80, 24), "2", npu),
        ((60, 20), "2", waiting),
    ],
    ids=["table-120x40", "step-120x40", "operator-120x40", "table-80x24", "empty-60x20"],
)
def test_image(snap_compare: Any, monitor: Any, size: Any, keys: str, make: Any) -> None:
    app, controls = monitor(MEMORY, HOTSPOTS, *PLAIN[1:])
    snapshot = make() if make is waiting else make(wall_s=0.0)

    async def before(pilot: Any) -> None:
        await show(pilot, controls, snapshot)
        await pilot.press(*("down" if key == "d" else key for key in keys))
        await show(pilot, controls, snapshot)

    assert snap_compare(app, run_before=before, terminal_size=size)
