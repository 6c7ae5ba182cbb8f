"""One target: its stream of incidents, and the newest numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

from ascend_tui.judging.losses import Losses, LossFinding
from ascend_tui.plugin import Message

from . import advice, describe
from .decode import Pulse, Rows
from .incidents import Fault, Group, News, Stream
from .origin import Finding, judge
from .scale_line import ScaleLine
from .snapshot import Incident, Level, LevelName, Output, OverflowSnapshot
from .weights import Weights

MOST_STEPS = 256
"""Losses and norms of so many steps are kept to be compared with each other."""
ZERO_SHARE, ZERO_PULSES = 0.5, 3
"""From this share of wholly zero gradients on, so many times in a row, they underflow."""
UNTOLD_SKIPS = 4
MOST_WAITING = 8
"""Findings that wait for the next pulse."""

Touched = tuple[Fault, News]


class State:
    """What is known of one target."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.stream = Stream()
        self.rank: int | None = None
        self._device = ""
        self._is_live = False
        self._levels: tuple[Level, ...] = ()
        self._watched = 0
        self._saturates: bool | None = None
        self._hottest: tuple[Output, ...] = ()
        self._unseen: tuple[Message, ...] = ()
        self._note: Message | None = None
        self.captured: Message | None = None
        """How the last saving of tensors ended."""
        self._losses = Losses()
        self._loss: dict[int, float] = {}
        self._grads: dict[int, float] = {}
        self._skips: dict[int, None] = {}
        self._scale = ScaleLine(self.stream, self._skips)
        self._skipped = 0
        self._told_to = -1
        self._zero_pulses = 0
        self._weights = Weights()
        self._looked: Rows | None = None
        self._waiting: list[tuple[Finding, Rows, float]] = []

    # A pulse.

    def take_pulse(self, pulse: Pulse, wall_s: float) -> list[Touched]:
        """Take a second of watching; return the incidents that it touched."""
        self._is_live = True
        self.rank = self.rank if pulse.rank is None else pulse.rank
        self._device = pulse.device or self._device
        self._watched = self._watched if pulse.watched is None else pulse.watched
        self._skipped = self._skipped if pulse.skipped is None else pulse.skipped
        self._saturates = self._saturates if pulse.saturates is None else pulse.saturates
        self._levels = self._levels if pulse.levels is None else pulse.levels
        self._hottest = self._hottest if pulse.hottest is None else pulse.hottest
        self._unseen = self._unseen if pulse.unseen is None else pulse.unseen
        if pulse.scales:
            self._scale.scale = pulse.scales[-1][1]
        _keep(self._skips, ((step, None) for step in pulse.skips))
        self._told_to = max([self._told_to, *pulse.skips, *(step for step, _ in pulse.losses)])
        touched = self._take_waiting()
        touched += self._take_losses(pulse, wall_s)
        touched += self._scale.take(pulse, self._losses.bad_since, wall_s)
        touched += self._take_register(pulse, wall_s)
        touched += self._take_zeros(pulse, wall_s)
        self._date_back()
        return touched

    def _take_losses(self, pulse: Pulse, wall_s: float) -> list[Touched]:
        touched = []
        _keep(self._grads, pulse.grads)
        for step, loss in sorted(pulse.losses, key=lambda one: one[0]):
            old = self._loss.get(step, 0.0)
            # Of several losses in a step the bad one counts, then one that is not zero.
            _keep(self._loss, [(step, old if not math.isfinite(old) or (old and not loss) else loss)])
            self._losses.take(step, loss)
            if math.isfinite(loss):
                if math.isfinite(self._grads.get(step, 0.0)) and step not in self._skips:
                    self.stream.good_step = max(step, self.stream.good_step or 0)
                continue
            touched.append(self._bad_loss(step, loss, wall_s, self._losses.judge_bad(step)))
        for step, norm in pulse.grads:
            loss = self._loss.get(step, math.nan)
            # A scale that has collapsed makes zero of any loss.
            collapsed = self._scale.scale is not None and self._scale.scale < 1
            if norm != norm and loss == 0.0 and not collapsed:
                incident = describe.zero_loss(step, wall_s)
                touched.append(self.stream.take("loss", incident, "zero_loss"))
            elif not math.isfinite(norm) and math.isfinite(loss) and not self._is_scalers(step):
                output = Output(0, "", part="gradient", phase="backward", low=0.0, high=norm)
                touched.append(self._take_finding(*_alone(output, step), wall_s))
        slow = self._losses.judge()
        if slow is not None and pulse.losses and self._losses.bad_since is None:
            incident = describe.divergence(slow, pulse.losses[-1][0], wall_s)
            touched.append(self.stream.take("loss", incident, "slow"))
        return touched

    def _is_scalers(self, step: int) -> bool:
        """Tell whether a scaler has dealt with the bad gradients of a step."""
        return step in self._skips or self._scale.is_scaled()

    def _date_back(self) -> None:
        """Let a fault of the backward pass begin where the scaler began to skip steps because of it."""
        fault = next((one for one in reversed(self.stream.faults) if one.group == "bad"), None)
        if (
            fault is None
            or fault.incident.first_seen is None
            or fault.incident.first_seen.phase != "backward"
        ):
            return
        first = fault.incident.first_step
        # Of many skips a few may not have been told.
        while before := [step for step in range(first - UNTOLD_SKIPS, first) if step in self._skips]:
            first = before[0]
        fault.incident = dataclasses.replace(fault.incident, first_step=first)

    def _bad_loss(self, step: int, loss: float, wall_s: float, why: LossFinding) -> Touched:
        output = Output(0, "", part="loss", low=loss, high=loss)
        fault, news = self._take_finding(*_alone(output, step), wall_s)
        if fault.incident.first_step == step:
            fault.add(why.reason)
            if why.kind == "slow":
                fault.advise(advice.SLOW)
            if why.kind == "slow" and not fault.placed:
                fault.incident = dataclasses.replace(
                    fault.incident, kind="divergence", headline=describe.DIVERGED, source_reason=why.reason
                )
        return fault, news

    def _take_register(self, pulse: Pulse, wall_s: float) -> list[Touched]:
        step = pulse.register_step
        if step is None or (self._scale.is_scaled() and step in self._skips):
            return []
        return [self.stream.take("bad", describe.register(step, wall_s), "saturated")]

    def _take_zeros(self, pulse: Pulse, wall_s: float) -> list[Touched]:
        if pulse.zero_grads is None:
            return []
        step, share = pulse.zero_grads
        self._zero_pulses = self._zero_pulses + 1 if share >= ZERO_SHARE else 0
        if self._zero_pulses < ZERO_PULSES:
            return []
        incident = describe.zero_gradients(step, share, wall_s)
        return [self.stream.take("zero", incident, "underflow")]

    # The evidence of a step.

    def take_rows(self, rows: Rows, wall_s: float) -> Sequence[Touched]:
        """Take the outputs of one step; return the incidents that they touched."""
        self._is_live = True
        if rows.of_weights:
            self._weights.rows = rows
            again = self._looked_again(rows, wall_s)
            if again:
                return again
        if rows.calm or not rows.outputs:
            return self._take_calm(rows, wall_s)
        if not rows.of_weights and rows.level in ("modules", "ops"):
            self._looked = rows
        finding = self._judge(rows)
        if finding is None or finding.is_harmless:
            return ()
        if self._scale.excuses(finding, rows, self._loss_of(rows)):
            return ()
        if finding.first.part == "gradient":
            _keep(self._weights.bad_gradients, [(rows.step, rows.bad)])
        fault = self.stream.open_bad(rows.step)
        is_told = fault is not None and fault.incident.first_step <= self._told_to
        if self._weights.may_explain(finding, rows, fault) and not is_told:
            # Whether the step before was skipped, so that it changed no weight, is told by the next pulse.
            self._waiting = [*self._waiting[-MOST_WAITING + 1 :], (finding, rows, wall_s)]
            return ()
        return [self._take_finding(finding, rows, wall_s)]

    def _take_waiting(self) -> list[Touched]:
        waiting, self._waiting = self._waiting, []
        return [self._take_finding(finding, rows, wall_s) for finding, rows, wall_s in waiting]

    def _judge(self, rows: Rows) -> Finding | None:
        parameters, loss = self._weights.of_step(rows.step), self._loss_of(rows)
        grads = self._grads.get(rows.step, 0.0)
        trouble = not (math.isfinite(loss) and math.isfinite(grads)) or rows.why in ("loss", "gradients")
        return judge(
            rows.outputs, rows.first, self._saturates, rows.history, parameters=parameters, trouble=trouble
        )

    def _loss_of(self, rows: Rows) -> float:
        return rows.loss if rows.loss is not None else self._loss.get(rows.step, 0.0)

    def _looked_again(self, weights: Rows, wall_s: float) -> list[Touched]:
        """Judge the outputs of the same step again, now that its weights are known."""
        looked = self._looked
        if looked is None or looked.step != weights.step:
            return []
        finding, fault = self._judge(looked), self.stream.open_bad(looked.step)
        if finding is None or finding.is_harmless or fault is None:
            return []
        source = fault.incident.source
        is_known = source is not None and source.part == "parameter"
        spoilt = self._weights.explain(finding, looked, fault, self._skips)
        if finding.cause == "weights" and not is_known and not spoilt:
            return [(fault, fault.refine(self._incident(finding, looked, wall_s), finding.cause))]
        return []

    def _take_calm(self, rows: Rows, wall_s: float) -> Sequence[Touched]:
        if rows.loss is not None and not math.isfinite(rows.loss) and rows.level == "loss":
            output = Output(0, "", part="loss", low=rows.loss, high=rows.loss)
            return [self._take_finding(*_alone(output, rows.step), wall_s)]
        if not rows.calm or rows.of_weights:
            return ()
        words = describe.calm(rows)
        fault = self.stream.open_bad(rows.step)
        if fault is not None and rows.step >= fault.incident.first_step:
            fault.add(words)
            return [(fault, "more")]
        self._note = words
        return ()

    def _take_finding(self, finding: Finding, rows: Rows, wall_s: float) -> Touched:
        bad = finding.kind not in ("near_limit", "huge", "underflow")
        group: Group = "bad" if bad else "near"
        before = self.stream.open_bad(rows.step)
        infected = bad and self._weights.explain(finding, rows, before, self._skips)
        fault, news = self.stream.take(group, self._incident(finding, rows, wall_s), finding.cause, infected)
        if infected:
            self._spoilt(fault, finding, rows)
        elif finding.cause == "weights" and news in ("new", "placed"):
            fault.add(describe.weights_since(rows.step, self.stream.good_step))
        return fault, news

    def _spoilt(self, fault: Fault, finding: Finding, rows: Rows) -> None:
        fault.add(describe.spoilt(rows.step))
        fault.advise(advice.INFECTED)
        if fault.incident.source is None:
            climbing = describe.climbing(rows, self._hottest)
            if climbing is not None:
                source, words, climb = climbing
                fault.incident = dataclasses.replace(
                    fault.incident, source=source, source_reason=words, attribution="likely", climb=climb
                )

    def _incident(self, finding: Finding, rows: Rows, wall_s: float) -> Incident:
        told = describe.of_finding(finding, rows, wall_s, self._device)
        if self.rank is not None:
            told = dataclasses.replace(told, ranks=(self.rank,))
        return told

    # What is shown.

    def snapshot(self) -> OverflowSnapshot:
        """Return the present state; the incidents' ranks are told by who knows the other targets."""
        blind = [level for level in self._levels if not level.on and level.why is not None]
        degraded = any(level.name in ("loss", "gradients") for level in blind)
        return OverflowSnapshot(
            state="waiting" if not self._is_live else "degraded" if degraded else "live",
            incidents=self.stream.incidents(),
            dropped=self.stream.dropped,
            levels=self._levels,
            steps_watched=self._watched,
            loss=_newest(self._loss),
            grad_norm=_newest(self._grads),
            scale=self._scale.scale,
            skipped=self._skipped,
            saturates=self._saturates,
            hottest=self._hottest,
            unseen=self._unseen,
            notes=tuple(
                one
                for one in (describe.SATURATES if self._saturates else None, self._note, self.captured)
                if one is not None
            ),
        )


def _alone(output: Output, step: int) -> tuple[Finding, Rows]:
    level: LevelName = "loss" if output.part == "loss" else "gradients"
    return describe.alone(output), Rows(level, step)


def _keep(known: dict[int, Any], new: Iterable[tuple[int, Any]]) -> None:
    """Add to what is known of steps, and let the oldest go."""
    known.update(new)
    for step in sorted(known)[:-MOST_STEPS]:
        del known[step]


def _newest(values: dict[int, float]) -> float | None:
    return values[max(values)] if values else None
