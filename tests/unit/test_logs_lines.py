"""What launchers, workers and loggers put before a line is taken off, and what it tells is kept."""

from __future__ import annotations

import time

import pytest
from ascend_tui_plugins.logs.lines import cleaned, parse, text_of
from ascend_tui_plugins.logs.sighting import Line

YEAR = 2031


def at(*stamp: int) -> float:
    return time.mktime((*stamp, 0, 0, -1))  # type: ignore[arg-type]


# Line; body; level, rank, stream, wall time.
HEADS = [
    (
        "(Worker pid=901) (Worker_TP2 pid=905) ERROR 05-07 08:09:10 [executor.py:77] RuntimeError: x",
        ("RuntimeError: x", "error", 2, "pid 905", at(2031, 5, 7, 8, 9, 10)),
    ),
    (
        "(Worker_DP1_TP2_EP6 pid=905) INFO 05-07 08:09:10 [executor.py:77] ready",
        ("ready", "info", None, "pid 905", at(2031, 5, 7, 8, 9, 10)),
    ),
    (
        "[ERROR] RUNTIME(55,python3.10):2031-05-07-08:09:10.250.000 [a_b.cc:12]77 Foo:Task failed",
        ("Foo:Task failed", "error", None, "pid 55", at(2031, 5, 7, 8, 9, 10) + 0.25),
    ),
    (
        "[ERROR]HCCL(55,t):2031-05-07-08:09:10.250.000[task.cc:6][77][TaskExecStage]gone",
        ("[TaskExecStage]gone", "error", None, "pid 55", at(2031, 5, 7, 8, 9, 10) + 0.25),
    ),
    (
        "[INFO] IDEDD(55,t):2031-05-07-08:09:10.250.000 [k.cpp:9][tid:77] [Dump] saved",
        ("[Dump] saved", "info", None, "pid 55", at(2031, 5, 7, 8, 9, 10) + 0.25),
    ),
    (
        "[EXCEPTION] DEVICE(55,fffe1,python):2031-05-07-08:09:10.250.000 [m/a.cc:9] Init] failed",
        ("Init] failed", "error", None, "pid 55", at(2031, 5, 7, 8, 9, 10) + 0.25),
    ),
    (
        "[rank4]:[E507 08:09:10.250000000 compiler_depend.ts:57] [Rank 4] Watchdog caught",
        ("Watchdog caught", "error", 4, "rank 4", at(2031, 5, 7, 8, 9, 10) + 0.25),
    ),
    (
        "W1107 08:09:10.250000 4711 torch/distributed/run.py:793] ****",
        ("****", "warning", None, "", at(2031, 11, 7, 8, 9, 10) + 0.25),
    ),
    ('[rank0]:   File "a.py", line 3, in f', ('  File "a.py", line 3, in f', "", 0, "rank 0", None)),
    ("[1,7]<stderr>: late", ("late", "", 7, "rank 7", None)),
    ("[rank3]:[rank1]: Traceback", ("Traceback", "", 1, "rank 1", None)),
    (
        "2031-05-07 08:09:10,500 - mmdet - INFO - Iter [3/9]\tloss: 2",
        ("Iter [3/9]\tloss: 2", "info", None, "", at(2031, 5, 7, 8, 9, 10) + 0.5),
    ),
    (
        "2031-05-07 08:09:10.500 | WARNING  | a.b:c:25 - slow",
        ("slow", "warning", None, "", at(2031, 5, 7, 8, 9, 10) + 0.5),
    ),
    (
        "[INFO|2031-05-07 08:09:10] a.b:143 >> {'loss': 5}",
        ("{'loss': 5}", "info", None, "", at(2031, 5, 7, 8, 9, 10)),
    ),
    ("[2031-05-07 08:09:10,500 INFO] Step 3", ("Step 3", "info", None, "", at(2031, 5, 7, 8, 9, 10) + 0.5)),
    (
        "[2031-05-07 08:09:10,500] [ERROR] [launch.py:9:f] [Rank 5] exits",
        ("exits", "error", 5, "rank 5", at(2031, 5, 7, 8, 9, 10) + 0.5),
    ),
    ("2031-05-07T08:09:10.500Z INFO up", ("up", "info", None, "", 1935907750.5)),
    ("【错误】通信超时", ("通信超时", "error", None, "", None)),
    ("[W a_b.ts:51] Warning: falls back", ("Warning: falls back", "warning", None, "", None)),
    ("CRITICAL: disk full", ("disk full", "fatal", None, "", None)),
    ("Information about errors", ("Information about errors", "", None, "", None)),
    ("ERRORS = 0", ("ERRORS = 0", "", None, "", None)),
    ("        Possible Cause: memory", ("        Possible Cause: memory", "", None, "", None)),
]


@pytest.mark.parametrize(("text", "told"), HEADS)
def test_heads_are_taken_off(text: str, told: tuple[str, str, int | None, str, float | None]) -> None:
    line = parse(text.encode(), 3, 1, None, YEAR)
    assert (line.body, line.level, line.rank, line.stream, line.wall_s) == told
    assert (line.number, line.source) == (3, 1)


def test_the_trailer_of_torch_npu_tells_device_and_rank() -> None:
    line = parse(
        b"[ERROR] 2031-05-07-08:09:10 (PID:55, Device:6, RankID:-1) ERR00100 PTA call acl api failed"
    )
    assert (line.body, line.pid, line.device, line.rank) == ("ERR00100 PTA call acl api failed", 55, 6, None)
    assert parse(b"[ERROR] 2031-05-07-08:09:10 (PID:55, Device:6, RankID:14) ERR01005 OPS x").rank == 14


def test_a_line_of_one_ranks_file_has_its_rank() -> None:
    line = parse(b"loss 2.5", rank=3)
    assert (line.rank, line.stream) == (3, "rank 3")


def test_a_date_without_a_year_has_no_time_where_no_year_is_known() -> None:
    assert parse(b"ERROR 05-07 08:09:10 [a.py:7] x").wall_s is None


@pytest.mark.parametrize(
    ("text", "repeated"),
    [("oom [repeated 6x across cluster]", 7), ("last message repeated 4 times", 5), ("repeated often", 1)],
)
def test_what_a_launcher_left_out_is_counted(text: str, repeated: int) -> None:
    assert parse(text.encode()).repeated == repeated


def test_utf8_gbk_and_neither() -> None:
    assert text_of("显存不足".encode()) == "显存不足"
    assert text_of("显存不足，设备 3".encode("gb18030")) == "显存不足，设备 3"
    assert text_of("设备".encode()[:-1]).startswith("设")
    assert "garbage" in text_of(b"\x01\xff\xfe garbage \x80\x81 \xc3(")


def test_what_a_terminal_obeys_and_what_was_overwritten_is_gone() -> None:
    raw = b"\x1b[31m[ERROR]\x1b[0m a\0b"
    assert cleaned(raw) == "[ERROR] ab"
    assert cleaned(b"1/3\r2/3\r3/3 done\r") == "3/3 done"


def test_hostile_lines_are_read_quickly() -> None:
    for raw in (
        b"[" * 100_000,
        b"(" * 100_000,
        b"[ERROR] " * 20_000,
        b"2031-05-07 " * 20_000,
        b" " * 1_000_000,
    ):
        line = parse(raw)
        assert isinstance(line, Line)
