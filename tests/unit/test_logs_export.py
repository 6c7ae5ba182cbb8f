"""The digest as files: what stands in them, and that no line of a log is more than text there."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from ascend_tui_plugins.logs.export import files_of, in_order, json_of, markdown_of
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

from ascend_tui import text
from ascend_tui.plugin import Message

NOW = 1_790_000_000.0
SOURCES = (
    Source("stdout", "stdout", read_bytes=2048, lines=40),
    Source("plog", "/p/plog-7.log", "unreadable", Message("only root may read it")),
)
FAULT = Incident(
    "fatal",
    "device",
    Message.of("aicore error: {text_}, kernel {kernel}", text_="address out of range", kernel="add_1"),
    step=18,
    last_step=21,
    ranks=(0, 1, 2, 5),
    count=3,
    attribution="async",
    code="507015",
    reason=Message("the device names the kernel"),
    evidence=(Message("errcode 0x10"),),
    advice=(Message("run under mssanitizer"), Message("look in the plog")),
    facts=(Fact("chip", 1), Fact("kernel", "add_1")),
    place="train.py:88 in step",
    first_wall_s=NOW,
    last_wall_s=NOW,
    is_clock_known=True,
    source=0,
    line=212,
    text="errorStr: address out of range",
    context=(Raw(211, "before"), Raw(212, "errorStr: address out of range", is_key=True)),
    by_rank=((5, "AllReduce"),),
)
DIGEST = Digest(
    (Incident("info", "other", Message("a hint"), last_wall_s=NOW + 9), FAULT),
    (Metric("loss", "lm loss", math.nan, 20, "not_finite", 20, 1.5, 3.0),),
    (Template("iter <*>", 30, "iter 3", 1, 40), Template("odd <*>", 1, "odd 1", 39, 39, is_new=True)),
    lines=40,
    bytes=2048,
    ignored=2,
    dropped_incidents=1,
    notes=(Message("the log level is 0"),),
)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
    text.set_language("en")


def plain_of(markdown: str) -> str:
    """Return Markdown with its entities read back."""
    return re.sub(r"&#(\d+);", lambda found: chr(int(found.group(1))), markdown)


def test_the_markdown_tells_what_the_screen_tells() -> None:
    lines = plain_of(markdown_of(DIGEST, SOURCES)).splitlines()
    assert lines[:5] == [
        "# Digest of the logs",
        "",
        "1 fatal · 1 info · 40 lines read · 2 lines look alarming and are known to be harmless"
        " · 1 older ones let go",
        "",
        "* the log level is 0",
    ]
    assert (
        "| 1 | ✕ fatal | 3 | aicore error: address out of range, kernel add_1 | 0-2,5 | 21 | 14:13 |" in lines
    )
    assert "| 2 | · info | 1 | a hint | - | - | ~14:13 |" in lines
    at = lines.index("## 1. ✕ fatal: aicore error: address out of range, kernel add_1")
    story = "\n".join(lines[at:])
    for words in (
        "device · steps 18 to 21 · 09-21 14:13:20 · seen 3 times · ranks 0-2,5",
        "* line: `errorStr: address out of range`",
        "* in: `stdout:212`",
        "* noticed at: `train.py:88 in step`",
        "* code: `507015: ",
        "* kernel: `add_1`",
        "* rank 5: `AllReduce`",
        "* sureness: async: ",
        "Why we think so:\n\n* the device names the kernel\n* errcode 0x10",
        "What to do:\n\n* run under mssanitizer\n* look in the plog",
        "The lines around it:\n\n      211  before\n    > 212  errorStr: address out of range",
        "| `loss` | NaN | not finite | 1.50 | 3.00 | 20 |",
        "| 1 | new | `odd <*>` |\n| 30 |  | `iter <*>` |",
        "| plog | `/p/plog-7.log` | cannot be read: only root may read it | 0 B | 0 |",
    ):
        assert words in story, words


def test_the_json_is_strict_and_has_the_fields_of_the_lines() -> None:
    found = json.loads(json_of(DIGEST, SOURCES), parse_constant=lambda name: pytest.fail(name))
    assert found["schema"] == "ascend-tui/1"
    assert (found["lines"], found["ignored"], found["dropped_incidents"]) == (40, 2, 1)
    first = found["incidents"][0]
    assert (first["severity"], first["category"], first["step"], first["count"]) == ("fatal", "device", 18, 3)
    assert first["headline"] == "aicore error: address out of range, kernel add_1"
    assert first["attribution"] == "async"
    assert first["context"][1] == {"number": 212, "text": FAULT.text, "source": 0, "is_key": True}
    assert found["metrics"][0]["value"] == "NaN"
    assert found["templates"][1]["is_new"] is True
    assert found["sources"][1]["why"] == "only root may read it"


def test_the_worst_first_and_of_equals_the_newest() -> None:
    old = dataclasses.replace(FAULT, key="old", last_wall_s=NOW - 5)
    untimed = dataclasses.replace(FAULT, key="none", last_wall_s=None)
    assert [one.key for one in in_order((DIGEST.incidents[0], untimed, old, FAULT))] == [
        "",
        "old",
        "none",
        "",
    ]


def test_no_file_of_nothing_and_both_of_something() -> None:
    assert files_of(LogsSnapshot()) == {}
    assert files_of(LogsSnapshot(sources=SOURCES)) == {}
    found = files_of(LogsSnapshot("live", digest=DIGEST, sources=SOURCES))
    assert sorted(found) == ["logs.json", "logs.md"]
    calm = files_of(LogsSnapshot("live", digest=Digest(lines=5)))["logs.md"]
    assert calm == "# Digest of the logs\n\nno incident · 5 lines read\n"


def test_the_markdown_speaks_the_language_of_the_screen() -> None:
    text.set_language("zh_CN")
    assert "| 1 | ✕ 致命 | 3 |" in markdown_of(DIGEST)


BAD = "\x1b[31m|`*_<img src=x>`|\\ \u202e[a](http://b)\r\n# title\n\n```\n| x |\n> quote"


def hostile() -> Digest:
    one: dict[str, Any] = {"headline": Message.of("{it}", it=BAD), "text": BAD, "place": BAD, "code": BAD}
    one |= {
        "facts": (Fact(BAD, BAD),),
        "by_rank": ((1, BAD),),
        "reason": Message(BAD),
        "evidence": (Message(BAD),),
    }
    one |= {"advice": (Message.of("{x", x=1),), "context": (Raw(1, BAD), Raw(2, "x" * 10**6, 9))}
    one |= {"severity": BAD, "category": BAD, "attribution": BAD, "last_wall_s": math.nan, "source": 77}
    return Digest(
        (dataclasses.replace(FAULT, **one),),
        (Metric(BAD, BAD, math.inf, None, BAD),),  # type: ignore[arg-type]
        (Template(BAD, 1, BAD, 1, 1, level=BAD),) * 99,
        lines=1,
        notes=(Message(BAD),),
    )


def test_foreign_text_is_text_in_markdown() -> None:
    sources = (Source("odd", BAD, BAD, Message(BAD)),)  # type: ignore[arg-type]
    markdown = markdown_of(hostile(), sources)
    assert not set(markdown) & {"\x1b", "\u202e", "\r"}
    for line in markdown.splitlines():
        if line.startswith("    "):
            continue
        # What begins a block, a tag, a link, or ends a cell is ours alone.
        assert not re.search(r"<img|\]\(|```", line), line
        assert not line.startswith((">", "```", "# title")), line
        if line.startswith("|"):
            assert line.endswith("|")
            assert line.count("|") in (4, 6, 7, 8), line
    assert [line for line in markdown.splitlines() if line.startswith("# ")] == ["# Digest of the logs"]
    assert "59 more" in markdown
    assert max(len(line) for line in markdown.splitlines()) < 12_000


def test_half_a_character_is_strict_json() -> None:
    digest = Digest((dataclasses.replace(FAULT, text="\ud800"),))
    assert json.loads(json_of(digest))["incidents"][0]["text"] == "\ud800"
    json_of(digest).encode()
    # A sentence whose places have no parameters is its bare text.
    assert json.loads(json_of(hostile()))["incidents"][0]["advice"] == ["{x"]


def test_no_screen_is_needed() -> None:
    code = "import sys, ascend_tui_plugins.logs.export; print('textual' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"
