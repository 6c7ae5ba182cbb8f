"""The logs pane on the screen: incidents in place, stories, tables, the filter, and what a tick costs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ascend_tui_plugins.logs.snapshot import LogsSnapshot, Source
from fake import MEMORY, PLAIN, START, Story
from logs_story import (
    LOGS,
    SOURCES,
    calm,
    device_fault,
    halved,
    hostile,
    many,
    picture,
    timeout,
    unreadable,
)
from textual.widget import Widget

from ascend_tui.exporting import save
from ascend_tui.frame import Frame, TargetFrame
from ascend_tui.moments import Moment
from ascend_tui.plugin import Message
from ascend_tui.text import width
from ascend_tui.widgets.quiet import Quiet


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the clock on the screen be the same on every machine."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def pane_of(app: Any) -> Any:
    return next(pane for pane in app.desk.panes if pane.loaded.name == "logs")


def part(app: Any, name: str) -> list[str]:
    return pane_of(app).query_one(f"#{name}", Quiet).as_text()


def seen(app: Any) -> str:
    """Return what stands on the screen in the pane, each part's rows as far as they are in sight."""
    pane = pane_of(app)
    parts = [one for one in pane.query(Quiet) if "notice" not in one.classes and one.display]
    return "\n".join(line for one in parts if one.parent.display for line in one.as_text()[: one.size.height])


def status(app: Any) -> str:
    return "".join("".join(line.as_text()) for line in app.query("StatusLine QuietLine").results(Quiet))


def listed(app: Any) -> list[str]:
    """Return the glyph and the first words of each incident in sight."""
    return [row for row in part(app, "feed") if row[1:2] in ("·", "▲", "!", "✕")]


async def show(
    pilot: Any, controls: Any, snapshot: Any, wall_s: float = START + 60.0, **changes: Any
) -> None:
    story = Story()
    story.forward(20)
    frame = story.frame(plugins={"memory": story.memory(), "logs": snapshot}, **{"step": 18_442, **changes})
    controls.deliver(dataclasses.replace(frame, wall_s=wall_s))
    await pilot.pause()
    await pilot.pause()


# The incidents.


async def test_the_picture_of_the_design(monitor: Any) -> None:
    app, controls = monitor(MEMORY, *PLAIN[:1], *PLAIN[2:], LOGS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, picture())
        assert part(app, "titles") == ["sev        n  incident                      ranks   last"]
        assert part(app, "feed") == [
            " ✕ fatal    1  aivector error: MTE DDR           3  14:14",
            "               address out of range, kernel gather… async",
            " ! error    4  HCCL timeout AllReduce seq      all  14:14",
            "               196",
            " ▲ warn    62  loss scale halved to 1,024          ~14:10",
        ]
        assert part(app, "words") == [
            "run a few steps under mssanitizer --tool=memcheck",
            "loss      2.31  grad_norm       NaN",
            "sources 6: stdout, plog ×4, train.log   0 behind",
            "enter story  v metrics  c sort  [ ] by time",
        ]
        assert str(pane_of(app).border_title).endswith("3 incidents")
        assert (pane_of(app).size.width, pane_of(app).size.height) == (58, 17)


@pytest.mark.parametrize(("size", "language"), [((120, 40), "zh_CN"), ((60, 20), "en")])
@pytest.mark.parametrize("zoomed", [False, True])
@pytest.mark.parametrize("make", [picture, calm, unreadable, many], ids=lambda one: one.__name__)
async def test_every_part_fits_and_the_choice_is_always_seen(
    monitor: Any, size: Any, zoomed: bool, language: str, make: Any
) -> None:
    app, controls = monitor(MEMORY, LOGS, *PLAIN[:2], language=language)
    async with app.run_test(size=size) as pilot:
        await pilot.press("2", *["z"] * zoomed)
        await show(pilot, controls, make())
        pane = pane_of(app)
        for _ in range(4):
            for _ in range(3):
                await pilot.press("down")
                if pane.feed.chosen is not None:
                    chosen = pane.feed.entries[pane.feed.current]
                    marked = [row for row in part(app, "feed") if row.startswith("▌")]
                    assert len(marked) == len(chosen.lines)
                for one in pane.query(Quiet):
                    if one.display and one.parent.display:
                        assert len(one.rows) <= max(one.size.height, 1)
                        assert all(len(row) == one.size.width for row in one.rows)
                assert not pane._fault
            await pilot.press("v")


