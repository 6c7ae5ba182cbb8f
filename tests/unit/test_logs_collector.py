"""What a reader has found becomes snapshots and alerts: each incident once, history not at all."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from ascend_tui_plugins.logs import collector as module
from ascend_tui_plugins.logs.collector import LogsCollector
from ascend_tui_plugins.logs.from_files import sniff
from ascend_tui_plugins.logs.reader import Read
from ascend_tui_plugins.logs.snapshot import Digest, Incident, Source

from ascend_tui.plugin import Alert, Event, Message, Record
from ascend_tui.target import TargetId

TARGET = TargetId(4711, 99)


class Script:
    """A reader whose findings the test says."""

    def __init__(self, target: TargetId, *rest: Any) -> None:
        self.newest: Read | None = None
        self.began_s = 100.0
        self.teed: list[tuple[str, str, int]] = []
        self.ended = ""

    def take_teed(self, stream: str, text: str, dropped: int) -> None:
        self.teed.append((stream, text, dropped))

    def finish(self) -> None:
        self.ended = "finished"

    def close(self) -> None:
        self.ended = "closed"

    def wait(self) -> None:
        assert self.ended == "closed"


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[LogsCollector, Script, list[Event]]:
    made: list[Script] = []

    def make(target: TargetId, *rest: Any) -> Script:
        made.append(Script(target, *rest))
        return made[-1]

    monkeypatch.setattr(module, "Reader", make)
    told: list[Event] = []
    collector = LogsCollector(told.append)
    collector.on_target(TARGET)
    return collector, made[0], told


def incident(severity: Any = "error", at_s: float = 200.0, **more: Any) -> Incident:
    values: dict[str, Any] = {"first_wall_s": at_s, "last_wall_s": at_s, "key": "k", **more}
    return Incident(severity, "device", Message("it broke"), **values)


def read(
    *incidents: Incident, at_s: float = 201.0, sources: tuple[Source, ...] = (), caught: bool = True
) -> Read:
    return Read(Digest(incidents), sources, at_s, at_s if caught else None, 10.0)


def pulse(collector: LogsCollector, step: int, wall_s: float) -> None:
    collector.on_step(TARGET, step, wall_s)


def test_a_new_incident_is_an_alert_once_at_the_step_of_its_time(
    watched: tuple[LogsCollector, Script, list[Event]],
) -> None:
    collector, reader, told = watched
    for step in range(50):
        pulse(collector, step, 190.0 + step)
    reader.newest = read()
    collector.on_tick(201.0)
    reader.newest = read(incident(at_s=205.2, last_wall_s=205.9), at_s=206.0)
    collector.on_tick(206.0)
    reader.newest = read(incident(at_s=205.2, count=5), at_s=207.0)
    collector.on_tick(207.0)
    (alert,) = told
    assert isinstance(alert, Alert)
    assert (alert.severity, alert.category, alert.step, alert.wall) == ("error", "device", 16, 205.2)


def test_what_gets_graver_is_told_again(watched: tuple[LogsCollector, Script, list[Event]]) -> None:
    collector, reader, told = watched
    for at_s, severity in ((202.0, "info"), (203.0, "warning"), (204.0, "fatal"), (205.0, "fatal")):
        reader.newest = read(incident(severity, at_s), at_s=at_s)
        collector.on_tick(at_s)
    assert [one.severity for one in told if isinstance(one, Alert)] == ["warning", "fatal"]


def test_what_ranks_write_into_one_file_is_one_alert(
    watched: tuple[LogsCollector, Script, list[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, reader, told = watched
    shares: list[int] = []

    def make(target: TargetId, globs: Any, keywords: Any, first_bytes: int) -> Script:
        shares.append(first_bytes)
        return reader

    monkeypatch.setattr(module, "Reader", make)
    collector.on_target(TargetId(4712, 99))
    collector.on_target(TargetId(4713, 99))
    assert shares == [32 << 20, (64 << 20) // 3]
    reader.newest = read()
    collector.on_tick(201.0)
    reader.newest = read(incident(at_s=205.2, text="it broke here"), at_s=206.0)
    collector.on_tick(206.0)
    assert [one.target.pid for one in told if isinstance(one, Alert)] == [4711]


def test_history_is_shown_and_is_no_alert(watched: tuple[LogsCollector, Script, list[Event]]) -> None:
    collector, reader, told = watched
    reader.newest = read(incident(at_s=120.0), caught=False)
    collector.on_tick(201.0)
    reader.newest = read(incident(at_s=120.0))
    collector.on_tick(202.0)
    assert told == []
    assert len(collector.snapshot(TARGET).digest.incidents) == 1


def test_what_waits_is_said(watched: tuple[LogsCollector, Script, list[Event]]) -> None:
    collector, reader, _ = watched
    behind = Source("stdout", "out.log", behind_bytes=5 << 20)
    reader.newest = Read(Digest(), (behind,), 210.0, 203.0, 0.0)
    assert collector.snapshot(TARGET).behind_s == 7.0
    reader.newest = Read(Digest(), (behind,), 204.0, 203.0, 0.0)
    assert collector.snapshot(TARGET).behind_s == 0.0


def test_nothing_to_read_says_why(watched: tuple[LogsCollector, Script, list[Event]]) -> None:
    collector, reader, _ = watched
    assert collector.snapshot(TARGET).state == "waiting"
    why = Message("stdout is a pipe")
    reader.newest = read(
        sources=(Source("plog", "", "nothing", Message("x")), Source("stdout", "", "nothing", why))
    )
    shown = collector.snapshot(TARGET)
    assert (shown.state, shown.reason) == ("degraded", why)
    streams = [{"stream": "stdout", "to": "pipe", "teed": True}]
    collector.on_record(TARGET, Record(1, "logs", "streams", 3, 1.0, 1.0, {"streams": streams}))
    data = {"stream": "stdout", "text": "a\n", "dropped": 1234}
    collector.on_record(TARGET, Record(2, "logs", "text", 3, 1.0, 1.0, data))
    shown = collector.snapshot(TARGET)
    assert (shown.state, shown.is_teed) == ("live", True)
    assert reader.teed == [("stdout", "a\n", 1234)]
    assert [note.render() for note in shown.digest.notes] == [
        "only what Python writes is seen: not what C libraries and child processes print",
        "1,234 bytes of the output were left out: more than can be sent came at once",
    ]
    streams[0]["teed"] = False
    collector.on_record(TARGET, Record(3, "logs", "streams", 3, 1.0, 1.0, {"streams": streams}))
    assert not collector.snapshot(TARGET).is_teed


def test_hostile_records_change_nothing(watched: tuple[LogsCollector, Script, list[Event]]) -> None:
    collector, reader, _ = watched
    for kind in ("text", "streams"):
        for data in (
            {},
            {"text": 3, "stream": "stdout"},
            {"text": "a", "stream": None},
            {"text": b"a"},
            {"streams": [3, None, {"teed": "yes"}]},
            {"streams": {"teed": True}},
        ):
            collector.on_record(TARGET, Record(1, "logs", kind, 0, 1.0, 1.0, data))
    assert reader.teed == []


def test_the_end_of_a_target_and_of_the_monitor(watched: tuple[LogsCollector, Script, list[Event]]) -> None:
    collector, reader, _ = watched
    collector.on_gone(TARGET)
    assert reader.ended == "finished"
    collector.close()
    assert reader.ended == "closed"


def test_a_file_is_read_by_the_same_engine(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("step 1 loss 2.5\n" * 3 + "[ERROR] Socket gone\n")
    found = LogsCollector(lambda event: None).read(path)
    assert found.lines == 4


def test_a_packed_log_that_is_cut_short_says_so(tmp_path: Path) -> None:
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(b"[ERROR] it broke at step 3\n" * 4000)[:40])
    assert sniff(path.read_bytes(), path.name) == "log"
    with pytest.raises(OSError, match="damaged"):
        LogsCollector(lambda event: None).read(path)
