"""What the logs pane says: numbers and moments, the filter, the order, the last lines, and its stories."""

from __future__ import annotations

import dataclasses
import math
import re
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from ascend_tui_plugins.logs.snapshot import (
    Digest,
    Fact,
    Incident,
    LogsSnapshot,
    Metric,
    Raw,
    Source,
    Template,
)
from ascend_tui_plugins.logs.telling import code_words, when_words
from ascend_tui_plugins.logs.views import (
    context_view,
    curve_view,
    detail_view,
    list_view,
    table_stories,
    words,
)
from ascend_tui_plugins.logs.views.figures import (
    clock,
    last_of,
    moment,
    number,
    plain,
    ranks_of,
    source_name,
    spark,
    tally,
    worst,
)
from ascend_tui_plugins.logs.views.filtering import Filter, NotAFilter, parse
from ascend_tui_plugins.logs.views.holding import HOLD_S, Places, keyed, next_order
from ascend_tui_plugins.logs.views.patience import TooSlow, within
from ascend_tui_plugins.logs.views.sieve import Sieve

from ascend_tui import text
from ascend_tui.plugin import Command, Lease, Message
from ascend_tui.text import width
from ascend_tui.widgets.quiet import Line

NOW = 1_790_000_000.0
TEE = Command("tee", "tee the output", "a few microseconds a write", Lease(1, 1.0), hotkey="W")


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
    text.set_language("en")


def incident(**changes: Any) -> Incident:
    fields: dict[str, Any] = {
        "severity": "error",
        "category": "communication",
        "headline": Message.of("HCCL timeout, group {group}", group="tp_0"),
        "key": "hccl",
    }
    return Incident(**{**fields, **changes})


def said(lines: list[Line]) -> list[str]:
    return [line if isinstance(line, str) else "".join(part for part, _ in line).rstrip() for line in lines]


# Figures.


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (62, "62"),
        (9_999, "9,999"),
        (12_000, "12.0k"),
        (123_456, "123k"),
        (4.2e6, "4.20M"),
        (8e13, ">999G"),
    ],
)
def test_counts_in_five_cells(value: float, shown: str) -> None:
    assert tally(value) == shown
    assert width(shown) <= 5


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (math.nan, "NaN"),
        (-math.inf, "-Inf"),
        (0.0, "0"),
        (2.314, "2.31"),
        (0.0625, "0.0625"),
        (3.0e-4, "3.00e-4"),
        (65_536.0, "65,536"),
        (2.5e31, "2.50e31"),
        (-1024.0, "-1,024"),
        (1e-323, "9.88e-324"),
    ],
)
def test_metric_values_in_nine_cells(value: float | None, shown: str) -> None:
    assert number(value) == shown
    assert width(shown) <= 9


def test_ranks_as_ranges() -> None:
    assert ranks_of((7, 0, 1, 2, 2, 5)) == "0-2,5,7"
    assert ranks_of((0, 2, 4, 6, 8)) == "0,2,4,6…"
    assert ranks_of(tuple(range(8)), 8) == "all"
    assert ranks_of((0,), 1) == "0"
    assert ranks_of(()) == ""


def test_moments_of_today_and_of_other_days() -> None:
    assert clock(NOW) == "14:13"
    assert clock(NOW, NOW + 80_000) == "14:13"
    assert clock(NOW, NOW + 90_000) == "09-21"
    assert moment(NOW) == "09-21 14:13:20"
    for wall_s in (None, math.nan, math.inf, -5.0, 1e300):
        assert clock(wall_s) == "-"
        assert moment(wall_s) == ""


def test_when_an_incident_was_last_told_of() -> None:
    assert last_of(incident(is_clock_known=True, last_wall_s=NOW, step=5)) == "14:13"
    assert last_of(incident(last_wall_s=NOW, step=5)) == "5"
    assert last_of(incident(last_wall_s=NOW, step=5, last_step=90)) == "90"
    assert last_of(incident(last_wall_s=NOW)) == "~14:13"
    assert last_of(incident()) == "-"