@pytest.mark.parametrize("height", [6, 9, 16, 40])
@pytest.mark.parametrize("zoomed", [False, True])
async def test_a_band_of_any_height_shows_the_worst_and_the_sources(
    monitor: Any, height: int, zoomed: bool
) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=(120, height)) as pilot:
        await pilot.press(*["z"] * zoomed)
        await show(pilot, controls, picture())
        pane = pane_of(app)
        assert not pane._fault
        used = [one for one in pane.query(Quiet) if one.display and one.parent.display]
        assert max(one.region.bottom for one in used) <= pane.region.bottom
        if height > 7 or not zoomed:
            assert "✕ fatal" in part(app, "feed")[0] or pane.feed.size.height < 2
        assert any("sources 6: stdout" in line for line in part(app, "words"))


async def test_a_row_keeps_its_place_while_its_count_grows(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    first, second = timeout(key="a"), timeout(key="b", headline=Message("second"), last_wall_s=START + 10.0)
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, picture(incidents=(first, second)))
        before = listed(app)
        assert "HCCL" in before[0]
        grown = dataclasses.replace(second, count=71, last_wall_s=START + 300.0)
        await show(pilot, controls, picture(incidents=(first, grown)))
        after = listed(app)
        assert after[0] == before[0]
        assert "second" in after[1]
        assert after[1].split()[2] == "71"
        # What comes in stands where it belongs: before its equals, behind what is worse.
        new = timeout(key="c", headline=Message("third"), last_wall_s=START + 400.0)
        await show(pilot, controls, picture(incidents=(first, grown, new, device_fault())))
        words = [row.split(maxsplit=3)[3][:6] for row in listed(app)]
        assert words == ["aivect", "third ", "HCCL t", "second"]


async def test_nothing_jumps_under_the_choice(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    old = many(40).digest.incidents
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, picture(incidents=old))
        await pilot.press(*["down"] * 6)
        before = part(app, "feed")
        at = next(row for row, line in enumerate(before) if line.startswith("▌"))
        assert "fault 19 " in before[at]
        # Four that are worse come in, one of them the chosen one itself: graver, and not moved.
        new = tuple(
            timeout(severity="fatal", key=f"n{n}", headline=Message.of("new {n}", n=n)) for n in range(4)
        )
        graver = tuple(
            dataclasses.replace(one, severity="fatal", count=9) if one.key == "k18" else one for one in old
        )
        await show(pilot, controls, picture(incidents=(*graver, *new)))
        after = part(app, "feed")
        assert after[at].startswith("▌")
        assert "fault 19 " in after[at]
        await pilot.press(*["up"] * 30)
        rows = listed(app)
        assert {row.split()[3] for row in rows[:4]} == {"new"}
        # One that got graver has moved up to its equals.
        assert any("fault 18 " in row and row.startswith(" ✕") for row in rows)


