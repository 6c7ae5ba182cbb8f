"""The overflow collector: records in, one line for each fault out, and no line for what is well."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import subprocess
import sys
from typing import Any

import pytest
from ascend_tui_plugins.overflow import advice
from ascend_tui_plugins.overflow.advice import keep_fp32
from ascend_tui_plugins.overflow.collector import OverflowCollector
from ascend_tui_plugins.overflow.incidents import MOST
from ascend_tui_plugins.overflow.snapshot import Incident, Output, OverflowSnapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_tui.frame import as_json
from ascend_tui.plugin import Alert, Event, Hint, Message, Record
from ascend_tui.target import TargetId
from ascend_tui.text import say

NAN, INF, MINUS = "NaN", "Infinity", "-Infinity"
TARGET = TargetId(4_000_000, 1234)


class Watched:
    """A collector with what it published."""

    def __init__(self, target: TargetId = TARGET) -> None:
        self.events: list[Event] = []
        self.collector = OverflowCollector(self.events.append)
        self.target = target
        self._seq = 0

    def send(self, kind: str, target: TargetId | None = None, /, **data: Any) -> None:
        self._seq += 1
        step = data.get("step", 0)
        record = Record(
            self._seq, "overflow", kind, step, 1_700_000_000.0 + self._seq, float(self._seq), data
        )
        self.collector.on_record(target or self.target, record)

    def pulse(self, target: TargetId | None = None, /, **data: Any) -> None:
        self.send("pulse", target, **data)

    def rows(self, level: str, step: int, rows: list[dict[str, Any]], **data: Any) -> None:
        data.setdefault(
            "first", next((row["i"] for row in rows if NAN in row.values() or INF in row.values()), None)
        )
        self.send("rows", **{"level": level, "step": step, "rows": rows, "total": len(rows), **data})

    @property
    def snapshot(self) -> OverflowSnapshot:
        return self.collector.snapshot(self.target)

    @property
    def incidents(self) -> tuple[Incident, ...]:
        return self.snapshot.incidents

    @property
    def one(self) -> Incident:
        (incident,) = self.incidents
        return incident

    @property
    def alerts(self) -> list[Alert]:
        return [event for event in self.events if isinstance(event, Alert)]


def module(i: int, path: str, kind: str, low: Any, high: Any, **more: Any) -> dict[str, Any]:
    return {"i": i, "path": path, "type": kind, "min": low, "max": high, "dtype": "float16", **more}


def op(i: int, name: str, low: Any, high: Any, *sources: int, path: str = "m", **more: Any) -> dict[str, Any]:
    return module(i, path, "", low, high, op=f"aten::{name}", **{"from": list(sources), **more})


FFN = [
    module(1, "l.12.ln", "LayerNorm", -4.0, 4.0),
    module(2, "l.12.mlp.up_proj", "Linear", -900.0, 61440.0),
    module(3, "l.12.mlp.act", "Act", NAN, NAN),
    module(4, "l.12.mlp.down_proj", "Linear", NAN, NAN),
]
FFN_OPS = [
    op(1, "native_layer_norm", -4.0, 4.0, path="l.12.ln"),
    op(2, "addmm", -900.0, 61440.0, 1, path="l.12.mlp.up_proj"),
    op(3, "mul", 0.0, INF, 2, 2, path="l.12.mlp.act"),
    op(4, "tanh", NAN, NAN, 3, path="l.12.mlp.act"),
]
CLIMB = [{"path": "l.12.mlp.up_proj", "part": "output", "points": [[100, 9000], [200, 30000], [300, 61440]]}]


def said(messages: tuple[Message, ...]) -> str:
    return " | ".join(say(one) for one in messages)


def levels(of: list[Incident] | tuple[Incident, ...]) -> list[str]:
    return [one.kind for one in of]


# Nothing is wrong.


def test_before_the_first_record_it_waits() -> None:
    watched = Watched()
    assert watched.snapshot == OverflowSnapshot()
    assert watched.snapshot.state == "waiting"


def test_a_pulse_fills_the_numbers() -> None:
    watched = Watched()
    watched.pulse(
        losses=[[1, 2.5], [2, 2.25]],
        grads=[[2, 0.5]],
        scales=[[2, 65536]],
        watched=2,
        skipped=0,
        levels=[{"name": "loss", "on": True}, {"name": "gradients", "on": True, "every": 10}],
        saturates=False,
        hottest=[module(1, "up", "Linear", -9.0, 12000.0)],
        unseen={"compiled": 4},
    )
    snapshot = watched.snapshot
    assert (snapshot.state, snapshot.loss, snapshot.grad_norm, snapshot.scale) == ("live", 2.25, 0.5, 65536.0)
    assert (snapshot.steps_watched, snapshot.skipped, snapshot.saturates) == (2, 0, False)
    assert [(one.name, one.every) for one in snapshot.levels] == [("loss", 1), ("gradients", 10)]
    assert snapshot.hottest[0].abs_max == 12000.0
    assert say(snapshot.unseen[0]) == "4 outputs inside compiled code were not seen"
    watched.pulse(losses=[[3, 2.0]])
    assert (watched.snapshot.loss, watched.snapshot.scale, watched.snapshot.steps_watched) == (
        2.0,
        65536.0,
        2,
    )
    assert not watched.incidents


def test_a_level_that_cannot_be_on_is_degraded_only_where_it_is_one_of_the_first() -> None:
    watched = Watched()
    watched.pulse(levels=[{"name": "ops", "on": False, "why": "compiled"}])
    assert watched.snapshot.state == "live"
    watched.pulse(levels=[{"name": "gradients", "on": False, "why": "no optimizer"}])
    assert watched.snapshot.state == "degraded"


@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_training_of_5000_steps_has_no_incident(seed: int) -> None:
    draw = random.Random(seed)
    watched = Watched()
    scale = 65536.0
    skips = 0
    for start in range(0, 5000, 20):
        steps = range(start, start + 20)
        losses = [[s, 2.0 + 8.0 * math.exp(-s / 500) + draw.gauss(0, 0.1)] for s in steps]
        grads = [[s, abs(draw.gauss(1.0, 0.3))] for s in steps]
        skipped = []
        if start in (0, 2000, 4000):
            skipped = [start + 3]
            scale /= 2
            skips += 1
        watched.pulse(
            losses=losses,
            grads=grads,
            scales=[[start + 19, scale]],
            skips=skipped,
            skipped=skips,
            saturates=False,
        )
        watched.rows(
            "modules",
            start,
            [module(1, "a", "Linear", -90.0, 80.0), module(2, "mask", "Mask", MINUS, 0.0)],
            first=None,
        )
    assert not watched.alerts
    assert levels(watched.incidents) == ["scale_search"]
    assert watched.one.severity == "info"
    assert watched.one.count == 3


def test_an_intended_mask_makes_no_incident() -> None:
    watched = Watched()
    rows = [
        op(1, "bmm", -8.0, 9.0),
        op(2, "masked_fill", MINUS, 9.0, 1, intended=True),
        op(3, "_softmax", 0.0, 1.0, 2),
    ]
    watched.rows("ops", 5, rows, first=2)
    watched.rows("modules", 6, [module(1, "attn.mask", "Mask", MINUS, 0.0)], first=1)
    assert not watched.incidents
    assert not watched.events


# One fault, one line.


def test_first_seen_and_likely_source_are_told_apart() -> None:
    watched = Watched()
    watched.rows("modules", 300, FFN, history=CLIMB, stack=[["model.py", 31, "forward"]], why="modules")
    incident = watched.one
    assert (incident.kind, incident.severity, incident.level, incident.attribution) == (
        "nan",
        "error",
        "modules",
        "likely",
    )
    assert incident.first_seen is not None
    assert incident.source is not None
    assert incident.first_seen.path == "l.12.mlp.act"
    assert incident.source.path == "l.12.mlp.up_proj"
    assert say(incident.headline) == "NaN in l.12.mlp.act (float16), likely from l.12.mlp.up_proj"
    assert [row.index for row in incident.window] == [1, 2, 3, 4]
    assert [point.abs_max for point in incident.climb] == [9000.0, 30000.0, 61440.0]
    assert incident.stack[0].file == "model.py"
    assert "9,000 → 61,440 from step 100 to 300" in said(incident.evidence)
    assert "self.up_proj(x.float())" in incident.keep_fp32
    (alert,) = watched.alerts
    assert (alert.severity, alert.category, alert.step, alert.attribution) == (
        "error",
        "numeric",
        300,
        "likely",
    )


def test_repeats_are_folded_and_told_once() -> None:
    watched = Watched()
    for step in range(300, 360):
        watched.rows("modules", step, FFN)
    assert (watched.one.count, watched.one.first_step, watched.one.step) == (60, 300, 359)
    assert len(watched.alerts) == 1
    watched.rows("modules", 460, FFN)
    assert (watched.one.count, watched.one.step) == (61, 460)
    assert len(watched.alerts) == 2, "it is back after a hundred clean steps"


def test_the_same_step_is_not_counted_twice() -> None:
    watched = Watched()
    watched.rows("modules", 300, FFN)
    watched.rows("modules", 300, FFN)
    watched.pulse(losses=[[300, NAN]], grads=[[300, NAN]])
    assert watched.one.count == 1


def test_a_closer_look_refines_the_same_line() -> None:
    watched = Watched()
    watched.pulse(losses=[[s, 2.0] for s in range(200, 300)], grads=[[299, 1.0]])
    watched.pulse(losses=[[300, NAN]], grads=[[300, NAN]])
    assert (watched.one.kind, watched.one.level, watched.one.source) == ("loss", "loss", None)
    watched.rows("modules", 300, FFN)
    assert (watched.one.kind, watched.one.level) == ("nan", "modules")
    watched.rows("ops", 300, FFN_OPS, why="loss")
    incident = watched.one
    assert (incident.kind, incident.level, incident.count) == ("inf", "ops", 1)
    assert incident.first_seen is not None
    assert (incident.first_seen.op, incident.first_seen.path) == ("aten::mul", "l.12.mlp.act")
    assert incident.source is not None
    assert incident.source.op == "aten::addmm"
    assert "not finite at once at step 300" in said(incident.evidence), "what the loss did stays"
    assert "only where it was first seen" not in said(incident.evidence)
    assert "only modules were watched" not in said(incident.evidence)
    assert [alert.step for alert in watched.alerts] == [300, 300], "new, and once more with its place"
    assert "likely from l.12.mlp.up_proj" in say(watched.alerts[1].headline)


def test_a_coarser_look_after_it_adds_no_line() -> None:
    watched = Watched()
    watched.rows("ops", 300, FFN_OPS)
    watched.rows("modules", 301, FFN)
    watched.rows("gradients", 301, [{"i": 1, "path": "w", "part": "gradient", "min": 0, "max": NAN}])
    watched.pulse(losses=[[302, NAN]])
    assert (watched.one.level, watched.one.count, watched.one.step) == ("ops", 3, 302)


def test_a_second_look_adds_the_position_and_the_stack() -> None:
    watched = Watched()
    watched.rows("ops", 300, FFN_OPS)
    assert watched.one.first_seen is not None
    assert watched.one.first_seen.position is None
    closer = [{**row, "position": [1, 7, 3], "bad": 12} if row["i"] == 3 else row for row in FFN_OPS]
    watched.rows("ops", 301, closer, stack=[["model.py", 31, "forward"]])
    watched.rows("ops", 302, FFN_OPS)
    incident = watched.one
    assert incident.first_seen is not None
    assert (incident.first_seen.position, incident.first_seen.bad_count) == ((1, 7, 3), 12)
    assert [line.file for line in incident.stack] == ["model.py"]
    assert (incident.count, incident.first_step, incident.step) == (3, 300, 302)


def test_two_places_are_two_lines() -> None:
    watched = Watched()
    watched.rows("modules", 300, FFN)
    other = [module(1, "a.q", "Linear", -3.0, 60000.0), module(2, "a.soft", "Act", NAN, NAN)]
    watched.rows("modules", 305, other)
    watched.rows("modules", 306, FFN)
    assert [one.first_seen.path for one in watched.incidents if one.first_seen] == ["l.12.mlp.act", "a.soft"]
    assert [one.count for one in watched.incidents] == [2, 1]
    assert len(watched.alerts) == 2


def test_a_bad_loss_of_long_after_is_another_line_until_it_is_known_to_be_the_same() -> None:
    watched = Watched()
    watched.pulse(losses=[[300, NAN]])
    watched.rows("modules", 300, FFN)
    watched.pulse(losses=[[s, 2.0] for s in range(301, 360)])
    watched.pulse(losses=[[900, NAN]])
    assert levels(watched.incidents) == ["nan", "loss"]
    watched.rows("modules", 900, FFN)
    assert (watched.one.kind, watched.one.first_step, watched.one.step, watched.one.count) == (
        "nan",
        300,
        900,
        2,
    )


def test_a_calm_drill_down_is_said_in_the_evidence() -> None:
    watched = Watched()
    watched.rows("modules", 300, FFN)
    watched.rows("ops", 303, [], calm=True, first=None, total=812)
    assert watched.one.count == 1
    assert "not seen again: in step 303 the outputs of all 812 operators" in said(watched.one.evidence)


def test_a_calm_look_by_key_is_a_note() -> None:
    watched = Watched()
    watched.send("rows", level="ops", step=40, calm=True, first=None, total=812, rows=[])
    assert not watched.incidents
    assert "in step 40 the outputs of all 812 operators were well" in said(watched.snapshot.notes)


def test_memory_is_bounded() -> None:
    watched = Watched()
    for number in range(MOST + 30):
        row = module(1, f"m.{number}", "Act", NAN, NAN)
        watched.rows("modules", number * 50, [row])
    assert len(watched.incidents) == MOST
    assert watched.snapshot.dropped == 30
    assert watched.incidents[-1].step == (MOST + 29) * 50


# Weights.


def test_weights_that_went_bad_after_a_bad_step_are_infected_not_the_source() -> None:
    watched = Watched()
    watched.pulse(losses=[[s, 2.0] for s in range(250, 300)], grads=[[299, 1.0]])
    watched.pulse(losses=[[300, NAN]], grads=[[300, NAN]])
    watched.rows(
        "modules",
        302,
        [module(1, "wte", "Embedding", NAN, NAN), module(2, "l.0.ln", "LayerNorm", NAN, NAN)],
        history=CLIMB,
        why="loss",
    )
    incident = watched.one
    assert (incident.kind, incident.first_step) == ("loss", 300)
    assert "in step 302 the weights themselves are bad" in said(incident.evidence)
    assert incident.source is not None, "the module that climbed before"
    assert (incident.source.path, incident.attribution) == ("l.12.mlp.up_proj", "likely")
    assert [point.abs_max for point in incident.climb] == [9000.0, 30000.0, 61440.0]
    assert advice.INFECTED in incident.advice
    watched.rows("modules", 303, [module(1, "wte", "Embedding", NAN, NAN)])
    assert said(watched.one.evidence).count("the weights themselves are bad") == 1


def test_a_bad_row_in_a_checkpoint_is_the_source() -> None:
    watched = Watched()
    watched.pulse(losses=[[1, NAN]])
    watched.rows(
        "modules", 1, [module(1, "wte", "Embedding", NAN, NAN), module(2, "ln", "LayerNorm", NAN, NAN)]
    )
    weight = {"i": 0, "path": "wte.weight", "part": "parameter", "min": NAN, "max": NAN, "bad": 64}
    watched.rows("parameters", 1, [{**weight, "position": [17, 0]}], total=30, bad=1)
    incident = watched.one
    assert incident.source is not None
    assert (incident.source.path, incident.attribution, incident.kind) == ("wte.weight", "exact", "nan")
    assert incident.first_seen is not None
    assert incident.first_seen.path == "wte"
    assert "the first at 17, 0" in say(incident.source_reason or Message(""))
    assert advice.WEIGHTS in incident.advice


def test_bad_weights_that_no_output_showed_are_a_line_with_since_when() -> None:
    watched = Watched()
    watched.pulse(losses=[[s, 2.0] for s in range(1, 50)], grads=[[49, 1.0]])
    weight = {"i": 0, "path": "head.weight", "part": "parameter", "min": NAN, "max": NAN}
    watched.rows("parameters", 51, [weight], total=30, bad=1)
    assert (watched.one.kind, watched.one.severity) == ("parameter", "error")
    assert "step 49 was still well, step 51 was not" in said(watched.one.evidence)
    fresh = Watched()
    fresh.rows("parameters", 1, [weight], total=30, bad=1)
    assert "no step before this one was seen to be well" in said(fresh.one.evidence)


def test_a_step_that_the_scaler_skipped_spoils_no_weights() -> None:
    watched = Watched()
    watched.pulse(losses=[[300, NAN]], scales=[[300, 1024]], skips=[300])
    rows = [module(1, "ln", "LayerNorm", -3.0, 3.0), module(2, "fc", "Linear", NAN, NAN)]
    watched.rows("modules", 301, rows)
    bad = next(one for one in watched.incidents if one.kind == "nan")
    assert bad.first_seen is not None
    assert bad.first_seen.path == "fc"


def test_weights_wait_for_the_word_whether_the_step_was_skipped() -> None:
    def told(skips: list[int]) -> Watched:
        watched = Watched()
        watched.pulse(losses=[[s, 2.0] for s in range(1, 60)], grads=[[59, 1.0]], scales=[[59, 1024]])
        watched.rows("loss", 61, [{"i": 0, "part": "loss", "min": NAN, "max": NAN}], loss=NAN)
        weight = {"i": 0, "path": "tokens.weight", "part": "parameter", "min": NAN, "max": NAN}
        watched.rows("parameters", 61, [weight], bad=1)
        watched.rows("ops", 62, [op(1, "embedding", NAN, NAN, path="tokens"), op(2, "add", NAN, NAN, 1)])
        assert watched.one.kind == "loss", "not known yet"
        watched.pulse(losses=[[61, NAN], [62, NAN]], grads=[[61, NAN]], skips=skips)
        return watched

    skipped = told([61, 62]).one
    assert (skipped.kind, skipped.level) == ("nan", "ops")
    assert skipped.source is not None
    assert (skipped.source.path, skipped.attribution) == ("tokens.weight", "exact")
    spoilt = told([]).one
    assert (spoilt.kind, spoilt.source) == ("loss", None)
    assert "the weights themselves are bad" in said(spoilt.evidence)


def test_few_bad_weights_beside_many_bad_gradients_are_a_fault_of_their_own() -> None:
    watched = Watched()
    watched.pulse(losses=[[60, 2.0], [61, NAN]], grads=[[61, NAN]])
    gradients = [{"i": i, "path": f"w{i}", "part": "gradient", "min": 0, "max": NAN} for i in range(20)]
    watched.rows("gradients", 61, gradients, bad=20)
    weight = {"i": 0, "path": "tokens.weight", "part": "parameter", "min": NAN, "max": NAN}
    watched.rows("parameters", 61, [weight], bad=1)
    watched.rows("ops", 62, [op(1, "embedding", NAN, NAN, path="tokens")])
    assert watched.one.source is not None
    assert watched.one.source.path == "tokens.weight"


def test_a_closer_look_that_knows_no_source_keeps_that_of_the_modules() -> None:
    watched = Watched()
    rows = [
        {"i": 1, "path": "0", "part": "input", "min": -3.0, "max": 3e38, "dtype": "float32"},
        module(2, "0", "Custom", MINUS, INF, dtype="float32"),
    ]
    watched.rows("modules", 61, rows)
    assert watched.one.source is not None
    watched.rows("ops", 62, [op(1, "addmm", MINUS, INF, path="0", dtype="float32")])
    assert (watched.one.level, watched.one.count) == ("ops", 2)
    assert watched.one.source is not None
    assert (watched.one.source.part, watched.one.source.abs_max) == ("input", 3e38)


# Loss, gradients, scale.


def test_a_loss_that_climbs_is_divergence_not_overflow() -> None:
    watched = Watched()
    for start in range(0, 600, 20):
        losses = [[s, 2.0 if s < 200 else 2.0 * 1.02 ** (s - 200)] for s in range(start, start + 20)]
        watched.pulse(losses=losses)
    assert levels(watched.incidents) == ["divergence"]
    assert watched.one.severity == "warning"
    assert advice.SLOW in watched.one.advice
    watched.pulse(losses=[[600, NAN]], grads=[[600, NAN]])
    bad = watched.incidents[-1]
    assert (bad.kind, bad.severity) == ("divergence", "error")
    assert "climbed" in say(bad.headline)
    assert advice.SLOW in bad.advice


def test_a_sudden_loss_says_so() -> None:
    watched = Watched()
    watched.pulse(losses=[[s, 2.0] for s in range(60)])
    watched.pulse(losses=[[60, INF]])
    assert (watched.one.kind, say(watched.one.headline)) == ("loss", "the loss is Inf")
    assert "not finite at once" in said(watched.one.evidence)


def test_a_loss_of_zero_with_nan_gradients_was_logged_so() -> None:
    watched = Watched()
    watched.pulse(losses=[[5, 0.0]], grads=[[5, NAN]])
    assert (watched.one.kind, watched.one.severity) == ("gradient", "error")
    assert "NaN as 0" in say(watched.one.headline)
    assert advice.LOGGED_ZERO in watched.one.advice


def test_gradients_alone() -> None:
    watched = Watched()
    watched.pulse(losses=[[5, 2.0]], grads=[[5, NAN]])
    rows = [
        {"i": i, "path": path, "part": "gradient", "phase": "backward", "min": 0, "max": NAN}
        for i, path in enumerate(["a.weight", "b.weight"])
    ]
    watched.rows("gradients", 5, rows, loss=2.0)
    incident = watched.one
    assert incident.kind == "gradient"
    assert incident.first_seen is not None
    assert incident.first_seen.path == "b.weight"
    assert advice.UNDER_MASK in incident.advice


def test_a_scalers_search_is_one_line_of_information() -> None:
    watched = Watched()
    scale = 65536.0
    for step in range(5):
        scale /= 2
        watched.rows(
            "gradients",
            step,
            [{"i": 1, "path": "w", "part": "gradient", "phase": "backward", "min": 0, "max": INF}],
            loss=2.0,
            scale=scale * 2,
        )
        watched.pulse(losses=[[step, 2.0]], grads=[[step, INF]], scales=[[step, scale]], skips=[step])
    for start in range(5, 105, 20):
        watched.pulse(losses=[[s, 2.0] for s in range(start, start + 20)], scales=[[start + 19, scale]])
    assert levels(watched.incidents) == ["scale_search"]
    assert (watched.one.severity, watched.one.count) == ("info", 5)
    assert not watched.alerts


def test_a_scale_that_collapses_is_an_error_with_the_place() -> None:
    watched = Watched()
    scale = 65536.0
    for start in range(0, 200, 20):
        watched.pulse(losses=[[s, 2.0] for s in range(start, start + 20)], scales=[[start + 19, scale]])
    for step in range(200, 240):
        scale /= 2
        watched.rows(
            "gradients",
            step,
            [{"i": 1, "path": "b.1.w", "part": "gradient", "phase": "backward", "min": 0, "max": INF}],
            loss=2.0,
            scale=scale * 2,
        )
        watched.pulse(losses=[[step, 2.0]], grads=[[step, INF]], scales=[[step, scale]], skips=[step])
    collapse = next(one for one in watched.incidents if one.kind == "scale_collapse")
    assert collapse.severity == "error"
    assert collapse.first_seen is not None
    assert collapse.first_seen.path == "b.1.w"
    assert [alert.severity for alert in watched.alerts].count("error") >= 1
    assert len(watched.alerts) <= 3, "forty bad steps are no forty alerts"


def test_a_scale_that_falls_because_of_a_bad_output_is_no_second_line() -> None:
    watched = Watched()
    watched.pulse(losses=[[s, 2.0] for s in range(60)], scales=[[59, 1024.0]])
    scale = 1024.0
    for step in range(60, 100):
        scale /= 2
        if step == 61:
            watched.rows("ops", step, FFN_OPS)
        watched.pulse(losses=[[step, NAN]], grads=[[step, NAN]], scales=[[step, scale]], skips=[step])
    assert [one.kind for one in watched.incidents if one.severity == "error"] == ["inf"]
    assert "it is not the cause" in said(watched.incidents[0].evidence)


def test_a_hard_cause_is_told_although_a_scaler_searches() -> None:
    watched = Watched()
    rows = [
        op(2, "sqrt", 0.0, 3.0, dtype="float32", path="dist"),
        op(3, "mean", 1.0, 1.0, dtype="float32"),
        op(4, "mul", 0.0, 6.0, 2, dtype="float32", phase="backward"),
        op(5, "div", 0.1, INF, 3, 4, dtype="float32", phase="backward"),
    ]
    watched.rows("ops", 5, rows, loss=2.0, scale=1024.0)
    assert watched.one.source is not None
    assert watched.one.source.path == "dist"
    assert advice.ROOT in watched.one.advice


def test_the_scaled_loss_leaving_float16_is_the_scalers_business() -> None:
    watched = Watched()
    rows = [op(1, "mean", 2.0, 2.0, shape=[]), op(2, "mul", INF, INF, 1, path="", shape=[])]
    watched.rows("ops", 5, rows, loss=2.0, scale=65536.0)
    assert not watched.incidents


def test_forward_overflow_is_told_although_a_scaler_is_there() -> None:
    watched = Watched()
    watched.rows("modules", 5, FFN, loss=2.0, scale=65536.0)
    assert watched.one.kind == "nan"


def test_gradients_of_zero() -> None:
    watched = Watched()
    for step in (10, 20):
        watched.pulse(fp16_zero_grads=[step, 0.8])
    assert not watched.incidents
    watched.pulse(fp16_zero_grads=[30, 0.8])
    watched.pulse(fp16_zero_grads=[40, 0.9])
    assert (watched.one.kind, watched.one.severity, watched.one.count) == ("underflow", "warning", 2)
    assert say(watched.one.headline).startswith("80 %")
    assert advice.UNDERFLOW in watched.one.advice


# Near, clamped, memory.


def test_near_the_limit_is_a_warning_with_its_climb() -> None:
    watched = Watched()
    for step in (300, 310, 320):
        watched.rows("modules", step, FFN[:2], near=[2], history=CLIMB)
    assert (watched.one.kind, watched.one.severity, watched.one.count) == ("near_limit", "warning", 3)
    assert len(watched.one.climb) == 3
    watched.rows("ops", 321, FFN_OPS[:2], first=None)
    assert (watched.one.level, watched.one.count) == ("ops", 4)
    assert len(watched.alerts) == 1
    assert advice.WALK_BACK not in watched.one.advice
    assert advice.CLIP in watched.one.advice


def test_on_a_clamping_chip_the_register_is_refined_by_the_outputs() -> None:
    watched = Watched()
    watched.pulse(saturates=True, register=True, register_step=7)
    assert (watched.one.kind, watched.one.severity) == ("saturated", "warning")
    assert "not what" in said(watched.one.evidence)
    rows = [op(1, "addmm", -9.0, 61440.0, path="up"), op(2, "mul", 0.0, 65504.0, 1, path="act")]
    watched.rows("ops", 8, rows, first=None, near=[1, 2])
    incident = watched.one
    assert (incident.kind, incident.severity, incident.level) == ("saturated", "error", "ops")
    assert incident.first_seen is not None
    assert incident.source is not None
    assert (incident.first_seen.path, incident.source.path) == ("act", "up")
    assert advice.SATURATES in incident.advice
    assert "clamps" in said(watched.snapshot.notes)


def test_a_register_in_a_step_that_the_scaler_skipped_is_its_search() -> None:
    watched = Watched()
    watched.pulse(saturates=True, register=True, register_step=7, skips=[7], scales=[[7, 32768.0]])
    assert levels(watched.incidents) == ["scale_search"]


def test_what_finite_values_cannot_lead_to_hints_at_the_sanitizer() -> None:
    watched = Watched()
    rows = [op(1, "mm", -3.0, 3.0), op(2, "clone", NAN, NAN, 1)]
    for step in (5, 6, 7):
        watched.rows("ops", step, rows)
    assert (watched.one.attribution, watched.one.source) == ("async", None)
    (hint,) = [event for event in watched.events if isinstance(event, Hint)]
    assert (hint.plugin, hint.command) == ("overflow", "sanitizer")
    assert "memory or the kernel" in say(hint.reason)
    assert advice.SANITIZER in watched.one.advice


def test_only_the_place_is_known() -> None:
    watched = Watched()
    watched.rows(
        "modules", 5, [module(1, "conv", "Custom", -3.0, 3.0), module(2, "mixed_qkv", "Custom", NAN, NAN)]
    )
    assert (watched.one.source, watched.one.source_reason) == (None, None)
    assert say(watched.one.headline) == "NaN in mixed_qkv (float16)"
    assert advice.operators() in watched.one.advice


# Ranks.


def test_the_rank_that_was_first_is_the_suspect() -> None:
    watched = Watched()
    targets = [TargetId(4_000_000 + rank, 1) for rank in range(4)]
    for rank, target in enumerate(targets):
        watched.pulse(target, rank=rank, losses=[[99, 2.0]])
    for rank, target in enumerate(targets):
        if rank == 2:
            watched.pulse(target, losses=[[100, NAN]], grads=[[100, NAN]])
        else:
            watched.pulse(target, losses=[[100, 2.0]], grads=[[100, NAN]])
    (first,) = watched.collector.snapshot(targets[2]).incidents
    assert first.ranks == (2,)
    assert "rank 2 was first, at its step 100; ranks 0, 1, 3 are likely infected" in said(first.evidence)
    (other,) = watched.collector.snapshot(targets[0]).incidents
    assert other.ranks == (0,)
    assert "first on rank 2, at its step 100" in said(other.evidence)


def test_ranks_that_are_bad_at_once_are_not_judged() -> None:
    watched = Watched()
    targets = [TargetId(4_000_000 + rank, 1) for rank in range(2)]
    for rank, target in enumerate(targets):
        watched.pulse(target, rank=rank, losses=[[100, NAN]])
    (incident,) = watched.collector.snapshot(targets[0]).incidents
    assert "which was first is not known" in said(incident.evidence)


# Advice.


def test_early_steps_and_named_modules_are_advised() -> None:
    watched = Watched()
    watched.rows("modules", 40, FFN)
    told = said(watched.one.advice)
    assert "5 to 10 back" in told
    assert "feed-forward" in told
    assert "bfloat16" in told
    assert "press d" in told
    late = Watched()
    late.rows("ops", 4000, FFN_OPS)
    assert "first 100 steps" not in said(late.one.advice)
    assert "watch only the modules around l.12.mlp" in said(late.one.advice)
    early = Watched()
    early.rows("ops", 40, [op(1, "log", MINUS, 0.0, 0), op(0, "_softmax", 0.0, 1.0)])
    assert "first 100 steps" in said(early.one.advice)
    assert advice.LOG in early.one.advice
    assert advice.SMALL in early.one.advice


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([op(1, "mm", 0.0, 60.0, shape=[64, 2048]), op(2, "sum", 0.0, INF, 1, shape=[64])], advice.REDUCE),
        (
            [op(1, "full", MINUS, 3.0, intended=True), op(2, "_softmax", NAN, NAN, 1)],
            advice.MASKED_ROW,
        ),
        ([op(1, "rsub", 6e-8, 1.0), op(2, "reciprocal", INF, INF, 1)], advice.DENOMINATOR),
        (
            [op(1, "mm", -1.0, 1.0), op(2, "mul", 0.0, 900.0, 1, path="l.dequant"), op(3, "mm", INF, INF, 2)],
            advice.RECHECK,
        ),
        (
            [
                op(1, "view", -300.0, 300.0, shape=[8, 64]),
                op(2, "transpose", -300.0, 300.0, shape=[64, 8]),
                op(3, "bmm", INF, INF, 1, 2),
                op(4, "_softmax", NAN, NAN, 3),
            ],
            advice.LOGITS,
        ),
    ],
)
def test_each_typical_place_has_its_advice(rows: list[dict[str, Any]], expected: Message) -> None:
    watched = Watched()
    watched.rows("ops", 4000, rows)
    assert expected in watched.one.advice


def row(path: str, name: str = "", dtype: str = "float16", **more: Any) -> Output:
    return Output(1, path, op=f"aten::{name}" if name else "", dtype=dtype, high=1.0, **more)


@pytest.mark.parametrize(
    ("output", "device", "words"),
    [
        (row("l.mlp.up_proj"), "npu", 'torch.autocast("npu", enabled=False)'),
        (row("l.mlp.up_proj"), "", "torch.autocast(x.device.type, enabled=False)"),
        (row("l.mlp.up_proj"), "npu", "x = self.up_proj(x.float())"),
        (row("l.mlp.2"), "cuda", 'model.get_submodule("l.mlp.2")'),
        (row("l.up_proj", "_to_copy", module_type="Linear"), "npu", "x = self.up_proj(x.float())"),
        (row("l.up_proj", "mm", module_type="Linear"), "", "torch.autocast(x.device.type, enabled=False)"),
        (row("attn", "mul"), "", "torch.autocast(a.device.type, enabled=False)"),
        (row("attn", "bmm"), "npu", "torch.bmm(a.float(), b.float())"),
        (row("attn", "_softmax"), "npu", "dtype=torch.float32"),
        (row("loss", "sum"), "npu", "x.sum(dim=-1, dtype=torch.float32)"),
    ],
)
def test_code_that_keeps_the_source_in_float32(output: Output, device: str, words: str) -> None:
    assert words in keep_fp32(output, device)


@pytest.mark.parametrize(
    "output",
    [
        None,
        row("a.b", dtype="float32"),
        row("", ""),
        row('a"); import os; ("', ""),
        row("a.b\nimport os"),
        row("a", "unknown_op"),
        row("a", "mm", phase="backward"),
    ],
)
def test_no_code_where_none_is_right(output: Output | None) -> None:
    assert keep_fp32(output, "npu") == ""


def test_a_foreign_device_does_not_get_into_code() -> None:
    assert "import" not in keep_fp32(row("a.b"), '"); import os; ("')


_TRIED = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj = nn.Linear(4, 4)
    def forward(self, x):
        {code}
        return x

torch.manual_seed(0)
block, x = Block(), torch.full((2, 4), 60000.0)
with torch.no_grad():
    block.up_proj.weight.fill_(1.0)
with torch.autocast("cpu", dtype=torch.float16):
    out = block(x)
assert out.dtype is torch.float32 and out.isfinite().all() and out.max() > 65504, out

model = nn.Sequential(nn.Linear(4, 4).half())
{wrapped}
assert model(torch.ones(2, 4).half()).dtype is torch.float32

a = b = torch.full((1, 2, 2), 300.0, dtype=torch.float16)
{product}
assert x.dtype is torch.float32 and x.max() == 180000

x = torch.full((2, 2048), 60.0, dtype=torch.float16)
{summed}
assert x.tolist() == [122880.0, 122880.0]
"""