def test_a_line_of_blocks_between_the_extremes() -> None:
    assert spark([1.0, 2.0, math.nan, 3.0], 8) == "▁▅!█"
    assert spark([1.0, 9.0, 9.0], 2) == "▁▁"
    assert spark([5.0, 5.0], 8) == "▁▁"
    assert spark([-1e308, 1e308], 8) == "▁▁"
    assert spark([], 8) == spark([1.0], 0) == ""
    assert spark([0.0, 1.0], 8, unicode=False).isascii()


def test_the_worst_and_of_equals_the_newest() -> None:
    old, new = incident(last_wall_s=NOW), incident(last_wall_s=NOW + 1, key="b")
    assert worst((new, old, incident(severity="warning", last_wall_s=NOW + 9))) is new
    assert worst((old, incident(severity="odd"))) is old
    assert worst(()) is None


def test_names_of_sources() -> None:
    assert source_name(Source("stdout", "/proc/7/fd/1")) == "stdout"
    assert source_name(Source("plog", "/a/b/plog-7_2.log")) == "plog-7_2.log"
    assert source_name(Source("launcher", "/a/b/")) == "b"
    assert source_name(None) == ""


# The filter.

LATE = incident(
    severity="fatal",
    category="oom",
    headline=Message("NPU out of memory"),
    code="EL0004",
    step=100,
    last_step=120,
    ranks=(3, 4),
    last_wall_s=NOW - 30.0,
    text="Tried to allocate 2.00 GiB",
    place="train.py:88 in step",
    facts=(Fact("error_code", 207001), Fact("chip", 1)),
    context=(Raw(7, "halMemAlloc failed, ret[207001]"),),
)


@pytest.mark.parametrize(
    ("typed", "fits"),
    [
        ("", True),
        ("memory", True),
        ("MEMORY out", True),
        ("memory hccl", False),
        ("halmemalloc", True),
        ("train.py:88", True),
        ("chip 1", True),
        ("sev:error", True),
        ("sev:f", True),
        ("cat:oom", True),
        ("cat:out", True),
        ("cat:device", False),
        ("cat:device,oom", True),
        ("rank:3", True),
        ("rank:0-2", False),
        ("rank:0-2,4", True),
        ("code:el0004", True),
        ("code:2070", True),
        ("code:507", False),
        ("since:1m", True),
        ("since:20s", False),
        ("since:1", True),
        ("110-", True),
        ("-99", False),
        ("121-130", False),
        ("90,000-", False),
        ("step:100", True),
        ("/ret\\[\\d+\\]/", True),
        ("/^tried/", True),
        ("/GiB$/ sev:fatal", True),
        ("/x{9}/", False),
        ("/gib", True),
        ("re:allocate \\d", True),
        ("sev:error re:allocate \\d", True),
        ("sev：fatal rank：4", True),
        ("sev:", True),
        ("re:", True),
        ("7", True),
        ("2.00", True),
    ],
)
def test_what_a_filter_lets_through(typed: str, fits: bool) -> None:
    assert parse(typed).fits(LATE, NOW) is fits
    assert parse(typed).text == typed


def test_a_filter_of_severity_is_the_least_and_in_any_language() -> None:
    assert not parse("sev:error").fits(incident(severity="warning"))
    assert parse("sev:warn").fits(incident(severity="warning"))
    text.set_language("zh_CN")
    assert parse("sev:错").least == "error"
    assert parse("sev:error").least == "error"


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("/a(/", "no regular expression: missing ), unterminated subpattern at position 1"),
        ("re:*", "no regular expression: nothing to repeat at position 0"),
        ("sev:bad", "sev: is one of info, warning, error, fatal"),
        ("rank:x", "rank: needs a number or a range, such as 0-3"),
        ("rank:" + "9" * 400, "rank: needs a number or a range, such as 0-3"),
        ("since:soon", "since: needs a time, such as 90s, 10m, 2h"),
    ],
)
def test_what_is_no_filter_says_why(typed: str, words: str) -> None:
    with pytest.raises(NotAFilter) as caught:
        parse(typed)
    assert text.say(caught.value.message) == words