async def test_when_the_lines_have_no_clock_the_step_or_about_when_it_was_read(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    cases = (
        (timeout(is_clock_known=False), "18,401"),
        (timeout(is_clock_known=False, step=None, last_step=None), "~14:14"),
        (timeout(last_wall_s=None, first_wall_s=None, step=None, last_step=None), "-"),
        (timeout(last_wall_s=START - 5 * 86_400.0), "09-16"),
        (timeout(is_clock_known=False, step=7, last_step=1_234_567), "1.23M"),
    )
    async with app.run_test(size=(80, 24)) as pilot:
        for incident, last in cases:
            await show(pilot, controls, picture(incidents=(incident,)))
            assert listed(app)[0].split()[-1] == last


async def test_ranks_are_short_and_all_are_all(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=(80, 24)) as pilot:
        for ranks, words in (((0, 1, 2, 3, 4, 5, 6), "0-6"), ((3, 1), "1,3"), (range(8), "all"), ((5,), "5")):
            await show(pilot, controls, picture(incidents=(timeout(ranks=tuple(ranks)),)))
            assert listed(app)[0].split()[-2] == words


async def test_the_keys_order_incidents_and_kinds_of_lines(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, picture())
        firsts = []
        for _ in range(3):
            await pilot.press("c")
            firsts.append(listed(app)[0].split()[3])
        assert firsts == ["HCCL", "loss", "aivector"]
        assert "sorted: the worst first" in status(app)
        await pilot.press("v", "c")
        assert "this pane has nothing to sort" in status(app)
        await pilot.press("v")
        assert "new worker" in part(app, "feed")[0]
        await pilot.press("c")
        assert part(app, "feed")[0].startswith(" 9,000  iteration")


# The stories.


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_zoomed_the_story_of_the_chosen_one_stands_beside_or_below(monitor: Any, size: Any) -> None:
    app, controls = monitor(MEMORY, LOGS, *PLAIN[:2])
    async with app.run_test(size=size) as pilot:
        await pilot.press("2")
        await show(pilot, controls, picture())
        await pilot.press("enter")
        await show(pilot, controls, picture())
        story, table = pane_of(app).story, pane_of(app).list
        assert part(app, "story")[0].startswith("✕ fatal  aivector error: MTE DDR")
        assert (story.region.x >= table.region.right) == (size[0] == 120)
        assert (story.region.y >= table.region.bottom) == (size[0] < 120)
        await pilot.press("pagedown")
        assert "↑" in part(app, "story")[-1]
        await pilot.press(*["pagedown"] * 20)
        assert "↓ 0 lines more" in part(app, "story")[-1]
        assert any("kernel_name=gather_v2_71" in line for line in part(app, "story"))
        # A choice begins its story at the top.
        await pilot.press("down", "down")
        assert part(app, "story")[0] == "▲ warn  loss scale halved to 1,024"
        await pilot.press("escape")
        await show(pilot, controls, picture())
        assert not story.display


async def test_the_story_says_what_when_where_why_and_what_to_do(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=(200, 60)) as pilot:
        await pilot.press("z")
        await show(pilot, controls, picture())
        lines = part(app, "story")
        assert lines[1] == "memory access · step 18,401 · 09-21 14:14:00 · rank 3 · device 3"
        text = "\n".join(lines)
        for words in (
            "line        errorStr: The DDR address of the MTE instruction is out of range.",
            "in          plog-41233_202603250614021130.log:212",
            "noticed at  /home/me/project/train.py:212 in train_epoch",
            "code        507035: ",
            "only where the host noticed",
            "kernel  gather_v2_71",
            "· errcode 0x10 is an address out of range",
            "· run a few steps under mssanitizer --tool=memcheck",
            "\n▸ 212  [ERROR] RUNTIME",
            "\n  213  [ERROR] RUNTIME",
        ):
            assert words in text, words
        titles = ["Details", "Why we think so", "What to do", "The lines around it"]
        assert [line for line in lines if line in titles] == titles
        await pilot.press("down")
        lines = part(app, "story")
        assert lines[1] == (
            "communication · steps 18,399 to 18,401 · 09-21 14:13:40 – 09-21 14:14:01 · seen 4 times"
            " · ranks all"
        )
        at = lines.index("Who did what")
        assert lines[at + 1 : at + 3] == [
            "rank 5  AllGather seq 196, the first to wait",
            "rank 0  AllReduce seq 196",
        ]
        await pilot.press("down")
        assert "read at 09-21 14:10:40, the lines have no time of their own" in part(app, "story")[1]


async def test_the_copy_holds_the_whole_list_and_the_whole_story(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=(60, 20)) as pilot:
        await show(pilot, controls, picture())
        assert "loss scale halved" in "\n".join(pane_of(app).as_text())
        await pilot.press("z")
        await show(pilot, controls, picture())
        copied = "\n".join(pane_of(app).as_text())
        for words in (
            "loss scale halved",
            "noticed at",
            "What to do",
            "kernel_name=gather_v2_71",
            "sources 6",
        ):
            assert words in copied, words


# The other tables.


async def test_the_tables_follow_each_other_and_those_without_a_line_are_left_out(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, picture())
        titles = []
        for _ in range(4):
            await pilot.press("v")
            titles.append(part(app, "titles")[0].split()[0])
        assert titles == ["metric", "n", "log", "sev"]
        await pilot.press("v")
        assert str(pane_of(app).border_title).endswith("metrics · 3 incidents")
        # The metrics are gone: incidents stand there again.
        await show(pilot, controls, picture(metrics=()))
        assert part(app, "titles")[0].startswith("sev")
        await show(pilot, controls, LogsSnapshot("live"))
        await pilot.press("v")
        assert "this pane has no other table" in status(app)


async def test_metrics_with_their_extremes_and_their_curve(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("v")
        await show(pilot, controls, picture())
        await pilot.press("v")
        rows = part(app, "feed")
        assert rows[0].split()[:7] == ["=", "loss", "2.31", "steady", "2.10", "11.2", "18,440"]
        assert rows[0].endswith("▁▁▁") or "▁" in rows[0]
        assert rows[1].split()[:5] == ["!", "grad_norm", "NaN", "not", "finite"]
        assert rows[2].split()[:4] == ["▲", "loss_scale", "1,024", "collapsing"]
        await pilot.press("z")
        await show(pilot, controls, picture())
        story = part(app, "story")
        assert story[0] == "= loss  2.31"
        assert "printed as  lm loss" in "\n".join(story)
        assert "Over the steps" in story
        assert story[-1].split() == ["0", "790"]
        await pilot.press("down")
        assert "it was NaN or infinite" in "\n".join(part(app, "story"))


async def test_kinds_of_lines_the_new_ones_first_with_an_example(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, picture())
        await pilot.press("v", "v")
        assert part(app, "feed")[:3] == [
            "     1  new worker <*> came back after <*> s",
            "    12  ▲ [WARN] cache of <*> entries dropped",
            " 9,000  iteration <*> / <*> | lm loss: <*>",
        ]
        await pilot.press("z")
        await show(pilot, controls, picture())
        text = "\n".join(part(app, "story"))
        assert "worker 3 came back after 9 s" in text
        assert "seen for the first time long after the beginning" in text
        assert "stdout, line 9,001" in text
        await pilot.press("down", "down")
        assert "9,000 (48.8 % of all lines)" in "\n".join(part(app, "story"))


async def test_sources_say_how_far_they_were_read_and_why_not(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    waits = Source("open_file", "/x/y.log", behind_bytes=3 * 2**20, read_bytes=2**20, size_bytes=4 * 2**20)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("z")
        await show(pilot, controls, picture(sources=(*SOURCES, waits, *unreadable().sources), behind_s=2.34))
        await pilot.press("v", "v", "v", *["down"] * 5)
        text = "\n".join(part(app, "story"))
        assert "/home/me/run/train.log" in text
        assert "the first 1.00 GiB were there before and are left out" in text
        await pilot.press("down")
        assert "1.00 MiB / 4.00 MiB" in "\n".join(part(app, "story"))
        assert "3.00 MiB" in part(app, "feed")[6]
        await pilot.press("down", "down")
        assert "only root may read it" in "\n".join(part(app, "story"))


# What is read, and how far behind.


async def test_far_behind_is_said_where_it_is(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, picture(behind_s=1.2))
        assert "1.2 s behind" in seen(app)
        assert "behind" not in str(pane_of(app).border_title)
        await show(pilot, controls, picture(behind_s=2.31, is_teed=True))
        assert "2.3 s behind" in seen(app)
        assert str(pane_of(app).border_title).endswith("2.3 s behind · 3 incidents · tee on")


@pytest.mark.parametrize("size", [(120, 40), (60, 20)])
async def test_the_empty_state_teaches(monitor: Any, size: Any) -> None:
    app, controls = monitor(MEMORY, LOGS, *PLAIN[:2])
    async with app.run_test(size=size) as pilot:
        await pilot.press("2")
        await show(pilot, controls, calm())
        said = " ".join(" ".join(part(app, "story")).split())
        assert said.startswith(
            "No incident in 18,442 lines of 6 sources. 12 lines look alarming and are known to be harmless. "
            "● stdout reading 1.24 MiB ● plog ×4 reading 1.60 MiB ● train.log reading 87.9 KiB"
        )
        assert "sources 6: stdout, plog ×4, train.log   0 behind" in seen(app)
        assert pane_of(app).one_line() == "2 Logs  no incident; reading 6 sources"


@pytest.mark.parametrize("size", [(120, 40), (60, 20)])
async def test_nothing_to_read_says_why_and_which_key_helps(monitor: Any, size: Any) -> None:
    app, controls = monitor(MEMORY, LOGS, *PLAIN[:2])
    async with app.run_test(size=size) as pilot:
        await pilot.press("2")
        await show(pilot, controls, unreadable())
        text = " ".join(seen(app).split())
        assert "Nothing can be read of what this process writes." in text
        assert "✕ stdout nothing to read it is a terminal, and what is written there is gone" in text
        assert "✕ plog /root/ascend/log cannot be read only root may read it" in text
        assert "W tee the output (a few microseconds a write)" in text
        # A key that would do nothing is not offered.
        await show(pilot, controls, unreadable(), state="exited")
        assert "W tee" not in seen(app)
        await show(pilot, controls, unreadable(is_teed=True))
        assert "W tee" not in seen(app)


async def test_a_source_that_cannot_be_read_is_said_beside_the_incidents(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, picture(sources=(*SOURCES[1:], *unreadable().sources)))
        words = "\n".join(part(app, "words"))
        assert "stdout: it is a terminal, and what is written there is gone (1 more)" in words
        assert "W tee the output" in words
        assert "sources 5: plog ×4, train.log" in words


async def test_states_of_the_base(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, LogsSnapshot())
        assert pane_of(app).notice() == "waiting for data"
        assert part(app, "story") == ["No line has been read yet."]
        await show(pilot, controls, LogsSnapshot(sources=(Source("plog", "/x", "waiting"),)))
        assert pane_of(app).notice() == ""
        assert part(app, "story")[:2] == ["No log is there yet.", "○ plog /x  not there yet"]
        await show(pilot, controls, picture(state="degraded", reason=Message("the disk is gone")))
        assert pane_of(app).notice() == "degraded: the disk is gone"
        assert "✕ fatal" in seen(app)
        await show(
            pilot, controls, picture(sources=tuple(dataclasses.replace(s, state="ended") for s in SOURCES))
        )
        assert "train.log   ended" in seen(app)


# The filter and the alerts.


async def test_the_filter_is_of_words_names_and_regular_expressions(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, picture())
        pane = pane_of(app)
        await pilot.press("slash", *"sev", "colon", *"err")
        await pilot.pause()
        assert [row.split()[1] for row in listed(app)] == ["fatal", "error"]
        assert part(app, "feed")[-1].strip() == "2 of 3 shown"
        await pilot.press("enter")
        assert str(pane.border_title).endswith("/sev:err · 3 incidents")
        for text, shown in (
            ("/seq \\d+/", ["HCCL"]),
            ("re:errorStr.*MTE", ["aivector"]),
            ("gather_v2_71", ["aivector"]),
            ("cat:comm rank:5", ["HCCL"]),
            ("since:2m", ["aivector", "HCCL"]),
            ("18,400-", ["aivector", "HCCL"]),
            ("code:507", ["aivector"]),
        ):
            pane.set_filter(text)
            await pilot.pause()
            assert [row.split(maxsplit=3)[3].split()[0] for row in listed(app)] == shown, text
        pane.set_filter("zzz")
        await pilot.pause()
        assert "none of 3 incidents fits /zzz; an empty filter shows all" in seen(app)
        pane.set_filter("")
        await pilot.pause()
        assert len(listed(app)) == 3
        assert "shown" not in seen(app)


async def test_a_bad_filter_says_so_and_the_one_before_holds(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, picture())
        pane = pane_of(app)
        pane.set_filter("hccl")
        pane.set_filter("/a(/")
        await pilot.pause()
        words = " ".join(part(app, "words"))
        assert "no regular expression: missing ), unterminated subpattern" in words
        assert "the filter is still /hccl" in words
        assert pane.filter_text == "hccl"
        assert len(listed(app)) == 1
        # One that would take years is given up, and the screen goes on.
        begun = time.perf_counter()
        pane.set_filter("/(([a-z .]+)+)+\\d$/")
        await pilot.pause()
        assert time.perf_counter() - begun < 5.0
        assert "this regular expression takes too long; the filter is still /hccl" in seen(app)
        assert len(listed(app)) == 1
        pane.set_filter("")
        await pilot.pause()
        assert "too long" not in seen(app)


async def test_an_alert_leads_to_its_incident_also_past_filter_and_table(monitor: Any) -> None:
    app, controls = monitor(MEMORY, LOGS)
    far = timeout(step=9_000, last_step=9_100, key="far", headline=Message("far"))
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, picture(incidents=(halved(), far, device_fault())))
        pane = pane_of(app)
        for step, word in ((18_405, "aivector"), (9_050, "far"), (9_130, "far")):
            app.desk.go_to("logs", step)
            await pilot.pause()
            assert app.desk.chosen is pane
            assert next(row for row in part(app, "feed") if row.startswith("▌")).split()[3] == word
        # At a step of which nothing is known here the choice stays.
        app.desk.go_to("memory", 5)
        assert pane._chosen()[1].key == "far"
        pane.set_filter("zzz")
        await pilot.press("2", "v")
        app.desk.go_to("logs", 18_401)
        await pilot.pause()
        assert pane.filter_text == ""
        assert pane._chosen()[1].key == "mte"
        # A moment of that step tells its time.
        pane.take(pane.snapshot, dataclasses.replace(pane.view, moments=(Moment(START - 100.0, 77, "!"),)))
        pane.go_to(77)
        assert pane._chosen()[1].key == "scale"
        pane.go_to(None)
        assert pane.feed.chosen is None


async def test_an_alert_without_a_step_leads_to_what_was_at_its_time(monitor: Any) -> None:
    app, controls = monitor(MEMORY, LOGS)
    long = timeout(
        key="long", step=None, last_step=None, first_wall_s=START - 500.0, last_wall_s=START + 500.0
    )
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, picture(incidents=(long, halved(), device_fault())))
        pane = pane_of(app)
        # Of several that were going on then it is the one that began there.
        for wall_s, key in ((START + 40.0, "mte"), (START - 500.0, "long"), (START - 900.0, "scale")):
            app.desk.go_to("logs", None, wall_s)
            assert pane._chosen()[1].key == key
        pane.go_to_time(START + 9_000.0)
        assert pane._chosen()[1].key == "scale"
        # The log counts its steps in its own way: the time of the alert's step tells more.
        moments = (Moment(START + 40.0, 77, "!"),)
        pane.take(pane.snapshot, dataclasses.replace(pane.view, moments=moments))
        app.desk.go_to("logs", 77)
        assert pane._chosen()[1].key == "mte"


async def test_brackets_go_through_the_incidents_in_time(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, controls, picture())
        keys = []
        for _ in range(4):
            await pilot.press("[")
            keys.append(pane_of(app)._chosen()[1].key)
        assert keys == ["hccl", "mte", "scale", "scale"]
        await pilot.press("]", "]")
        assert pane_of(app)._chosen()[1].key == "hccl"
        await pilot.press("]")
        assert pane_of(app).feed.chosen is None


# Foreign text, and the cost.


@pytest.mark.parametrize("size", [(80, 24), (1, 1)])
@pytest.mark.parametrize("zoomed", [False, True])
async def test_hostile_text_is_text(monitor: Any, size: Any, zoomed: bool) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=size) as pilot:
        await show(pilot, controls, hostile())
        if zoomed:
            await pilot.press("z")
        pane = pane_of(app)
        for filtered in ("[red]\x1b[31m(", "/[/", "since:[", "sev:", "\x1b" * 400, "rank:-", "re:", ""):
            pane.set_filter(filtered)
            await show(pilot, controls, hostile())
            assert not pane._fault
        for _ in range(4):
            for key in ("down", "c", "pagedown", "[", "y"):
                await pilot.press(key)
                assert not pane._fault
            drawn = "\n".join(pane.as_text()) + seen(app) + str(pane.border_title)
            assert not set(drawn) & {"\x1b", "\x07", "\u202e", "\r", "\t"}
            await pilot.press("v")
        if size == (120, 40):
            assert "␛[31m" in seen(app)