def test_the_code_does_what_it_says() -> None:
    code = keep_fp32(row("l.mlp.up_proj"), "cpu").replace("\n", "\n        ")
    source = _TRIED.format(
        code=code,
        wrapped=keep_fp32(row("0"), "cpu"),
        product=keep_fp32(row("attn", "bmm"), "cpu"),
        summed=keep_fp32(row("", "sum"), "cpu"),
    )
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [sys.executable, "-c", source],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# Hostile records.


def test_the_snapshot_is_strict_json() -> None:
    watched = Watched()
    watched.pulse(losses=[[300, NAN]], grads=[[300, INF]])
    watched.rows("modules", 300, FFN, history=CLIMB)
    text = json.dumps(as_json(watched.snapshot), allow_nan=False)
    assert '"first_seen"' in text
    assert "up_proj" in text


_VALUE = st.sampled_from([NAN, INF, MINUS, 0.0, 1.0, -6e4, 61440.0, 65504.0, 3.4e38, 1e-7])
_OPS = [
    "mm",
    "bmm",
    "add",
    "mul",
    "div",
    "log",
    "sqrt",
    "rsqrt",
    "exp",
    "pow",
    "_softmax",
    "masked_fill",
    "sum",
    "_to_copy",
    "clone",
    "empty",
    "fill_",
    "zz",
]
_ROW = st.fixed_dictionaries(
    {"i": st.integers(0, 12), "min": _VALUE, "max": _VALUE},
    optional={
        "path": st.sampled_from(["", "a", "a.b", "a.b.mlp", "attn", "\x1b[2J"]),
        "part": st.sampled_from(["output", "input", "loss", "gradient", "parameter"]),
        "op": st.sampled_from([f"aten::{name}" for name in _OPS]),
        "type": st.sampled_from(["Linear", "Embedding", "LayerNorm", "Softmax"]),
        "phase": st.sampled_from(["forward", "backward"]),
        "dtype": st.sampled_from(["float16", "bfloat16", "float32", "int64", ""]),
        "shape": st.lists(st.integers(0, 9), max_size=3),
        "from": st.lists(st.integers(0, 12), max_size=4),
        "zero": st.floats(0, 1),
        "bad": st.integers(0, 5),
        "intended": st.booleans(),
    },
)
_RECORD = st.fixed_dictionaries(
    {
        "level": st.sampled_from(["loss", "gradients", "parameters", "modules", "ops"]),
        "step": st.integers(0, 60),
    },
    optional={
        "rows": st.lists(_ROW, max_size=8),
        "first": st.one_of(st.none(), st.integers(0, 12)),
        "calm": st.booleans(),
        "loss": _VALUE,
        "scale": _VALUE,
        "total": st.integers(0, 20),
        "bad": st.integers(0, 20),
        "history": st.lists(
            st.fixed_dictionaries(
                {"path": st.sampled_from(["a", "a.b"])},
                optional={"points": st.lists(st.tuples(st.integers(0, 60), _VALUE), max_size=5)},
            ),
            max_size=2,
        ),
    },
)
_STEPS = st.lists(st.tuples(st.integers(0, 60), _VALUE), max_size=6)
_PULSE = st.fixed_dictionaries(
    {},
    optional={
        "losses": _STEPS,
        "grads": _STEPS,
        "scales": _STEPS,
        "skips": st.lists(st.integers(0, 60), max_size=6),
        "saturates": st.booleans(),
        "register": st.booleans(),
        "register_step": st.integers(0, 60),
        "fp16_zero_grads": st.tuples(st.integers(0, 60), st.floats(0, 1)),
        "rank": st.integers(0, 3),
    },
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(_RECORD.map(lambda one: ("rows", one)), _PULSE.map(lambda one: ("pulse", one))), max_size=8
    )
)
def test_no_record_makes_it_raise(records: list[tuple[str, dict[str, Any]]]) -> None:
    watched = Watched()
    for kind, data in records:
        watched.send(kind, **data)
        snapshot = watched.snapshot
        json.dumps(as_json(snapshot), allow_nan=False)
        for incident in snapshot.incidents:
            assert incident.first_step <= incident.step
            for message in (incident.headline, *incident.evidence, *incident.advice):
                assert "{" not in say(message)
                message.render()


def test_unknown_kinds_of_records_are_left_out() -> None:
    watched = Watched()
    watched.send("weather", rain=True)
    watched.send("rows", level=7)
    watched.send("rows", rows="x", level="ops", history={"a": 1}, stack=3)
    assert not watched.incidents
    assert dataclasses.is_dataclass(watched.snapshot)
