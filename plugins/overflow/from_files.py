"""What `inspect` gets from the overflow plugin: a file in, its incidents out, by the live judge."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path

from ascend_tui.frozen import frozen
from ascend_tui.judging.losses import Losses
from ascend_tui.plugin import Message

from . import advice, decode, describe
from .causes import ROOT_ZERO, place
from .dump_rows import Rows, look, rows_of
from .files import kind_of
from .files.metrics import Metrics, metrics
from .files.msprobe import AFTER, Dump, Frame, analysis, read_dump, stack_of
from .operators import ROOT, plain
from .origin import ONLY_SEEN, Finding, judge
from .snapshot import Incident, Kind, LevelName, Line, Output
from .values import figure, is_extreme, is_finite

HEAD = 1 << 20
MOST = 100

_LIVE_ONLY = frozenset(one.text for one in (advice.OPERATORS, advice.FILTER, advice.EARLY))
_DUMP_DEEPER = Message("dump the step again at level mix: it names the operator inside the module")
_ENTRY = Message("in the dump: {name}")
_ENTRY_FROM = Message("in the dump: {name}, likely from {source}")
_MATCHED = Message("the dump does not say where a tensor came from: it is known by its equal statistics")
_CALM = Message("{n} modules and operators were looked at: none holds a value that is bad or near its limit")
_NO_VALUES = Message("none of the {n} entries holds values that can be read: nothing is known of them")
_EMPTY = Message("the dump is empty: no module or operator was written in this step")
_PARTIAL = Message("the file {trouble}: only what comes before is judged, {n} modules and operators")
_STOPPED = Message("reading ended {n} entries after the first bad one: later bad ones are not counted")
_NO_STEP = Message("no folder tells the step of it (step0, step1 …): it is shown as 0")
_NO_CONSTRUCT = Message(
    "no construct.json beside it, or none of modules: which module an operator is in is not known"
)
_NOT_FOUND = Message("the analysis names {name}; the values in it do not show why")
_NO_METRICS = Message("no metric line in it could be read")
_ROWS = Message("the lines do not tell their steps: they are counted")
_GRADIENT = Message("the gradient norm is {value} while the loss is finite")
_GRADIENT_WHY = Message("the loss is still finite ({loss}): it arose in the backward pass, or in clipping")
_ONLY_NORM = Message("the gradient norm is {value}")
_LOSS = Message("the loss is {value}")


@frozen
class OverflowFile:
    """What a file tells: incidents as in the live stream, what it was read from, and what is not known."""

    incidents: tuple[Incident, ...]
    files: tuple[str, ...] = ()
    notes: tuple[Message, ...] = ()


def read(path: Path) -> OverflowFile:
    """Return what a dump or an analysis of msprobe, or bare metric lines, say.

    Raises OSError, and ValueError where the file is nothing of these or nothing in it can be read.
    """
    with path.open("rb") as file:
        kind = kind_of(file.read(HEAD), path.name)
    if kind == "dump":
        return of_dump(path)
    if kind == "analysis":
        return of_analysis(path)
    if kind == "metrics":
        return of_metrics(path)
    raise ValueError("no dump or analysis of msprobe in it, and no metric lines alone")


def of_dump(path: Path) -> OverflowFile:
    """Return the first bad output of a dump and its likely source."""
    dump = read_dump(path, look)
    rows = rows_of(dump.entries, dump.parents)
    if dump.total and dump.without and not rows.outputs:
        raise ValueError("the dump holds checksums and no values: dump with summary_mode statistics")
    ranks = () if dump.rank is None else (dump.rank,)
    incident = _judge(rows, dump.step or 0, ranks)
    if incident is not None:
        name = rows.names.get(incident.first_seen.index, "") if incident.first_seen else ""
        incident = dataclasses.replace(incident, stack=_lines(stack_of(path, name)))
    beside = [path.with_name(name) for name in ("construct.json", "stack.json")]
    files = (path.name, *(one.name for one in beside if one.is_file()))
    return OverflowFile(() if incident is None else (incident,), files, _notes(dump, rows, incident))


def of_analysis(path: Path) -> OverflowFile:
    """Return what an anomaly_analyze_*.json names, the same on several ranks as one incident."""
    found: dict[tuple[str, str, str], Incident] = {}
    notes: list[Message] = []
    for rank, entry, parents, stack in analysis(path):
        ranks = () if rank is None else (rank,)
        incident = _judge(rows_of([entry], parents), 0, ranks)
        if incident is None or incident.first_seen is None:
            notes.append(Message.of(_NOT_FOUND.text, name=decode.words(entry.name)))
            continue
        key = (incident.kind, incident.first_seen.path, incident.first_seen.op)
        before = found.get(key)
        if before is not None:
            both = tuple(sorted({*before.ranks, *ranks}))
            found[key] = dataclasses.replace(before, ranks=both, count=before.count + 1)
        elif len(found) < MOST:
            found[key] = dataclasses.replace(incident, stack=_lines(stack))
    return OverflowFile(tuple(found.values()), (path.name,), (*notes[:MOST], _NO_STEP))


def _judge(rows: Rows, step: int, ranks: tuple[int, ...]) -> Incident | None:
    """Return what the live judge says of the outputs of a dump."""
    trouble = any(row.phase == "backward" and not is_finite(row) for row in rows.outputs)
    finding = judge(rows.outputs, parameters=rows.parameters, trouble=trouble)
    if finding is None or finding.is_harmless:
        return _of_parameters(rows, step, ranks)
    if finding.source is None and finding.first.phase == "backward":
        finding = _by_forward(finding, rows)
    source, first = finding.source, finding.first
    if (
        source is not None
        and source is not first
        and finding.attribution == "exact"
        and first.index in rows.matched
    ):
        # The same statistics are strong evidence, not proof.
        own = source.part in ("input", "parameter")
        finding = finding if own else dataclasses.replace(finding, attribution="likely")
    level: LevelName = "ops" if first.op else "modules"
    told = decode.Rows(level, step, outputs=_shown(rows.outputs, first))
    incident = describe.of_finding(finding, told, 0.0, "")
    name = _entry(rows, first, source)
    evidence = (*incident.evidence, name, *((_MATCHED,) if first.index in rows.matched else ()))
    code = incident.keep_fp32 if incident.kind != "parameter" else ""
    told_too = _offline(incident.advice)
    return dataclasses.replace(incident, ranks=ranks, evidence=evidence, advice=told_too, keep_fp32=code)


def _lines(stack: Iterable[Frame]) -> tuple[Line, ...]:
    return tuple(Line(one.file, one.line, one.function) for one in stack)


def _by_forward(finding: Finding, rows: Rows) -> Finding:
    """Return the finding with the root at zero whose backward it is: the dump has both by the same name."""
    name = rows.names.get(finding.first.index, "").replace("backward", "forward")
    row = next((one for one in rows.outputs if rows.names[one.index] == name and one.part == "output"), None)
    if row is None or plain(row.op) not in ROOT or row.low != 0:
        return finding
    words = Message.of(ROOT_ZERO.text, place=place(row), value=figure(row.low))
    evidence = tuple(one for one in finding.evidence if one != ONLY_SEEN)
    return dataclasses.replace(
        finding, source=row, source_reason=words, cause="root_zero", attribution="likely", evidence=evidence
    )


def _entry(rows: Rows, first: Output, source: Output | None) -> Message:
    """Return the names by which the dump itself calls what is bad first and its source."""
    name = decode.words(rows.names.get(first.index, "?"))
    # Weights that a module tells of itself are no outputs and have no entry.
    known = source is not None and source in rows.outputs
    other = decode.words(rows.names.get(source.index, "")) if source is not None and known else ""
    if not other or other == name:
        return Message.of(_ENTRY.text, name=name)
    return Message.of(_ENTRY_FROM.text, name=name, source=other)


def _of_parameters(rows: Rows, step: int, ranks: tuple[int, ...]) -> Incident | None:
    """Return bad weights where no output is bad, else None."""
    if not rows.parameters:
        return None
    finding = judge(rows.parameters[:1])
    if finding is None:
        return None
    incident = describe.of_finding(
        finding, decode.Rows("modules", step, outputs=rows.parameters[:1]), 0.0, ""
    )
    return dataclasses.replace(incident, ranks=ranks, advice=_offline(incident.advice), keep_fp32="")


def _offline(told: Iterable[Message]) -> tuple[Message, ...]:
    """Return advice without that for a training that is watched."""
    found = list(told)
    kept = [one for one in found if one.text not in _LIVE_ONLY]
    if any(one.text == advice.OPERATORS.text for one in found):
        kept.insert(0, _DUMP_DEEPER)
    return tuple(kept)


def _shown(outputs: tuple[Output, ...], first: Output) -> tuple[Output, ...]:
    """Return the outputs that a window is cut from: inputs and weights only where they matter."""
    own = set(first.sources or ())
    return tuple(
        row
        for row in outputs
        if row.part not in ("input", "parameter") or row.index in own or not is_finite(row) or is_extreme(row)
    )


def _notes(dump: Dump, rows: Rows, incident: Incident | None) -> tuple[Message, ...]:
    found = []
    count = f"{dump.total:,}"
    if dump.trouble:
        found.append(Message.of(_PARTIAL.text, trouble=dump.trouble, n=count))
    if not dump.total:
        found.append(_EMPTY)
    elif not rows.outputs:
        found.append(Message.of(_NO_VALUES.text, n=count))
    elif incident is None:
        found.append(Message.of(_CALM.text, n=count))
    if dump.stopped:
        found.append(Message.of(_STOPPED.text, n=f"{AFTER:,}"))
    if not dump.construct and incident is not None and incident.first_seen and not incident.first_seen.path:
        found.append(_NO_CONSTRUCT)
    if dump.step is None:
        found.append(_NO_STEP)
    return tuple(found)


def of_metrics(path: Path) -> OverflowFile:
    """Return what the losses and gradient norms of metric lines tell."""
    reader = _Metrics()
    for one in metrics(path):
        reader.take(one)
    notes = [] if reader.rows else [_NO_METRICS]
    if reader.counted:
        notes.append(_ROWS)
    return OverflowFile(reader.result(), (path.name,), tuple(notes))


class _Metrics:
    """Metric lines as incidents, each kind folded."""

    def __init__(self) -> None:
        self.rows = 0
        self.counted = False
        self._losses = Losses()
        self._found: dict[str, Incident] = {}

    def take(self, one: Metrics) -> None:
        self.rows += 1
        self.counted = self.counted or one.step is None
        step = one.row if one.step is None else one.step
        loss, norm = one.loss, one.grad_norm
        bad_norm = norm is not None and not math.isfinite(norm)
        if loss is not None and not math.isfinite(loss):
            self._bad_loss(step, loss)
        elif loss == 0 and norm is not None and norm != norm:
            self._fold("zero", describe.zero_loss(step, 0.0))
        elif bad_norm and norm is not None:
            self._fold("norm", _bad_norm(step, loss, norm))
        if loss is not None and not (loss == 0 and bad_norm):
            self._losses.take(step, loss)

    def result(self) -> tuple[Incident, ...]:
        slow = self._losses.judge()
        if slow is not None:
            self._fold("slow", describe.divergence(slow, slow.since_step, 0.0))
        return tuple(self._found.values())

    def _bad_loss(self, step: int, loss: float) -> None:
        why = self._losses.judge_bad(step)
        told = (advice.SLOW,) if why.kind == "slow" else ()
        words = Message.of(_LOSS.text, value=figure(loss))
        kind: Kind = "divergence" if why.kind == "slow" else "loss"
        self._fold("loss", describe.bare(kind, "error", words, step, 0.0, why.reason, advice=told))

    def _fold(self, key: str, incident: Incident) -> None:
        before = self._found.get(key)
        if before is not None:
            incident = dataclasses.replace(before, count=before.count + 1)
        self._found[key] = incident


def _bad_norm(step: int, loss: float | None, norm: float) -> Incident:
    value = figure(norm)
    if loss is None:
        return describe.bare("gradient", "error", Message.of(_ONLY_NORM.text, value=value), step, 0.0)
    why = Message.of(_GRADIENT_WHY.text, loss=figure(loss))
    words = Message.of(_GRADIENT.text, value=value)
    told = (advice.UNDER_MASK, advice.ROOT)
    return describe.bare("gradient", "error", words, step, 0.0, why, advice=told)
