"""What the memory pane says: verdict, forecast, mode and tables, at every width and in both languages."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import pytest
from ascend_tui_plugins.memory import holders_view, segments_view
from ascend_tui_plugins.memory.amounts import first_row, second_row
from ascend_tui_plugins.memory.snapshot import (
    Block,
    Forecast,
    Holders,
    MemorySnapshot,
    MemoryValues,
    Oom,
    Ours,
    Reuse,
    Revision,
    Segment,
    Segments,
    Site,
    Slope,
    Verdict,
    VerdictKind,
)
from ascend_tui_plugins.memory.words import forecast_words, lines_of, reuse_words, verdict_line
from fake import COMMANDS, FORECAST, WORKERS, Story, holders, segments

from ascend_tui import text
from ascend_tui.plugin import Message

MIB = 2**20
CAN = {command.name: command for command in COMMANDS}
OOM = Oom(
    step=1204,
    kind="fragmentation",
    requested_bytes=2 * 2**30,
    total_bytes=62 * 2**30,
    free_bytes=2**30,
    allocated_bytes=40 * 2**30,
    reserved_bytes=58 * 2**30,
    outside_bytes=3 * 2**30,
    reason=Message("the free memory is in pieces"),
    advice=Message("a smaller batch does not help"),
)


def plain(lines: Any) -> list[str]:
    """Return lines of spans as text."""
    return [line if isinstance(line, str) else "".join(part for part, _ in line) for line in lines]


def leak(**changes: Any) -> MemorySnapshot:
    story = Story()
    story.forward(50)
    return dataclasses.replace(story.memory(), **changes)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (90, "▲ leak, likely   +3.10 MiB/step (2.90 to 3.30)  since step 120"),
        (56, "▲ leak, likely   +3.10 ±0.20 MiB/step  since step 120"),
        (50, "▲ leak, likely   +3.10 MiB/step  since step 120"),
        (40, "▲ leak, likely   +3.10 ±0.20 MiB/step"),
        (33, "▲ leak, likely   +3.10 MiB/step"),
        (20, "▲ leak, likely"),
    ],
)
def test_the_verdict_says_since_when_before_how_exactly(cells: int, words: str) -> None:
    assert "".join(part for part, _ in verdict_line(leak(), cells)) == words


def test_a_slope_of_another_quantity_is_named() -> None:
    snapshot = leak(
        verdict=Verdict("host_leak", 0.9, 80, Message("x")), slope=Slope("workers", MIB, MIB / 2, 2 * MIB)
    )
    words = "".join(part for part, _ in verdict_line(snapshot, 90))
    assert words == "▲ host memory leak, sure (90.0 %)   workers +1.00 MiB/step (0.50 to 2.00)  since step 80"


@pytest.mark.parametrize(
    ("slope", "words"),
    [
        (Slope("allocated", 100.0, -200.0, 2048.0), "= steady, likely   flat within 2.00 KiB/step"),
        (Slope("allocated", 0.0, 0.0, 0.0), "= steady, likely"),
        (None, "= steady, likely   +3.10 MiB/step"),
    ],
)
def test_steady_names_the_growth_that_it_cannot_exclude(slope: Slope | None, words: str) -> None:
    snapshot = leak(verdict=Verdict("steady", 0.7, None, Message("x")), slope=slope)
    assert "".join(part for part, _ in verdict_line(snapshot, 80)) == words


@pytest.mark.parametrize("kind", get_args(VerdictKind))
def test_every_verdict_has_a_sign_and_a_word(kind: VerdictKind) -> None:
    words = "".join(part for part, _ in verdict_line(leak(verdict=Verdict(kind, 0.5, None, Message("x"))), 9))
    assert words[0] in "=▲·!?"
    assert ("likely" in words) == (kind != "undecided")


@pytest.mark.parametrize(
    ("forecast", "cells", "words"),
    [
        (FORECAST, 90, "full in 2 h 10 min (1 h 50 min to 2 h 40 min), at step 31,000 (28,000 to 36,000)"),
        (FORECAST, 70, "full in 2 h 10 min (1 h 50 min to 2 h 40 min), at step 31,000"),
        (FORECAST, 50, "full in 2 h 10 min (1 h 50 min to 2 h 40 min)"),
        (FORECAST, 30, "full in 2 h 10 min"),
        (FORECAST, 10, ""),
        (Forecast("rss", 9000, 8000, None, 86_400.0, 80_000.0, None), 60, None),
        (
            Forecast("allocated", 9000, 8000, 10_000, None, None, None),
            60,
            "full at step 9,000 (8,000 to 10,000)",
        ),
        (
            Forecast("allocated", 29_114, 28_933, 29_342, 8220.0, 8160.0, 8280.0),
            90,
            "full in 2 h 17 min (2 h 16 min to 2 h 18 min), at step 29,100 (28,900 to 29,300)",
        ),
        (Forecast("allocated", 2101, 2101, 2101, 1.0, 1.0, 1.0), 40, "full in 1 s, at step 2,101"),
        (Forecast("allocated", 2101, 2100, 2102, 1.0, 0.0, 2.0), 30, "full in 1 s (0 s to 2 s)"),
        (Forecast("allocated", 9000, 8000, 9500, float("inf"), 1.0, None), 30, "full at step 9,000"),
        (
            Forecast("allocated", 9000, 8000, None, 1e12, 86_400.0, None),
            90,
            "full in more than a year (24 h 00 min or later), at step 9,000 (8,000 or later)",
        ),
        (None, 90, ""),
    ],
)
def test_the_forecast_has_its_range_and_no_more_digits_than_it_knows(
    forecast: Forecast | None, cells: int, words: str | None
) -> None:
    if words is None:
        words = "host memory full in 24 h 00 min (22 h 13 min or later)"
    assert forecast_words(forecast, 2100, cells) == words


@pytest.mark.parametrize(
    ("reuse", "cells", "words"),
    [
        (Reuse("on"), 40, "reuse on"),
        (Reuse("none"), 40, ""),
        (
            Reuse("off", "empty_cache", 1300.0, 1.04),
            60,
            "reuse across steps off: empty_cache, 1.3 ms/step, ×1.04",
        ),
        (Reuse("off", "empty_cache", 1300.0, 1.04), 44, "reuse across steps off: 1.3 ms/step, ×1.04"),
        (Reuse("off", "empty_cache", 1300.0, 1.04), 30, "reuse across steps off: ×1.04"),
        (Reuse("off", "empty_cache", 1300.0, 1.04), 22, "reuse across steps off"),
        (Reuse("off", "empty_cache", 1300.0, 1.04), 12, "reuse off"),
        (Reuse("off", "empty_cache"), 60, "reuse across steps off: empty_cache"),
        (
            Reuse("off", "caching_allocator_enable", None, 1.5),
            60,
            "reuse off: caching_allocator_enable, ×1.50",
        ),
        (Reuse("off", "malloc_trim", 340.0), 60, "trimming each step: malloc_trim, 340 µs/step"),
        (Reuse("off", at_launch=True), 60, "reuse off at launch: counters blind, curve is the card"),
        (Reuse("off", at_launch=True), 30, "reuse off at launch"),
    ],
)
def test_the_mode_is_what_is_really_done_and_its_cost(reuse: Reuse, cells: int, words: str) -> None:
    assert reuse_words(reuse, cells) == words


def test_reuse_that_is_off_in_some_steps_only_is_not_called_off() -> None:
    thin = Reuse("off", "empty_cache", cost_us=17_000.0, slower=1.04, every=8)
    assert (
        reuse_words(thin, 90)
        == "reuse across steps off in one of 8 steps: empty_cache, 17 ms each time, ×1.04"
    )
    assert "one of 8" in reuse_words(thin, 50)


def test_what_a_check_of_ours_has_added_is_said_and_how_much_it_was() -> None:
    ours = Ours("rss", 19 << 20, "overflow.ops", 1527)
    said = "overflow.ops ran at step 1,527: not counted as growth"
    on_cpu = dataclasses.replace(leak(), device="cpu", lead="rss", ours=ours)
    assert f"  +19.0 MiB while {said}" in plain(lines_of(on_cpu, 90, 9, 1600, {}))
    beside = dataclasses.replace(leak(), ours=ours)
    assert f"  host rss +19.0 MiB while {said}" in plain(lines_of(beside, 90, 9, 1600, {}))


def test_few_rows_keep_what_tells_most_and_a_cut_sentence_says_so() -> None:
    snapshot = leak(revision=Revision("cache", "leak", 512))
    assert plain(lines_of(snapshot, 56, 8, 150, CAN)) == [
        "▲ leak, likely   +3.10 ±0.20 MiB/step  since step 120",
        "  full in 2 h 10 min (1 h 50 min to 2 h 40 min)",
        "  at step 31,000 (28,000 to 36,000)",
        "  live tensors grow by 3.10 MiB a step, all the time:",
        "  no cache does that",
        "  was cache, not a leak until step 512",
        "  press w: which lines keep what they allocate",
        "  reuse on: press r, only what still climbs is a leak",
    ]
    assert plain(lines_of(snapshot, 56, 3, 150, CAN)) == [
        "▲ leak, likely   +3.10 ±0.20 MiB/step  since step 120",
        "  full in 2 h 10 min (1 h 50 min to 2 h 40 min)",
        "  live tensors grow by 3.10 MiB a step, all the time:…",
    ]
    assert plain(lines_of(snapshot, 70, 1, 150, CAN)) == [
        "▲ leak, likely   +3.10 MiB/step   full in 2 h 10 min"
    ]


def test_the_site_that_grows_most_stands_with_the_verdict() -> None:
    shown = plain(lines_of(leak(holders=holders()), 56, 4, 150, CAN))
    assert "  train.py:88 log_loss  +4.10 MiB/step" in shown
    assert not any("press w" in line for line in plain(lines_of(leak(holders=holders()), 56, 9, 150, CAN)))


@pytest.mark.parametrize(
    ("can", "reuse", "settles", "wanted", "unwanted"),
    [
        (CAN, "on", "w", ("press w", "press r"), ()),
        ({}, "on", "w", (), ("press",)),
        ({"reuse": CAN["reuse"]}, "on", "w", ("press r",), ("press w",)),
        (CAN, "off", "w", ("press w",), ("press r",)),
        (CAN, "off", "r", (), ("reuse on",)),
    ],
)
def test_a_key_is_named_only_where_it_does_something(
    can: Any, reuse: Any, settles: str, wanted: tuple[str, ...], unwanted: tuple[str, ...]
) -> None:
    message = Message.of("press {key}: this settles it", key=settles)
    snapshot = leak(verdict=Verdict("leak", 0.7, 120, Message("x"), message), reuse=Reuse(reuse))
    shown = "\n".join(plain(lines_of(snapshot, 90, 9, 150, can)))
    assert all(words in shown for words in wanted)
    assert not any(words in shown for words in unwanted)


def test_the_moment_of_an_error_comes_first_with_its_own_numbers() -> None:
    shown = plain(lines_of(leak(oom=OOM), 110, 9, 150, CAN))
    assert shown[:4] == [
        "! out of memory at step 1,204: fragmentation",
        "  the free memory is in pieces",
        "  asked for 2.00 GiB  free 1.00 GiB  allocated 40.0 GiB  reserved 58.0 GiB  outside torch 3.00 GiB",
        "  in all 62.0 GiB",
    ]
    assert "  a smaller batch does not help" in shown
    assert plain(lines_of(leak(oom=OOM), 110, 1, 150, CAN))[0].startswith("! out of memory at step 1,204")
    assert plain(lines_of(leak(oom=OOM), 110, 2, 150, CAN))[0].startswith("! out of memory at step 1,204")


def test_the_gaps_between_the_curves_and_the_host_are_named() -> None:
    now = MemoryValues(
        allocated_bytes=41 * 2**30,
        active_bytes=42 * 2**30,
        reserved_bytes=58 * 2**30,
        device_used_bytes=60 * 2**30,
        outside_bytes=2 * 2**30,
        rss_bytes=9 * 2**30,
        inactive_split_bytes=2**30,
        workers_rss_bytes=2 * 2**30,
        pinned_bytes=2**28,
    )
    snapshot = leak(current=now, workers=WORKERS)
    first, second = plain([first_row(snapshot, None, 60, True), second_row(snapshot, 120)])
    assert first == "allocated 41.0  active 42.0  reserved 58.0  device 60.0 GiB"
    assert second == (
        "cache 17.0 GiB  in fragments 1.00 GiB  outside torch 2.00 GiB  host rss 9.00 GiB  2 workers 2.00 GiB"
        "  pinned 256 MiB"
    )
    none = dataclasses.replace(
        snapshot, current=dataclasses.replace(now, workers_rss_bytes=0, pinned_bytes=0)
    )
    assert plain([second_row(none, 120)]) == [second.partition("  2 workers")[0]]
    assert plain([second_row(snapshot, 40)]) == ["cache 17.0 GiB  in fragments 1.00 GiB"]
    at = ("at step 7", [("allocated", 2.0**30)])
    assert plain([first_row(snapshot, at, 60, True)]) == ["at step 7  allocated 1.00 GiB"]


# The tables.


def test_the_table_of_holders_gives_up_columns_and_keeps_the_end_of_a_path() -> None:
    wide, middle, narrow = (plain(holders_view.lines_of(holders(), cells)) for cells in (116, 76, 40))
    assert wide[1].split() == ["site", "function", "a", "step", "alive", "blocks", "age,", "steps"]
    assert wide[2].split() == [
        "/home/me/long/path/to/a/project/train.py:88", "log_loss", "+4.10", "MiB", "82.0", "MiB", "20", "19"
    ]  # fmt: skip
    assert "↳ kept with its graph" in wide[3]
    assert "all other sites: 3.00 MiB alive" in wide
    assert wide[-3].endswith("train.py:88 log_loss")
    row = next(line for line in middle if "log_loss" in line)
    assert row.startswith("…")
    assert "train.py:88 log_loss" in row
    assert "82.0 MiB" in row
    row = next(line for line in narrow if "+4.10 MiB" in line)
    assert row.startswith("…")
    assert "train.py:88" in row
    assert all(text.width(line) <= 40 for line in narrow)


def test_what_a_target_names_is_text() -> None:
    shown = "\n".join(plain(holders_view.lines_of(holders(), 116)))
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "/tmp/[red]␛[31m数据 集.py:7" in shown
    assert "[bold]进程" in shown


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Holders("collecting", "allocator history", 20, 5), "who holds it: looking at 20 steps"),
        (
            Holders("refused", "", 20, 5, why=Message("the training records a memory history itself")),
            "who holds it: the training records a memory history itself",
        ),
        (Holders("refused", "", 20, 5), "who holds it: refused"),
    ],
)
def test_what_is_not_known_of_the_holders_is_said(found: Holders, words: str) -> None:
    assert plain(holders_view.lines_of(found, 90)) == [words]
    assert plain([holders_view.first_site(found, 90)]) == [words]


def test_that_nothing_is_held_is_said_and_is_no_line_of_the_verdict() -> None:
    found = Holders("done", "weak references", 20, 5)
    assert plain(holders_view.lines_of(found, 90)) == [
        "who holds what the 20 steps up to step 5 allocated, by weak references",
        "nothing that these steps allocated is still held",
    ]
    assert holders_view.first_site(found, 90) == []
    shrinks = Holders("done", "weak references", 20, 5, (Site("x", "a.py", 1, "f", -5.0, 10, 1, 3),))
    assert holders_view.first_site(shrinks, 90) == []


def test_a_small_block_that_pins_a_segment_is_seen() -> None:
    shown = plain(segments_view.lines_of(segments(), 100, unicode=True))
    assert shown[0] == "9 segments at step 2,080: 1.77 GiB reserved, 70.6 % of it in use"
    full, waits, pinned, free = shown[-5:-1]
    assert full.partition("▏")[2].partition("▕")[0].strip("█") == ""
    assert "▒▒▒" in waits
    bar = pinned.partition("▏")[2].partition("▕")[0]
    assert bar.strip() == "▁"
    assert pinned.endswith("pinned by little")
    assert free.partition("▏")[2].partition("▕")[0].strip() == ""
    assert free.endswith("can go back")
    assert shown[-1] == "5 smaller segments are not drawn"
    widths = {text.width(line.partition("▕")[0]) for line in (full, waits, pinned, free)}
    assert len(widths) == 1


def test_a_terminal_without_blocks_gets_ascii() -> None:
    shown = "\n".join(plain(segments_view.lines_of(segments(), 100, unicode=False)[2:]))
    assert "[####" in shown
    assert shown.isascii()


@pytest.mark.parametrize(
    "segment",
    [
        Segment(0, 0, 0, ()),
        Segment(2 * MIB, 0, 0, (Block(0, "active"),)),
        Segment(2 * MIB, MIB, 0, (Block(-5, "active"), Block(MIB, "strange"), Block(MIB, "free"))),  # type: ignore[arg-type]
        Segment(2 * MIB, MIB, 0, tuple(Block(1, "active") for _ in range(5000))),
    ],
)
def test_a_segment_that_makes_no_sense_is_drawn_all_the_same(segment: Segment) -> None:
    found = Segments(1, 0, 0, 0, 0, 0, 0, 0, 0, (segment,))
    for cells in (1, 20, 40, 80, 300):
        assert segments_view.lines_of(found, cells)


@pytest.mark.parametrize("language", ["en", "zh_CN"])
def test_no_width_and_no_number_of_rows_is_too_small(language: str) -> None:
    text.set_language(language)
    everything = leak(
        holders=holders(),
        segments=segments(),
        oom=OOM,
        revision=Revision("cache", "leak", None),
        workers=WORKERS,
    )
    for cells in (1, 2, 5, 9, 17, 33, 58, 78, 118, 198):
        for rows in range(1, 9):
            assert len(lines_of(everything, cells, rows, None, CAN)) <= rows
        for line in plain(holders_view.lines_of(holders(), cells)[-8:]):
            assert cells < 20 or text.width(line) <= cells
        for line in plain(segments_view.lines_of(segments(), cells)):
            assert cells < 58 or text.width(line) <= cells
        second_row(everything, cells)
        assert first_row(everything, None, cells, True)