async def test_chinese_lines_are_cut_by_cells(monitor: Any) -> None:
    app, controls = monitor(LOGS, language="zh_CN")
    async with app.run_test(size=(60, 20)) as pilot:
        await show(pilot, controls, picture(incidents=(device_fault(headline=Message("通信超时" * 30)),)))
        assert all(width(row) <= 58 for row in part(app, "feed"))
        assert "通信超时" in part(app, "feed")[0]


@pytest.mark.parametrize("size", [(120, 40), (60, 20)])
@pytest.mark.parametrize("zoomed", [False, True])
async def test_a_tick_that_brings_nothing_new_paints_nothing_and_a_count_its_digit(
    monitor: Any, size: Any, zoomed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, controls = monitor(LOGS)
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
            # As a collector does it: equal, and made anew; lines and rates that no word shows.
            await show(pilot, controls, picture(lines=18_500, lines_per_s=31.0, sources=tuple(
                dataclasses.replace(one, read_bytes=one.read_bytes + 999) for one in SOURCES
            )))  # fmt: skip
            assert not painted
            again = timeout(count=5) if zoomed else halved(count=63)
            others = (halved(), again, device_fault()) if zoomed else (again, timeout(), device_fault())
            await show(pilot, controls, picture(incidents=others))
            in_sight = not zoomed or size[0] > 60
            assert {one.id for one, _, _ in painted} == ({"feed"} if in_sight else set())
            assert all(regions and not options for _, regions, options in painted)
            assert [region.width for _, regions, _ in painted for region in regions] == [1] * in_sight


async def test_hundreds_of_incidents_draw_what_is_in_sight(monitor: Any) -> None:
    app, controls = monitor(LOGS)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(pilot, controls, many())
        pane = pane_of(app)
        assert len(pane.feed.rows) == pane.feed.size.height < 40
        assert (
            part(app, "feed")[-1].strip() == f"↑ 0 ↓ {301 - pane.feed.size.height} more  7 older ones let go"
        )
        before = pane._said
        await show(pilot, controls, many())
        assert all(pane._said[key] is entry for key, entry in before.items())


# Files.


def test_the_digest_is_exported_as_files(tmp_path: Path) -> None:
    def export(name: str, data: bytes) -> Path:
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    save(export, Frame(START, (TargetFrame(Story().status(), {"logs": picture()}),)), "<svg/>")
    assert (tmp_path / "logs.md").read_text("utf-8").startswith("# Digest of the logs\n")
    assert '"schema": "ascend-tui/1"' in (tmp_path / "logs.json").read_text("utf-8")


@pytest.mark.parametrize(
    ("size", "keys", "make", "language"),
    [
        ((120, 40), "4", picture, "en"),
        ((120, 40), "4z", picture, "zh_CN"),
        ((80, 24), "4", picture, "en"),
        ((60, 20), "4", calm, "en"),
        ((60, 20), "4", unreadable, "en"),
        ((120, 40), "4vz", picture, "en"),
    ],
    ids=[
        "list-120x40",
        "story-120x40-zh",
        "list-80x24",
        "calm-60x20",
        "unreadable-60x20",
        "metrics-120x40",
    ],
)
def test_image(snap_compare: Any, monitor: Any, size: Any, keys: str, make: Any, language: str) -> None:
    app, controls = monitor(MEMORY, *PLAIN[:1], *PLAIN[2:], LOGS, language=language)

    async def before(pilot: Any) -> None:
        await show(pilot, controls, make())
        await pilot.press(*keys)
        await show(pilot, controls, make())

    assert snap_compare(app, run_before=before, terminal_size=size)
