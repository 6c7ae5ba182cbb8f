"""Compare what was said in a run with what is true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ascend_tui_plugins.overflow.snapshot import Incident, Output

from tests.overflows.cases import Truth
from tests.overflows.running import Run, Watched

GRAVE = ("warning", "error", "fatal")
SPOILT_RANK = 2
"""The rank of the case with ranks whose data are bad."""


@dataclass(frozen=True)
class Row:
    """A line of the table; `after` is how many steps after the onset it began, `wrong` what is not right."""

    case: str
    device: str
    seed: int
    expected: str
    kind: str
    first: str
    source: str
    attribution: str
    level: str
    after: int | None
    count: int
    said: str
    wrong: tuple[str, ...]
    all_kinds: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Tell whether nothing is wrong."""
        return not self.wrong


def judge(run: Run) -> Row:
    """Return the row of a run."""
    truth = run.case.truths[run.device]
    rank = SPOILT_RANK if run.case.ranks > 1 else 0
    watched = run.processes[rank]
    if truth.kinds:
        main = serious(watched, truth.also - truth.kinds)
        wrong = [*faults(truth, watched, main, run.case.onset)]
        for other, process in enumerate(run.processes):
            if other != rank:
                wrong += others(process, other, main, watched, rank)
    else:
        main = next((one for one in watched.snapshot.incidents if one.severity in GRAVE), None)
        wrong = [
            f"said {one.kind} ({one.severity}) at {step_of(watched, one)}"
            for one in watched.snapshot.incidents
            if one.severity in GRAVE
        ]
        wrong += [f"an alert: {one.headline.render()}" for one in watched.alerts if one.severity in GRAVE][:3]
        wrong += [
            f"no {kind}"
            for kind in truth.info
            if all(one.kind != kind or one.severity != "info" for one in watched.snapshot.incidents)
        ]
    return Row(
        case=run.case.name,
        device=run.device,
        seed=run.seed,
        expected="|".join(sorted(truth.kinds)) or "quiet",
        kind=main.kind if main else "",
        first=_words(main.first_seen if main else None),
        source=_words(main.source if main else None),
        attribution=main.attribution if main else "",
        level=main.level if main else "",
        after=step_of(watched, main) - run.case.onset if main else None,
        count=main.count if main else 0,
        said=main.headline.render() if main else "",
        wrong=tuple(wrong),
        all_kinds=tuple(f"{one.kind} {one.severity}" for one in watched.snapshot.incidents),
    )


def serious(watched: Watched, consequences: frozenset[str] = frozenset()) -> Incident | None:
    """Return the first incident that is a fault, before those that are only its consequences.

    Values near the limit come before a fault.
    """
    found = [
        one
        for one in watched.snapshot.incidents
        if one.severity in GRAVE and one.kind not in ("near_limit", "underflow")
    ]
    return min(found, key=lambda one: (one.kind in consequences, one.first_step), default=None)


def step_of(watched: Watched, incident: Incident) -> int:
    """Return the training's step in which an incident began."""
    return round(incident.first_step - watched.offset)


def faults(truth: Truth, watched: Watched, main: Incident | None, onset: int) -> Iterator[str]:
    """Tell what is wrong with the incidents of a training that has a fault."""
    # The moments of the shim and of the training may be a step apart.
    for one in watched.snapshot.incidents:
        if one.severity in GRAVE and step_of(watched, one) < onset:
            yield f"{one.kind} at step {step_of(watched, one)}, before the onset"
    if main is None:
        yield "nothing said"
        return
    if main.kind not in truth.kinds:
        yield f"kind {main.kind}"
    if step_of(watched, main) - onset > truth.within + 1:
        yield f"{step_of(watched, main) - onset} steps after the onset"
    first, source = main.first_seen, main.source
    if truth.first and (first is None or first.path not in truth.first):
        yield f"first seen: {_words(first)}"
    # A weight that is bad by itself was made by no operator.
    is_made = first is None or first.part != "parameter"
    if is_made and truth.looks and truth.ops and (first is None or first.op not in truth.ops):
        yield f"first op: {first.op if first else ''}" if first and first.op else "no op named"
    if truth.position and (first is None or first.position != truth.position):
        yield f"position {first.position if first else None}"
    if truth.source and (source is None or source.path not in truth.source):
        yield f"source: {_words(source)}"
    if truth.looks and truth.source_ops and (source is None or source.op not in truth.source_ops):
        yield f"source op: {source.op if source else 'no source'}"
    if main.attribution not in truth.attribution:
        yield f"attribution {main.attribution}"
    for one in watched.snapshot.incidents:
        if one is not main and one.severity in ("error", "fatal") and one.kind not in truth.also:
            yield f"also {one.kind} at {step_of(watched, one)}: {one.headline.render()}"


def others(
    watched: Watched, rank: int, main: Incident | None, spoilt: Watched, spoilt_rank: int
) -> Iterator[str]:
    """Tell what is wrong with what is said of a rank that got bad gradients from another one."""
    incident = serious(watched)
    if incident is None:
        yield f"rank {rank}: nothing said"
        return
    if main is not None and step_of(watched, incident) < step_of(spoilt, main):
        yield f"rank {rank}: {step_of(watched, incident)}, before rank {spoilt_rank}"
    if not any(f"rank {spoilt_rank}" in one.render() for one in incident.evidence):
        yield f"rank {rank}: no word of rank {spoilt_rank}"


def _words(output: Output | None) -> str:
    if output is None:
        return ""
    part = "" if output.part == "output" else output.part
    return " ".join(one for one in (output.path or "-", output.op.replace("aten::", ""), part) if one)
