"""Verdicts on trainings whose truth is known, shortly; `make verdicts` runs all of them, with more seeds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ascend_tui_plugins.memory.collector import MemoryCollector
from ascend_tui_plugins.memory.snapshot import Verdict
from trainings import needs_ptrace, needs_torch

from ascend_tui.plugin import Message
from ascend_tui.target import TargetId
from tests.verdicts.cases import CASES, Case
from tests.verdicts.judging import Row, judge
from tests.verdicts.replaying import dump, replay
from tests.verdicts.running import Run, Seen, run


def case(name: str) -> Case:
    return next(one for one in CASES if one.name == name)


def short(name: str, device: str) -> Run:
    """Run a case faster and for fewer steps than the table does."""
    return run(dataclasses.replace(case(name), period_ms=12.0, steps=360, onset=60), device, 1, tick_s=0.5)


@needs_ptrace
@needs_torch
def test_rows_that_a_dataset_keeps_are_a_leak(tmp_path: Path) -> None:
    done = short("dataset", "cpu")
    row = judge(done)
    assert row.holds, row
    # What the screen said live is what the same records say later.
    again = judge(replay(dump(done, tmp_path)))
    assert (again.got, again.false_alarms) == (row.got, ())


@needs_ptrace
def test_who_grows_on_a_card_is_told(simulator: Any) -> None:
    row = judge(short("external", "npu"))
    assert row.holds, row


def said(name: str, *verdicts: tuple[int, str]) -> Row:
    """Judge made-up words at made-up steps: what is tested is the judge, not the collector."""
    empty = MemoryCollector(lambda event: None).snapshot(TargetId(1, 1))
    seen = tuple(
        Seen(40 + step, dataclasses.replace(empty, verdict=Verdict(kind, 0.9, None, Message(""))))  # type: ignore[arg-type]
        for step, kind in verdicts
    )
    return judge(Run(case(name), "npu", 1, 700, 40.0, (), seen))


def test_a_verdict_has_to_be_right_in_time_and_to_stay() -> None:
    assert said("losses", (-20, "undecided"), (250, "leak"), (700, "leak")).steps_to == 150
    assert said("losses", (250, "leak"), (700, "leak")).holds
    assert not said("losses", (50, "steady"), (450, "leak"), (700, "leak")).holds
    wavering = said("losses", (250, "leak"), (300, "steady"), (350, "leak"), (700, "leak"))
    assert (wavering.steps_to, wavering.revisions) == (250, 2)
    gone = said("losses", (250, "leak"), (700, "steady"))
    assert (gone.steps_to, gone.holds) == (None, False)


def test_a_false_leak_is_counted_wherever_it_is_seen() -> None:
    assert said("gpt", (5, "steady"), (600, "steady")).holds
    assert said("gpt", (-30, "leak"), (5, "steady")).false_alarms == (("leak", -30),)
    # The other word for a leak is a false one too, where the two can be told apart.
    assert said("losses", (200, "host_leak"), (250, "leak")).false_alarms == (("host_leak", 200),)
    # A leak that stops was one for a time.
    assert said("stops", (200, "leak"), (400, "steady")).holds
    assert not said("stops", (200, "leak"), (600, "leak"), (900, "steady")).holds
