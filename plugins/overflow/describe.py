"""Findings as incidents: the headline, the window around the first bad output, and what else is known."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from ascend_tui.judging.losses import LossFinding
from ascend_tui.judging.scaling import ScaleFinding
from ascend_tui.plugin import Message, Severity

from . import advice
from .causes import place
from .decode import Rows
from .origin import CLIMBED, Finding, climb_of
from .snapshot import Incident, Kind, Output, Point
from .values import figure, is_extreme, is_nan

BEFORE, AFTER = 10, 3
"""Outputs shown around the first bad one, as the probe keeps them."""
MOST_WINDOW = 24
MOST_CLIMB = 64

SATURATES = Message("this chip clamps what does not fit into float16: no Inf will ever be seen")
DIVERGED = Message("the loss climbed until it was no number any more: divergence, not an overflow")

_BAD = Message("{value} in {place} ({dtype})")
_BAD_FROM = Message("{value} in {place} ({dtype}), likely from {source}")
_BAD_SURELY_FROM = Message("{value} in {place} ({dtype}), from {source}")
_BAD_HERE = Message("{value} made in {place} ({dtype})")
_NEAR = Message("near the limit of {dtype}: {place} at {value}")
_HUGE = Message("huge but finite: {place} at {value}")
_UNDERFLOW = Message("underflow to zero in {place} ({dtype})")
_SATURATED = Message("clamped at {value}: {place}")
_LOSS = Message("the loss is {value}")
_GRADIENT = Message("the gradient of {place} is {value}")
_ANY_GRADIENT = Message("a gradient is {value}")
_PARAMETER = Message("bad values in the weights: {place}")
_MASKED = Message("a fully masked row in {place}")
_REGISTER = Message("something overflowed: the chip's overflow register was set")
_NOT_WHAT = Message("the register tells that something overflowed since the step before, not what")
_ZERO_LOSS = Message("the loss is exactly zero with NaN gradients: a logger may write NaN as 0")
_ZERO_LOSS_WHY = Message("a loss of exactly 0.0 has gradients of zero, not NaN")
_DIVERGES = Message("the loss climbs: divergence, not an overflow")
_ZEROS = Message("{share} of the half-precision gradients are wholly zero")
_CALM = {
    "ops": Message("not seen again: in step {step} the outputs of all {n} operators were well"),
    "modules": Message("not seen again: in step {step} the outputs of all {n} modules were well"),
}
_SPOILT = Message(
    "in step {step} the weights themselves are bad, after a step with bad gradients or a bad loss"
)
_WEIGHTS_SINCE = Message("step {good} was still well, step {step} was not")
_WEIGHTS_ALWAYS = Message("no step before this one was seen to be well: the weights may have been loaded so")
_CLIMBING = Message("before the weights went bad it climbed: |x| max {before} → {after}")
_HOT = Message("before the weights went bad it was nearest to the limit, at {value}")


def of_finding(finding: Finding, rows: Rows, wall_s: float, device: str) -> Incident:
    """Return a finding as an incident seen once."""
    source = finding.source
    return Incident(
        kind=finding.kind,
        severity=finding.severity,
        headline=headline(finding),
        step=rows.step,
        attribution=finding.attribution,
        first_step=rows.step,
        wall_s=wall_s,
        level=rows.level,
        first_seen=finding.first,
        source=source,
        source_reason=finding.source_reason,
        window=window(rows.outputs, finding),
        climb=climb_of(source or finding.first, rows.history)[-MOST_CLIMB:],
        stack=rows.stack,
        evidence=finding.evidence,
        advice=advice.advise(finding, rows.level, rows.step),
        keep_fp32=advice.keep_fp32(source if source and source.part == "output" else finding.first, device),
    )


def headline(finding: Finding) -> Message:
    """Return a finding in one sentence."""
    first, source = finding.first, finding.source
    value = "NaN" if is_nan(first) else "-Inf" if first.high < math.inf else "Inf"
    dtype = first.dtype or "?"
    where = place(first) if first.part != "input" else f"{first.path} (input)"
    if finding.kind in ("nan", "inf"):
        if source is None:
            return Message.of(_BAD.text, value=value, place=where, dtype=dtype)
        if source is first:
            return Message.of(_BAD_HERE.text, value=value, place=where, dtype=dtype)
        words = _BAD_SURELY_FROM if finding.attribution == "exact" else _BAD_FROM
        return Message.of(words.text, value=value, place=where, dtype=dtype, source=place(source))
    size = figure(first.abs_max)
    if finding.kind == "gradient" and first.path:
        return Message.of(_GRADIENT.text, place=first.path, value=value)
    words = {
        "near_limit": _NEAR,
        "huge": _HUGE,
        "underflow": _UNDERFLOW,
        "saturated": _SATURATED,
        "loss": _LOSS,
        "gradient": _ANY_GRADIENT,
        "parameter": _PARAMETER,
        "masked_row": _MASKED,
    }[finding.kind]
    value = value if finding.kind in ("loss", "gradient") else size
    return Message.of(words.text, place=where, dtype=dtype, value=value)


def window(rows: Sequence[Output], finding: Finding) -> tuple[Output, ...]:
    """Return the outputs around the first bad one, and its source where that is older."""
    first, source = finding.first, finding.source
    earlier = [row for row in rows if row.index < first.index]
    later = [row for row in rows if row.index > first.index]
    kept = {row.index: row for row in (*earlier[-BEFORE:], first, *later[:AFTER])}
    # What a source was made of tells whether it jumped.
    chain = [row for row in rows if source is not None and row.index in (source.sources or ())]
    for row in (*chain, *((source,) if source is not None else ())):
        if row.part in ("output", "input"):
            kept.setdefault(row.index, row)
    return tuple(kept[index] for index in sorted(kept))[-MOST_WINDOW:]


def alone(output: Output) -> Finding:
    """Return that a loss or a gradient is bad, and nothing is known of the outputs."""
    if output.part == "loss":
        return Finding("loss", "error", output, cause="unknown")
    return Finding("gradient", "error", output, cause="backward")


def zero_loss(step: int, wall_s: float) -> Incident:
    """Return a loss that is zero only because somebody wrote it so."""
    told = (advice.LOGGED_ZERO, advice.UNDER_MASK)
    return bare("gradient", "error", _ZERO_LOSS, step, wall_s, advice=told, evidence=(_ZERO_LOSS_WHY,))


def divergence(found: LossFinding, step: int, wall_s: float) -> Incident:
    """Return a loss that climbs while it is still finite."""
    return bare("divergence", "warning", _DIVERGES, step, wall_s, found.reason, advice=(advice.SLOW,))


def scale(found: ScaleFinding, step: int, count: int, wall_s: float) -> Incident:
    """Return what the loss scale does."""
    told = (*found.advice, advice.SCALE) if found.scale_is_not_the_cause else found.advice
    plain = bare(found.kind, found.severity, found.headline, step, wall_s, found.reason, advice=told)
    first = min(step, found.since_step)
    return dataclasses.replace(plain, first_step=first, count=count, level="gradients")


def register(step: int, wall_s: float) -> Incident:
    """Return that a chip without Inf says that something overflowed."""
    told = (advice.SATURATES, advice.operators())
    return bare("saturated", "warning", _REGISTER, step, wall_s, evidence=(_NOT_WHAT,), advice=told)


def zero_gradients(step: int, share: float, wall_s: float) -> Incident:
    """Return that gradients are too small for float16."""
    words = Message.of(_ZEROS.text, share=f"{share * 100:.0f} %")
    return bare("underflow", "warning", words, step, wall_s, advice=(advice.UNDERFLOW, advice.BF16))


def calm(rows: Rows) -> Message:
    """Return that a closer look saw nothing."""
    words = _CALM["ops" if rows.level == "ops" else "modules"]
    return Message.of(words.text, step=f"{rows.step:,}", n=f"{rows.total:,}")


def spoilt(step: int) -> Message:
    """Return that the weights are bad because of a step before."""
    return Message.of(_SPOILT.text, step=f"{step:,}")


def weights_since(step: int, good: int | None) -> Message:
    """Return since when the weights are bad, as far as that was seen."""
    if good is None or good >= step:
        return _WEIGHTS_ALWAYS
    return Message.of(_WEIGHTS_SINCE.text, step=f"{step:,}", good=f"{good:,}")


def climbing(rows: Rows, hottest: Sequence[Output]) -> tuple[Output, Message, tuple[Point, ...]] | None:
    """Return the output that climbed most before the weights went bad, else the one at its limit."""
    best: tuple[float, Output, Message, tuple[Point, ...]] | None = None
    for one in rows.history:
        points = tuple(p for p in one.points if 0 < p.abs_max < math.inf and p.step <= rows.step)
        if len(points) < 3 or points[-1].abs_max < CLIMBED * points[0].abs_max:
            continue
        times = points[-1].abs_max / points[0].abs_max
        if best is None or times > best[0]:
            words = Message.of(
                _CLIMBING.text, before=figure(points[0].abs_max), after=figure(points[-1].abs_max)
            )
            found = Output(0, one.path, one.part, op=one.op, high=points[-1].abs_max)
            best = times, found, words, points[-MOST_CLIMB:]
    if best is not None:
        return best[1:]
    hot = next((row for row in hottest if is_extreme(row)), None)
    return None if hot is None else (hot, Message.of(_HOT.text, value=figure(hot.abs_max)), ())


def bare(
    kind: Kind,
    severity: Severity,
    words: Message,
    step: int,
    wall_s: float,
    reason: Message | None = None,
    evidence: tuple[Message, ...] = (),
    advice: tuple[Message, ...] = (),
) -> Incident:
    """Return an incident of which no output is known."""
    return Incident(
        kind=kind,
        severity=severity,
        headline=words,
        step=step,
        first_step=step,
        wall_s=wall_s,
        source_reason=reason,
        evidence=evidence,
        advice=advice,
    )
