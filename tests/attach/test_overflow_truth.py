"""Incidents of trainings whose truth is known, shortly; `make overflows` runs all of them, on each device."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ascend_tui_plugins.overflow.snapshot import Incident, Output, OverflowSnapshot
from trainings import needs_ptrace, needs_torch

from ascend_tui.plugin import Message
from tests.overflows.cases import CASES, Case, truth
from tests.overflows.judging import faults, judge
from tests.overflows.replaying import dump, replay
from tests.overflows.running import Run, Watched, run


def case(name: str) -> Case:
    return next(one for one in CASES if one.name == name)


def short(name: str, device: str) -> Run:
    """Run a case for fewer steps than the table does, and with a tick that is due sooner."""
    return run(dataclasses.replace(case(name), steps=120, onset=40), device, 1, tick_s=0.5)


@needs_ptrace
@needs_torch
def test_an_activation_that_leaves_float16_is_told_from_the_layer_before_it(tmp_path: Path) -> None:
    done = short("ffn", "cpu")
    row = judge(done)
    assert row.holds, row
    assert (row.first, row.source.split()[0]) == ("blocks.1.mlp.act mul", "blocks.1.mlp.up_proj")
    # What the screen said live is what the same records say later.
    again = judge(replay(dump(done, tmp_path)))
    assert (again.kind, again.first, again.source) == (row.kind, row.first, row.source)


@needs_ptrace
@needs_torch
def test_infinities_that_are_put_in_on_purpose_are_none(tmp_path: Path) -> None:
    row = judge(short("masked", "cpu"))
    assert row.holds, row


@needs_ptrace
def test_attention_logits_that_leave_float16_are_told_on_a_card(simulator: Any) -> None:
    row = judge(short("logits", "npu"))
    assert row.holds, row


RIGHT = truth("inf", "a", "aten::mul", "b", within=2)


def said(*incidents: Incident, onset: int = 40) -> list[str]:
    """Judge made-up incidents of a shim that had seen ten steps: what is tested is the judge."""
    return [
        *faults(RIGHT, Watched(10.0, (), OverflowSnapshot(incidents=incidents)), _first(incidents), onset)
    ]


def _first(incidents: tuple[Incident, ...]) -> Incident | None:
    return next((one for one in incidents if one.kind != "near_limit"), None)


def incident(kind: str = "inf", step: int = 51, first: str = "a", source: str = "b", **more: Any) -> Incident:
    return Incident(
        kind,  # type: ignore[arg-type]
        more.get("severity", "error"),
        Message("bad"),
        step,
        first_step=step,
        attribution=more.get("attribution", "likely"),
        first_seen=Output(1, first, op=more.get("op", "aten::mul")),
        source=Output(0, source),
    )


def test_an_incident_has_to_be_right_in_all_parts() -> None:
    assert said(incident()) == []
    assert said() == ["nothing said"]
    assert said(incident(kind="nan")) == ["kind nan"]
    assert said(incident(step=54)) == ["4 steps after the onset"]
    assert said(incident(first="b")) == ["first seen: b mul"]
    assert said(incident(op="aten::add")) == ["first op: aten::add"]
    assert said(incident(op="")) == ["no op named"]
    assert said(incident(source="a")) == ["source: a"]
    assert said(incident(attribution="async")) == ["attribution async"]


def test_what_is_said_beside_it_may_be_no_error() -> None:
    assert said(incident(kind="near_limit", step=52, severity="warning"), incident()) == []
    assert said(incident(), incident(kind="scale_collapse", step=70)) == []
    assert said(incident(), incident(kind="nan", step=90)) == ["also nan at 80: bad"]
    assert said(incident(kind="near_limit", step=30, severity="warning"), incident()) == [
        "near_limit at step 20, before the onset"
    ]