def test_a_filter_of_the_other_tables() -> None:
    loss = Metric("loss", "lm loss", 1.0, 500)
    line = Template("worker <*> came back", 3, "worker 7 came back", 1, 9)
    place = Source("plog", "/a/plog-7.log", rank=2)
    assert parse("lm").fits(loss)
    assert not parse("lm 600-").fits(loss)
    assert parse("400-600").fits(loss)
    assert parse("/worker \\d/").fits(line)
    assert parse("rank:2 plog").fits(place)
    assert not parse("rank:3").fits(place)
    # What only an incident has lets nothing else through.
    assert not any(parse("sev:info").fits(one) for one in (loss, line, place))


def test_a_filter_that_is_wrong_or_too_slow_leaves_the_one_before() -> None:
    sieve = Sieve()
    every = {1: LATE, 2: incident()}
    sieve.set("memory")
    assert list(sieve.through(every, NOW)) == [1]
    sieve.set("/(/")
    assert list(sieve.through(every, NOW)) == [1]
    assert sieve.words().endswith("; the filter is still /memory")
    begun = time.perf_counter()
    sieve.set("/(([a-z ]+)+)+\\d$/")
    assert list(sieve.through(every, NOW)) == [1]
    assert time.perf_counter() - begun < 5.0
    assert sieve.filter.text == "memory"
    assert sieve.words() == "this regular expression takes too long; the filter is still /memory"
    sieve.clear()
    assert (list(sieve.through(every, NOW)), sieve.words()) == ([1, 2], "")


def test_a_line_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    fits = Filter.fits
    monkeypatch.setattr(Filter, "fits", lambda self, one, now_s: looked.append(one) or fits(self, one, now_s))
    sieve = Sieve()
    sieve.set("memory")
    for _ in range(3):
        sieve.through({1: LATE, 2: dataclasses.replace(LATE)}, NOW)
    assert len(looked) == 2
    # What depends on the time has to be looked at each time.
    sieve.set("since:1m")
    assert len(sieve.through({1: LATE}, NOW)) == 1
    assert not sieve.through({1: LATE}, NOW + 60.0)


def test_an_alarm_of_somebody_else_is_set_again() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    running = signal.getitimer(signal.ITIMER_REAL)
    try:
        signal.setitimer(signal.ITIMER_REAL, 3.0)
        with pytest.raises(TooSlow), within(0.05):
            re.search(r"(a+)+$", "a" * 60 + "b")
        left_s = signal.getitimer(signal.ITIMER_REAL)[0]
        assert 0 < left_s < 3.0
        # One that is due sooner stays what it is.
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with within(60.0):
            time.sleep(0.2)
        assert heard == [signal.SIGALRM]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *running)


def test_in_another_thread_there_is_no_limit_and_no_fault() -> None:
    done: list[int] = []

    def work() -> None:
        with within(0.001):
            time.sleep(0.05)
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [1]


# The order.


def places(keeper: Places, shown: list[Incident], order: str = "worst", chosen: Any = None) -> str:
    found = keyed("incidents", shown)
    names = {key: one.key for key, one in found.items()}
    return "".join(names[key] for key in keeper.keys("incidents", order, found, NOW, chosen))


def test_new_lines_are_put_where_they_belong_and_old_ones_stay() -> None:
    keeper = Places()
    a, b = incident(key="a", last_wall_s=5.0), incident(key="b", last_wall_s=9.0)
    assert places(keeper, [a, b]) == "ba"
    a = dataclasses.replace(a, count=50, last_wall_s=99.0)
    assert places(keeper, [a, b]) == "ba"
    c = incident(key="c", severity="fatal", last_wall_s=1.0)
    d = incident(key="d", severity="info", last_wall_s=100.0)
    assert places(keeper, [a, b, c, d]) == "cbad"
    assert places(keeper, [a, d]) == "ad"
    assert places(keeper, [a, b, d], "newest") == "dab"
    assert places(keeper, [a, b, d], "count") == "abd"


