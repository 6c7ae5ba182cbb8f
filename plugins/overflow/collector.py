"""From records to the incidents of each target: what is bad, where first, and what it came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ascend_tui.plugin import Alert, Collector, Event, Hint, Message, Record
from ascend_tui.target import TargetId

from . import decode
from .incidents import Fault, bad_faults, is_forward
from .snapshot import Incident, OverflowSnapshot
from .state import State, Touched
from .told import take_told
from .weights import OF_SPOILT

SAME_S = 10.0
"""Faults of two ranks that are so near each other are one."""
SURE_S = 3.0
"""From here on the earlier sighting was first; a sighting is told up to some seconds late."""

_FIRST_HERE = Message("rank {rank} was first, at its step {step}; ranks {others} are likely infected")
_FIRST_THERE = Message("first on rank {rank}, at its step {step}: here it is likely infected")
_AT_ONCE = Message("other ranks are bad at the same time; which was first is not known")


class OverflowCollector(Collector):
    """Keep what is known of bad values in every target, in bounded space, however long it runs."""

    def __init__(self, publish: Callable[[Event], None]) -> None:
        super().__init__(publish)
        self._targets: dict[TargetId, State] = {}

    def on_record(self, target: TargetId, record: Record) -> None:
        """Take one record: a pulse, or the evidence of one step."""
        state = self._targets.setdefault(target, State())
        touched: Sequence[Touched] = ()
        if record.kind == "pulse":
            touched = state.take_pulse(decode.pulse(record.data), record.wall_s)
        elif record.kind == "rows":
            rows = decode.rows(record.data)
            touched = state.take_rows(rows, record.wall_s) if rows is not None else ()
        elif record.kind == "captured":
            state.captured = decode.captured(record.data)
        for fault, news in touched:
            self._tell(target, record.wall_s, state, fault, news)

    def on_event(self, event: Event) -> None:
        """Take what other plugins tell of bad numbers into the stream."""
        if isinstance(event, Alert) and event.plugin != "overflow" and event.category == "numeric":
            state = self._targets.setdefault(event.target, State())
            take_told(state.stream, event)

    def snapshot(self, target: TargetId) -> OverflowSnapshot:
        """Return the incidents, the levels and the newest numbers, also before there are any."""
        state = self._targets.get(target)
        if state is None:
            return OverflowSnapshot()
        told = state.snapshot()
        ranked = self._ranked(target, state)
        return dataclasses.replace(
            told, incidents=tuple(ranked.get(id(f), f.incident) for f in state.stream.faults)
        )

    def read(self, path: Path) -> Any:
        """Return the diagnosis of a file: a dump of msprobe, or the log of a loss."""
        from .from_files import read

        return read(path)

    def _tell(self, target: TargetId, wall_s: float, state: State, fault: Fault, news: str) -> None:
        """Publish what is new: once for an incident, again where it is graver, back, or has got its place."""
        incident = fault.incident
        if news != "more" and incident.severity != "info":
            self.publish(
                Alert(
                    target,
                    "overflow",
                    wall_s,
                    incident.severity,
                    incident.category,
                    incident.headline,
                    incident.step,
                    () if state.rank is None else (state.rank,),
                    incident.count,
                    incident.attribution,
                )
            )
        if fault.cause in ("memory", "weights_or_memory", "uninitialised") and not fault.hinted:
            fault.hinted = True
            reason = incident.source_reason or incident.headline
            self.publish(Hint(target, "overflow", wall_s, "sanitizer", reason))

    def _ranked(self, target: TargetId, state: State) -> dict[int, Incident]:
        """Return the incidents with what the other ranks of the job tell of them."""
        if state.rank is None:
            return {}
        others = [
            one for key, one in self._targets.items() if key != target and one.rank not in (None, state.rank)
        ]
        return {id(fault): _among(fault, state.rank, others) for fault in bad_faults(state.stream.faults)}


def _among(fault: Fault, rank: int, others: Iterable[State]) -> Incident:
    """Return an incident with its rank, and which rank was first where several have it."""
    incident = dataclasses.replace(fault.incident, ranks=(rank,))
    same: list[tuple[int, Fault]] = []
    for state in others:
        near = [one for one in bad_faults(state.stream.faults) if _apart_s(one, fault) <= SAME_S]
        if near and state.rank is not None:
            same.append((state.rank, min(near, key=_blame)))
    if not same:
        return incident
    suspects = [(other, one) for other, one in same if _is_before(one, fault)]
    if not suspects and all(_is_before(fault, one) for _, one in same):
        names = ", ".join(str(other) for other, _ in sorted(same, key=lambda one: one[0])[:16])
        words = Message.of(_FIRST_HERE.text, rank=rank, step=incident.first_step, others=names)
    elif len(suspects) == 1:
        other, one = suspects[0]
        words = Message.of(_FIRST_THERE.text, rank=other, step=one.incident.first_step)
    else:
        words = _AT_ONCE
    return dataclasses.replace(incident, evidence=(words, *incident.evidence))


def _apart_s(one: Fault, other: Fault) -> float:
    return abs(one.incident.wall_s - other.incident.wall_s)


def _is_before(one: Fault, other: Fault) -> bool:
    """Tell whether a fault is the cause rather than the other: by what it is, else by when it was seen.

    Steps do not tell: each rank counts them from its own attach.
    """
    if _apart_s(one, other) > SURE_S:
        return one.incident.wall_s < other.incident.wall_s
    return _blame(one) < _blame(other)


def _blame(fault: Fault) -> int:
    """Return how likely it began on this rank, 0 the most: bad gradients and weights come from any rank."""
    if not is_forward(fault.incident) or fault.cause in OF_SPOILT - {"unknown"}:
        return 2
    return 1 if fault.cause in OF_SPOILT else 0
