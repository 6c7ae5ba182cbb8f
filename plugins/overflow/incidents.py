"""The stream of one target: incidents, their repeats folded, in bounded space."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

from ascend_tui.plugin import Message

from .flow import is_inside
from .origin import ONLY_MODULES, ONLY_SEEN
from .snapshot import Incident, LevelName, Output
from .values import is_finite

MOST = 100
MOST_EVIDENCE = 12
MOST_KEYS = 32
EPISODE = 20
"""So many steps after a bad value, what else is bad is likely of the same fault."""
UNTOLD = 300
"""So many steps may pass before it is told that they were well."""
CLEAN = 100
"""What comes back after so many steps is told again."""
_ORDER: tuple[LevelName, ...] = ("loss", "gradients", "modules", "ops")
_GRAVE = ("info", "warning", "error", "fatal")

Key = tuple[str, str, str]
Group = Literal["bad", "near", "scale", "loss", "zero", "told"]
News = Literal["new", "placed", "graver", "back", "more"]
"""Why it was touched.  `placed`: its place is known now; `back`: after clean steps; `more`: no news."""


class Fault:
    """An incident that may still grow."""

    def __init__(self, group: Group, incident: Incident, cause: str) -> None:
        """Start with one sighting."""
        self.group = group
        self.incident = incident
        self.cause = cause
        self.keys = {key_of(incident)}
        self.hinted = False
        self.placed = has_place(incident)
        self.gravest = incident.severity

    def add(self, *evidence: Message) -> None:
        """Add sentences to the evidence, each once."""
        kept = _each_once((*self.incident.evidence, *evidence))
        self.incident = dataclasses.replace(self.incident, evidence=kept)

    def advise(self, *advice: Message) -> None:
        """Put advice before what there is."""
        kept = tuple(dict.fromkeys((*advice, *self.incident.advice)))
        self.incident = dataclasses.replace(self.incident, advice=kept)

    def again(self, step: int, news: News = "more") -> News:
        """Count one more step in which it was seen; return whether it is back after clean ones."""
        old = self.incident
        if step > old.step:
            news = "back" if step - old.step > CLEAN else news
            self.incident = dataclasses.replace(old, step=step, count=old.count + 1)
        elif step < old.first_step:
            self.incident = dataclasses.replace(old, first_step=step)
        return news

    def refine(self, finer: Incident, cause: str) -> News:
        """Take over what a closer look found; when and how often stay."""
        old = self.incident
        if finer.source is None and old.source is not None and _are_near(finer.first_seen, old.first_seen):
            # What a coarser look saw further back is not lost by a closer one that knows no source.
            finer = dataclasses.replace(
                finer,
                source=old.source,
                source_reason=old.source_reason,
                attribution=old.attribution,
                keep_fp32=old.keep_fp32,
            )
        # What a coarser look did not know is known now.
        settled = {ONLY_SEEN.text} if finer.source is not None else set()
        settled |= {ONLY_MODULES.text} if finer.level == "ops" else set()
        earlier = [one for one in old.evidence if one.text not in settled]
        evidence = _each_once((*finer.evidence, *earlier))
        stack = finer.stack or old.stack
        self.incident = dataclasses.replace(
            finer,
            step=old.step,
            first_step=old.first_step,
            count=old.count,
            wall_s=old.wall_s,
            evidence=evidence,
            stack=stack,
            climb=finer.climb or old.climb,
        )
        self.cause = cause
        if len(self.keys) < MOST_KEYS:
            self.keys.add(key_of(finer))
        return self.again(finer.step, self._news())

    def _news(self) -> News:
        if not self.placed and has_place(self.incident):
            self.placed = True
            return "placed"
        if _GRAVE.index(self.incident.severity) > _GRAVE.index(self.gravest):
            self.gravest = self.incident.severity
            return "graver"
        return "more"


class Stream:
    """The incidents of one target, the oldest first."""

    def __init__(self) -> None:
        """Start with none."""
        self.faults: list[Fault] = []
        self.dropped = 0
        self.good_step: int | None = None
        """The newest step that is known to be well."""

    def incidents(self) -> tuple[Incident, ...]:
        """Return what is shown."""
        return tuple(fault.incident for fault in self.faults)

    def open_bad(self, step: int, reach: int = EPISODE) -> Fault | None:
        """Return the newest fault with bad values that a step may still belong to."""
        for fault in reversed(self.faults):
            if fault.group == "bad" and self._belongs(fault.incident, step, reach):
                return fault
        return None

    def of_group(self, group: Group, kind: str) -> Fault | None:
        """Return the newest fault of a kind that has one line for the whole run."""
        return next((f for f in reversed(self.faults) if f.group == group and f.incident.kind == kind), None)

    def take(
        self, group: Group, incident: Incident, cause: str = "", infected: bool = False
    ) -> tuple[Fault, News]:
        """Fold an incident into one that there is, or add it.

        A closer look at the same fault replaces what a coarser one said, and a coarser one of the same steps
        says nothing new.  `infected`: what is bad is so because of the fault before.
        """
        key = key_of(incident)
        fault = self._same(group, key, incident)
        if fault is not None and group == "bad":
            self._forget_unplaced(fault, incident.step)
        if fault is None and group == "bad":
            # A bad loss now and then, of which no more is known, is likely of the fault that is known.
            fault = self.open_bad(incident.step, EPISODE if has_place(incident) else CLEAN)
            if fault is not None and not infected and self._is_another(fault, incident):
                fault = None
        if fault is None:
            fault = Fault(group, incident, cause)
            self.faults.append(fault)
            if len(self.faults) > MOST:
                del self.faults[0]
                self.dropped += 1
            return fault, "new"
        if not infected and _says_more(incident, fault.incident):
            return fault, fault.refine(incident, cause)
        return fault, fault.again(incident.step)

    def _same(self, group: Group, key: Key, incident: Incident) -> Fault | None:
        near = group == "near"
        for fault in reversed(self.faults):
            if fault.group != group:
                continue
            # Of a bad loss alone nobody knows whether it is the one of long ago.
            if key in fault.keys and (
                group != "bad" or has_place(incident) or self._belongs(fault.incident, incident.step)
            ):
                return fault
            if group == "bad" and _is_same_source(incident, fault.incident):
                return fault
            # The operator of a module that is near its limit is the same line.
            if near and any(one[:2] == key[:2] for one in fault.keys):
                return fault
        return None

    def _forget_unplaced(self, known: Fault, step: int) -> None:
        """Let go of the line of these steps that says no place: it is a fault that has its line already."""
        open_now = self.open_bad(step)
        if open_now is not None and open_now is not known and not open_now.placed:
            self.faults.remove(open_now)

    def _belongs(self, incident: Incident, step: int, reach: int = EPISODE) -> bool:
        """Tell whether a step is of the same episode: soon after, or no step was well in between."""
        if self.good_step is None or self.good_step <= incident.step:
            # What a second of steps saw is told at its end.
            reach = UNTOLD
        return incident.first_step - EPISODE <= step <= incident.step + reach

    @staticmethod
    def _is_another(fault: Fault, incident: Incident) -> bool:
        """Tell whether, at the same closeness, another place is bad."""
        closeness = _closeness(incident.level)
        return closeness >= 2 and closeness == _closeness(fault.incident.level)


def _each_once(evidence: Iterable[Message]) -> tuple[Message, ...]:
    """Return each sentence once, whatever its numbers: the first one said."""
    found: dict[str, Message] = {}
    for one in evidence:
        found.setdefault(one.text, one)
    return tuple(found.values())[:MOST_EVIDENCE]


def key_of(incident: Incident) -> Key:
    """Return what makes two sightings the same: kind, place and operator."""
    first = incident.first_seen
    if incident.kind == "told":
        return ("told", incident.headline.text, "")
    kind = "bad" if incident.kind in ("nan", "inf") else incident.kind
    return (kind, "", "") if first is None else (kind, first.path, first.op)


def has_place(incident: Incident) -> bool:
    """Tell whether a module or an operator is known, not only that something is bad."""
    first = incident.first_seen
    return first is not None and first.part in ("output", "input")


def bad_faults(faults: Iterable[Fault]) -> list[Fault]:
    """Return those with bad values."""
    return [
        fault for fault in faults if fault.group == "bad" and fault.incident.severity in ("error", "fatal")
    ]


def is_forward(incident: Incident) -> bool:
    """Tell whether it began in the forward pass, which other ranks cannot have spoilt in the same step."""
    first = incident.first_seen
    if first is None:
        return incident.kind in ("loss", "saturated")
    return first.phase == "forward" and first.part in ("output", "input", "loss") and not is_finite(first)


def _is_same_source(one: Incident, other: Incident) -> bool:
    """Tell whether two bad places, one around the other, have come from one and the same module."""
    if one.source is None or other.source is None or not has_place(one) or not has_place(other):
        return False
    near = _are_near(one.first_seen, other.first_seen) and one.first_seen != one.source
    return near and bool(one.source.path) and _are_near(one.source, other.source)


def _are_near(one: Output | None, other: Output | None) -> bool:
    """Tell whether two places are the same, or one is inside the other."""
    if one is None or other is None:
        return False
    return one.path == other.path or is_inside(one, other) or is_inside(other, one)


def _says_more(incident: Incident, old: Incident) -> bool:
    closer = _closeness(incident.level) - _closeness(old.level)
    if closer > 0:
        return True
    if closer < 0:
        return False
    # At the same closeness a source is more than none, and so are a name, a position and a stack.
    known, more = _knows(old), _knows(incident)
    return any(new and not there for new, there in zip(more, known)) and more >= known


def _knows(incident: Incident) -> tuple[bool, bool, bool, bool]:
    """Return what is known, the most telling first."""
    first = incident.first_seen
    place = first is not None and bool(first.path)
    return (
        incident.source is not None,
        place,
        first is not None and first.position is not None,
        bool(incident.stack),
    )


def _closeness(level: LevelName) -> int:
    return _ORDER.index(level)