def test_what_gets_graver_goes_up_unless_it_is_chosen() -> None:
    keeper = Places()
    shown = [incident(key=name, last_wall_s=9.0 - at) for at, name in enumerate("abc")]
    assert places(keeper, shown) == "abc"
    graver = [*shown[:2], dataclasses.replace(shown[2], severity="fatal")]
    chosen = next(key for key, one in keyed("incidents", graver).items() if one.key == "c")
    assert places(keeper, graver, chosen=chosen) == "abc"
    keeper = Places()
    assert places(keeper, shown) == "abc"
    assert places(keeper, graver) == "cab"


def test_templates_are_ordered_anew_now_and_then_while_none_is_chosen() -> None:
    def order(counts: dict[str, int], now_s: float, chosen: Any = None) -> list[str]:
        found = keyed("templates", [Template(name, n, name, 1, 1) for name, n in counts.items()])
        return [found[key].text for key in keeper.keys("templates", "count", found, now_s, chosen)]

    keeper = Places()
    assert order({"a": 1, "b": 2}, 100.0) == ["b", "a"]
    assert order({"a": 9, "b": 2}, 101.0) == ["b", "a"]
    assert order({"a": 9, "b": 2}, 101.0 + HOLD_S, chosen="x") == ["b", "a"]
    assert order({"a": 9, "b": 2}, 101.0 + HOLD_S) == ["a", "b"]


def test_twins_have_keys_of_their_own() -> None:
    assert len(keyed("incidents", [incident(), incident(), incident(key="")])) == 3
    assert len(keyed("metrics", [Metric("a", "b", 1.0, 1), Metric("a", "b", 2.0, 1)])) == 2


def test_orders_go_round() -> None:
    assert [next_order("incidents", one) for one in ("worst", "newest", "count")] == [
        "newest",
        "count",
        "worst",
    ]
    assert next_order("metrics", "") == ""


# The lines of the tables.


def test_a_long_headline_has_as_many_lines_as_there_are_and_says_that_it_goes_on() -> None:
    one = incident(headline=Message("word " * 60), attribution="async", last_wall_s=NOW, is_clock_known=True)
    for most in (2, 4):
        lines = said(list(list_view.lines_of(one, list_view.Around(46, most))))
        assert len(lines) == most
        assert all(width(line) <= 46 for line in lines)
        assert lines[0].endswith("14:13")
        assert lines[1].endswith(" async")
        assert "…" in lines[-1]
    short = incident(headline=Message("word " * 12), last_wall_s=NOW)
    lines = said(list(list_view.lines_of(short, list_view.Around(46, 4))))
    assert "…" not in "".join(lines)
    assert "".join(lines).count("word") == 12
    # However narrow it is, when it was is told as long as there is room for the headline.
    assert said(list(list_view.lines_of(short, list_view.Around(38))))[0].endswith("~14:13")
    assert list_view.lines_of(one, list_view.Around(1))


# The last lines.


def closing(snapshot: LogsSnapshot, rows: int, cells: int = 56, **options: Any) -> list[str]:
    return said(words.closing_lines(snapshot, cells, rows, options.pop("can", {}), **options))


def test_the_last_lines_give_up_the_lightest_first() -> None:
    bad = incident(advice=(Message("look for the rank that failed first"),))
    snapshot = LogsSnapshot(
        "live",
        digest=Digest((bad,), (Metric("loss", "loss", 2.5, 1),), notes=(Message("level 0 floods"),)),
        sources=(Source("plog", "/a"), Source("plog", "/b"), Source("stdout", "x")),
    )
    hints = [("v", "metrics"), ("c", "sort")]
    assert closing(snapshot, 9, hints=hints) == [
        "look for the rank that failed first",
        "loss      2.50",
        "level 0 floods",
        "sources 3: plog ×2, stdout   0 behind",
        "v metrics  c sort",
    ]
    assert closing(snapshot, 3, hints=hints)[:2] == ["look for the rank that failed first", "loss      2.50"]
    assert closing(snapshot, 1, hints=hints) == ["sources 3: plog ×2, stdout   0 behind"]
    assert closing(snapshot, 2, hints=hints, fault="no regular expression")[0] == "no regular expression"
    # Beside its story an incident's advice is not said twice.
    assert "look for" not in "\n".join(closing(snapshot, 9, zoomed=True))


