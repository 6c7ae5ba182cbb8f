"""Which output of a step was bad first, and which one likely made it so.

The operator that a report names is where values went over the edge; the cause is usually some outputs
earlier.  Later bad outputs are infected and never the suspect.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Attribution, Message, Severity

from . import operators as of
from .arithmetic import Cause, underflows
from .causes import cause, climbed, place
from .decode import History
from .flow import Flow
from .snapshot import Kind, Output, Point
from .values import (
    JUMP,
    NEAR,
    figure,
    is_big,
    is_clamped,
    is_extreme,
    is_finite,
    is_huge,
    is_nan,
    is_only_minus_inf,
    limit,
)

CLIMBED = 1.5
"""So many times its first value makes a history a climb."""

_BACKWARD = Message("the forward pass is finite: the first bad value is in the backward pass")
_BACK_TO_FRONT = Message(
    "{n} bad gradients; backward goes from the last layer to the first: {place} came first"
)
ONLY_SEEN = Message("only where it was first seen is known, not why")
ONLY_MODULES = Message("only modules were watched: what was computed between them was not seen")
_CLIMB = Message("{place}: |x| max {before} → {after} from step {first} to {last}")
_SUDDEN = Message("{place}: |x| max {after}, {times} times what it was in the steps before")
_SO_FAR = Message("{place} is at {value}, {share} of what {dtype} holds")
_HUGE = Message("{place} is at {value}: finite, but beyond any healthy value")
_CLAMPED = Message("{place} is exactly at {value}: this chip clamps what does not fit instead of making Inf")
_AT_LIMIT = Message("{place} is exactly at {value}, the largest value of {dtype}: clamped?")
_UNDERFLOW = Message(
    "all values of {place} became zero: its inputs, up to {value}, are too small for {dtype}"
)
_INFECTED = Message("{n} later outputs are bad because of it")


@frozen
class Finding:
    """What one step's outputs say.

    `first` is the first bad output in the order of execution (or the first near its limit), `source` what
    likely made it so, None where that is not known.  `attribution` and `source_reason` are of the source.
    `cause` is a word for the choice of advice.  A harmless finding is no incident.
    """

    kind: Kind
    severity: Severity
    first: Output
    source: Output | None = None
    attribution: Attribution = "likely"
    source_reason: Message | None = None
    evidence: tuple[Message, ...] = ()
    is_harmless: bool = False
    cause: str = ""


def judge(
    rows: Sequence[Output],
    first: int | None = None,
    saturates: bool | None = None,
    history: Sequence[History] = (),
    *,
    parameters: Sequence[Output] | None = None,
    trouble: bool = False,
    near: float = NEAR,
) -> Finding | None:
    """Return what the outputs of one step say, None where they are all well.

    `first` is the index of the first bad output; None looks for it.  `saturates`: the chip clamps instead of
    making Inf.  `history` is of earlier steps.  `parameters` are the weights known to hold bad values, None
    where nobody looked.  `trouble`: the loss or the gradients of this step are bad, so that an infinity is
    not taken for intended and gone.  `near` is the share of float16's limit from which on a value is near it.
    """
    flow = Flow(rows, near)
    found, harmless = _first_bad(flow, first, trouble)
    if found is not None:
        return _of_bad(flow, found, history, parameters)
    quiet = _of_extreme(flow, saturates, history) or _of_underflow(flow)
    if quiet is not None:
        return quiet
    if harmless is not None:
        return Finding("inf", "info", harmless, is_harmless=True, cause="intended")
    return None


def climb_of(row: Output | None, history: Sequence[History]) -> tuple[Point, ...]:
    """Return the history of one output, empty where there is none."""
    if row is None:
        return ()
    for one in history:
        if (one.path, one.part, of.plain(one.op)) == (row.path, row.part, of.plain(row.op)):
            return one.points
    return ()


def _first_bad(flow: Flow, first: int | None, trouble: bool) -> tuple[Output | None, Output | None]:
    """Return the first output that is bad and should not be, and the first one that may be."""
    bad = [row for row in flow.rows if not is_finite(row)]
    harmless = None
    for at, row in enumerate(bad):
        # The probe knows more of what went before: what it passed over was meant.
        passed_over = first is not None and row.index < first and not (trouble and _is_unused(flow, row))
        if passed_over or _may_be_bad(flow, row, bad[at + 1 :], trouble):
            harmless = harmless or row
            continue
        return row, harmless
    return None, harmless


def _may_be_bad(flow: Flow, row: Output, later: Sequence[Output], trouble: bool) -> bool:
    """Tell whether this bad value was meant, or was never used."""
    if row.intended or of.plain(row.op) in of.EMPTY:
        return True
    followed = any(not flow.is_masking(one) for one in later)
    if flow.is_masking(row):
        return bool(row.op) or followed or not trouble
    if is_only_minus_inf(row) and any(_normalises(flow, one, row) for one in later):
        # The logarithm of a mask: the masked row is the finding.
        return True
    users = [one for one in flow.rows if row.index in (one.sources or ())]
    cleaned = bool(users) and all(is_finite(one) and of.plain(one.op) in of.CLEANS for one in users)
    return cleaned and (row.phase == "backward" or not trouble)


def _is_unused(flow: Flow, row: Output) -> bool:
    """Tell whether no operator takes this value, as of the loss, whose gradient is a new tensor."""
    users = [one for one in flow.rows if row.index in (one.sources or ())]
    return row.phase == "forward" and all(of.plain(one.op) in of.LIKE for one in users)


def _normalises(flow: Flow, row: Output, masked: Output) -> bool:
    """Tell whether `row` is a softmax that became NaN over the logarithm of a mask, come through `masked`."""
    if not is_nan(row) or not of.is_softmax(row):
        return False
    chain = flow.mask_chain(row)
    return masked in chain and of.plain(chain[-1].op) in of.LOG


def _of_bad(
    flow: Flow, first: Output, history: Sequence[History], parameters: Sequence[Output] | None
) -> Finding:
    if first.part == "gradient":
        return _of_gradients(flow, first)
    if first.part == "parameter":
        return Finding("parameter", "error", first, first, "exact", cause="weights")
    if first.part == "loss":
        return Finding("loss", "error", first, evidence=(ONLY_SEEN,), cause="unknown")
    why = cause(flow, first, parameters) or _sudden(flow, first, history)
    evidence = list(why.also) if why else [ONLY_SEEN]
    if first.phase == "backward":
        evidence.append(_BACKWARD)
    if not first.op and (why is None or why.attribution != "exact"):
        evidence.append(ONLY_MODULES)
    if why is not None and why.name != "sudden":
        evidence += _climb(why.source, history)
    infected = sum(1 for row in flow.rows if row.index > first.index and not is_finite(row))
    if infected:
        evidence.append(Message.of(_INFECTED.text, n=infected))
    return Finding(
        kind=(why.kind if why else None) or ("nan" if is_nan(first) else "inf"),
        severity="error",
        first=first,
        source=why.source if why else None,
        attribution=why.attribution if why else "likely",
        source_reason=why.reason if why else None,
        evidence=tuple(evidence),
        cause=why.name if why else "unknown",
    )


def _of_gradients(flow: Flow, first: Output) -> Finding:
    """Return the bad gradient nearest the loss: backward runs against the order of the layers."""
    bad = [row for row in flow.rows if row.part == "gradient" and not is_finite(row)] or [first]
    last = bad[-1]
    words = Message.of(_BACK_TO_FRONT.text, n=len(bad), place=last.path or "?")
    return Finding("gradient", "error", last, evidence=(words, ONLY_SEEN), cause="backward")


def _of_extreme(flow: Flow, saturates: bool | None, history: Sequence[History]) -> Finding | None:
    """Return the first output near its limit, clamped to it, or huge; a scaled backward is not looked at."""
    extreme = [
        row
        for row in flow.rows
        if row.phase == "forward"
        and row.part in ("output", "input", "loss")
        and is_extreme(row, flow.near)
        # Where a mask is known to come from, its numbers are no climb.
        and not row.intended
    ]
    if not extreme:
        return None
    clamped = [row for row in extreme if saturates and is_clamped(row)]
    first = (clamped or extreme)[0]
    why = _of_clamped(flow, first) if clamped else None
    why = why or climbed(flow, first)
    source = why.source if why else None if clamped else first
    evidence = [_of_size(first, saturates), *(why.also if why else ())]
    evidence += _climb(source or first, history)
    return Finding(
        kind="saturated" if clamped else "huge" if is_huge(first) else "near_limit",
        severity="error" if clamped else "warning",
        first=first,
        source=source,
        attribution=why.attribution if why else "likely",
        source_reason=why.reason if why else None,
        evidence=tuple(evidence),
        cause=why.name if why else "near",
    )


def _of_clamped(flow: Flow, first: Output) -> Cause | None:
    """Return what would have made it Inf on another chip, where its inputs are known."""
    if not (flow.knows(first) and flow.inputs(first)):
        return None
    known = cause(flow, first, None)
    return None if known is None or known.name in ("here", "memory", "written") else known


def _of_size(row: Output, saturates: bool | None) -> Message:
    value, dtype = figure(row.abs_max), row.dtype or "float32"
    words = _HUGE if is_huge(row) else _SO_FAR
    if is_clamped(row):
        words = _CLAMPED if saturates else _AT_LIMIT
    part = f"{row.abs_max / limit(row.dtype) * 100:.0f} %"
    return Message.of(words.text, place=place(row), value=value, share=part, dtype=dtype)


def _of_underflow(flow: Flow) -> Finding | None:
    row = next((row for row in flow.rows if underflows(flow, row)), None)
    if row is None:
        return None
    inputs = flow.inputs(row)
    size = figure(max(one.abs_max for one in inputs))
    words = Message.of(_UNDERFLOW.text, place=place(row), value=size, dtype=row.dtype or "float32")
    return Finding("underflow", "warning", row, row, "exact", words, cause="underflow")


def _sudden(flow: Flow, first: Output, history: Sequence[History]) -> Cause | None:
    """Return the earliest output before the first bad one that left its own past behind."""
    for row in reversed(flow.before(first)):
        past = [one.abs_max for one in climb_of(row, history)[:-1] if 0 < one.abs_max < math.inf]
        if len(past) < 2 or not is_finite(row) or not is_big(row):
            continue
        usual = statistics.median(past)
        if row.abs_max >= JUMP * usual:
            words = Message.of(
                _SUDDEN.text,
                place=place(row),
                after=figure(row.abs_max),
                times=figure(row.abs_max / usual),
            )
            return Cause("sudden", row, words)
    return None


def _climb(row: Output | None, history: Sequence[History]) -> list[Message]:
    points = [one for one in climb_of(row, history) if 0 < one.abs_max < math.inf]
    if row is None or len(points) < 2 or points[-1].abs_max < CLIMBED * points[0].abs_max:
        return []
    return [
        Message.of(
            _CLIMB.text,
            place=place(row),
            before=figure(points[0].abs_max),
            after=figure(points[-1].abs_max),
            first=f"{points[0].step:,}",
            last=f"{points[-1].step:,}",
        )
    ]