def test_the_line_of_sources() -> None:
    def line(*sources: Source, cells: int = 60, **changes: Any) -> str:
        return said([words.sources_line(LogsSnapshot(sources=sources, **changes), cells)])[0]

    assert line(Source("open_file", "/a/train.log"), behind_s=0.01) == "sources 1: train.log   0 behind"
    assert line(Source("stdout", "x"), behind_s=12.34) == "sources 1: stdout   12.3 s behind"
    assert line(Source("stdout", "x"), behind_s=1234.0) == "sources 1: stdout   1,234 s behind"
    assert line(Source("plog", "x", "waiting")) == "no source is there yet"
    assert line(Source("plog", "x", "nothing")) == "nothing is read"
    assert line(Source("file", "/a/b.log", "ended")) == "sources 1: b.log   ended"
    long = [Source("glob", f"/a/{'x' * 30}{n}.log") for n in range(9)]
    assert width(line(*long, cells=50)) <= 50
    assert line(*long, cells=50).endswith("…   0 behind")


def test_the_key_of_the_tee_is_offered_where_it_helps() -> None:
    why = Message("it is a pipe")
    lost = LogsSnapshot("live", sources=(Source("stdout", "x", "nothing", why), Source("plog", "/p")))
    assert closing(lost, 9, can={"tee": TEE})[1:] == [
        "stdout: it is a pipe",
        "W tee the output (a few microseconds a write)",
    ]
    assert "W " not in "".join(closing(lost, 9))
    assert "W " not in "".join(closing(dataclasses.replace(lost, is_teed=True), 9, can={"tee": TEE}))
    kept = LogsSnapshot("live", sources=(Source("stdout", "/a/out.log"),))
    assert "W " not in "".join(closing(kept, 9, can={"tee": TEE}))


def test_the_title_keeps_what_is_behind_longest() -> None:
    snapshot = LogsSnapshot("live", digest=Digest((incident(),), lines=5), behind_s=3.0, is_teed=True)
    assert words.mode_words(snapshot, "metrics", 60) == "3.0 s behind · metrics · 1 incident · tee on"
    assert words.mode_words(snapshot, "", 20) == "3.0 s behind"
    assert words.mode_words(LogsSnapshot(), "", 60) == ""
    assert words.mode_words(LogsSnapshot(digest=Digest(lines=1)), "", 60) == "0 incidents"


def test_the_summary() -> None:
    assert words.summary_words(LogsSnapshot()) == "no line has been read yet"
    assert words.summary_words(LogsSnapshot(sources=(Source("stdout", "x"),))) == "no incident"
    lost = LogsSnapshot(sources=(Source("stdout", "x", "nothing", Message("it is a pipe")),))
    assert words.summary_words(lost) == "nothing can be read; stdout: it is a pipe"
    bad = Digest(
        (incident(count=4), incident(severity="warning", key="b"), incident(severity="info", key="c"))
    )
    assert words.summary_words(LogsSnapshot(digest=bad)) == "! error  HCCL timeout, group tp_0  ×4   1 more"


def test_what_was_read() -> None:
    reads = (Source("stdout", "x"),)
    assert (
        words.read_words(LogsSnapshot(digest=Digest(lines=7), sources=reads))
        == "No incident in 7 lines of one source."
    )
    assert words.read_words(LogsSnapshot(sources=reads)) == "The logs are empty so far."
    waits = (Source("plog", "x", "waiting"), Source("stdout", "x", "nothing"))
    assert words.read_words(LogsSnapshot(sources=waits)) == "No log is there yet."
    assert (
        words.read_words(LogsSnapshot(sources=waits[1:]))
        == "Nothing can be read of what this process writes."
    )
    assert words.read_words(LogsSnapshot()) == "No line has been read yet."


# The stories.


def test_a_story_has_no_part_that_is_empty() -> None:
    bare = said(detail_view.lines_of(incident(), (), 60))
    assert bare == [
        "! error  HCCL timeout, group tp_0",
        "communication",
        "",
        "sureness  exact: the line itself says so",
    ]


def test_where_lines_of_several_sources_come_from() -> None:
    sources = (Source("stdout", "x"), Source("plog", "/p/plog-7.log"))
    context = (Raw(9, "a", 0), Raw(10, "b", 0, is_key=True), Raw(1_200, "c", 1), Raw(0, "d", 7))
    assert said(context_view.lines_of(context, sources, 40)) == [
        "stdout",
        "     9  a",
        "▸   10  b",
        "plog-7.log",
        "  1200  c",
        "#7",
        "        d",
    ]
    # Of one source only the lines, a long one on four rows at most.
    long = said(context_view.lines_of((Raw(5, "word " * 200, 1),), sources, 40))
    assert len(long) == 4
    assert long[0].startswith("  5  word word")
    assert long[-1].endswith("…")
    assert all(width(line) <= 40 for line in long)


def test_when_and_where_in_words() -> None:
    one = incident(
        step=5, last_step=5, count=3, ranks=(0, 1), devices=(4, 5), first_wall_s=NOW, last_wall_s=NOW
    )
    assert when_words(one) == [
        "communication",
        "step 5",
        "read at 09-21 14:13:20, the lines have no time of their own",
        "seen 3 times",
        "ranks 0-1",
        "devices 4, 5",
    ]
    clocked = dataclasses.replace(one, is_clock_known=True, last_step=None)
    assert when_words(clocked)[1:3] == ["step 5", "09-21 14:13:20"]


def test_a_code_has_its_meaning_and_who_says_so() -> None:
    assert re.fullmatch(r"507035: .+ \(.+\)", code_words("507035"))
    assert code_words("no such") == "no such"
    assert code_words("") == ""


def test_a_curve_of_a_metric() -> None:
    points = [(float(n), 10.0 - n) for n in range(10)]
    lines = said(curve_view.lines_of(points, 40, unicode=True))
    assert len(lines) == 7
    assert lines[0].split()[0] == "10.0"
    assert lines[5].split()[0] == "1.00"
    assert lines[6].split() == ["0", "9"]
    marked = said(curve_view.lines_of([*points, (10.0, math.nan)], 40, unicode=True))
    assert marked[0].strip() == "!"
    scaled = said(curve_view.lines_of([(0.0, 1.0), (5.0, 65_536.0)], 40, unicode=False))
    assert any("log" in line for line in scaled)
    assert all(line.isascii() for line in scaled)
    for few in (
        [],
        points[:1],
        [(3.0, 1.0), (3.0, 2.0)],
        [(0.0, math.nan), (1.0, 1.0)],
        [(math.nan, 1.0)] * 3,
    ):
        assert curve_view.lines_of(few, 40) == []
    assert curve_view.lines_of(points, 15) == []
    assert len(curve_view.lines_of([(0.0, -1e308), (1.0, 1e308)], 40)) == 7


def test_stories_of_the_other_tables() -> None:
    zero = Metric("loss", "loss", 0.0, 7, "zero", 30, unit="nats")
    assert said(table_stories.of_metric(zero, 80, True))[0] == "! loss  0 nats"
    assert "some trainers print for NaN" in "\n".join(said(table_stories.of_metric(zero, 80, True)))
    rare = said(table_stories.of_template(Template("a <*>", 1, "a 1", 5, 5), (), 80, 10_000))
    assert rare == ["a <*>", "", "seen  1", "in    line 5", "", "One of them", "a 1"]
    lost = Source("plog", "/p", "unreadable", Message("only root may read it"))
    assert said(table_stories.of_source(lost, 80)) == [
        "✕ plog  cannot be read",
        "",
        "place  /p",
        "",
        "Why",
        "· only root may read it",
    ]


def test_endless_and_hostile_texts_are_bounded_and_plain() -> None:
    bad = "\x1b[31m" + "x" * 10_000 + "\u202e[red]\r\n"
    one = incident(headline=Message(bad), text=bad, place=bad, code=bad, facts=(Fact(bad, bad),) * 99)
    lines = said(detail_view.lines_of(one, (), 40))
    assert len(lines) < 1000
    assert not set("".join(lines)) & {"\x1b", "\u202e", "\r", "\n"}
    assert len(plain(bad)) <= 401
