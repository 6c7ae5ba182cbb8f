"""Sightings that come together are one incident: a wrapper, its reason and what follows from it.

A fault is told by many layers: the device's reason, the runtime's wrapper, torch_npu's, a Python exception,
the launcher's last words.  An episode gathers what one stream tells within a few lines and seconds.  What
does not fit the kind of fault that is being told begins a new one.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from ascend_tui.text import clean

from . import memory_ran_out
from .blocks import shown
from .lines import cleaned
from .sighting import CONTEXT, GENERIC, REASON, Line, Sighting
from .snapshot import SEVERITIES, Fact, Incident, Raw, kind_of

NEAR_LINES = 60
"""Lines of its source after which an episode is over."""
NEAR_S = 10.0
"""Seconds by the lines' own clock after which it is."""
MOST_LINES, MOST_SIGHTINGS, MOST_FACTS, MOST_ADVICE = 80, 40, 24, 4
MOST_CHARACTERS = 400
_RUNTIME = re.compile(
    r"(?:code|ret|result|failed|错误码)\W{0,4}(?:is )?((?:107|207|507)\d{3})\b", re.IGNORECASE
)
_ANY = ("crash", "other", "usage")
"""Categories of wrappers: what they hold may be anything."""


class Episode:
    """What one stream tells of one fault."""

    def __init__(self, source: int, now_s: float) -> None:
        """Begin with nothing; `now_s` is when it is read."""
        self.source = source
        self._lines: dict[int, bytes] = {}
        self.sightings: list[tuple[Line, Sighting]] = []
        self.first_s = self.last_s = now_s
        self.own_clock: tuple[float, float] | None = None
        self.last_number = 0
        self.pids: set[int] = set()
        self.ranks: set[int] = set()
        self._counts: dict[tuple[str, str], int] = {}

    def fits(self, line: Line, sighting: Sighting) -> bool:
        """Tell whether a sighting belongs to this fault."""
        if not self.sightings:
            return True
        if line.source != self.source or line.number - self.last_number > NEAR_LINES:
            return False
        if line.wall_s is not None and self.own_clock and abs(line.wall_s - self.own_clock[1]) > NEAR_S:
            return False
        best = self.best
        if best is None or sighting.knows <= CONTEXT or best.knows <= CONTEXT:
            return True
        if _device_differs(best, sighting) or self._has_report(sighting):
            return False
        if sighting.knows <= GENERIC or best.knows <= GENERIC:
            return not _is_known_twice(sighting, best)
        return kind_of(sighting.category) == kind_of(best.category)

    def _has_report(self, sighting: Sighting) -> bool:
        """Tell whether a checker's report begins where another one is told already: each is of its own."""
        return _is_report(sighting) and any(_is_report(one) for _, one in self.sightings)

    def add(self, line: Line, sighting: Sighting, around: Sequence[tuple[int, bytes]]) -> None:
        """Take a sighting and the lines around it."""
        self.last_number = line.number
        if line.wall_s is not None:
            first = min(self.own_clock[0], line.wall_s) if self.own_clock else line.wall_s
            self.own_clock = (first, line.wall_s)
        if line.pid is not None and len(self.pids) < MOST_SIGHTINGS:
            self.pids.add(line.pid)
        if line.rank is not None and len(self.ranks) < MOST_SIGHTINGS:
            self.ranks.add(line.rank)
        if len(self._lines) < MOST_LINES:
            self._lines.update(around)
        told = (sighting.key, line.body.strip())
        self._counts[told] = self._counts.get(told, 0) + sighting.count * line.repeated
        if len(self.sightings) < MOST_SIGHTINGS:
            self.sightings.append((line, sighting))

    @property
    def best(self) -> Sighting | None:
        """Return the sighting that knows most, the first of equals."""
        found = max(self.sightings, key=lambda one: one[1].knows, default=None)
        return found[1] if found else None

    def context(self) -> tuple[Raw, ...]:
        """Return the lines around, the one that matters marked."""
        found = max(self.sightings, key=lambda one: one[1].knows, default=None)
        key = found[0].number if found else 0
        return tuple(
            dataclasses.replace(shown(number, self._lines[number], self.source), is_key=number == key)
            for number in sorted(self._lines)
        )

    def incident(self, with_context: bool = True) -> Incident | None:
        """Return what has been told so far; None while that is only what goes with something else."""
        if not self.sightings:
            return None
        line, best = max(self.sightings, key=lambda one: one[1].knows)
        if best.knows <= CONTEXT:
            return None
        everyone = [one for _, one in self.sightings]
        own = self.own_clock
        told = Incident(
            severity=max((one.severity for one in everyone), key=SEVERITIES.index)
            if best.severity != "info"
            else best.severity,
            category=best.category,
            headline=best.headline,
            step=next((one.step for one in everyone if one.step is not None), None),
            ranks=_numbers([one.rank for one in everyone], [n for one in everyone for n in one.ranks])
            or _numbers([here.rank for here, _ in self.sightings]),
            count=max((n for (key, _), n in self._counts.items() if key == best.key), default=1),
            attribution=best.attribution,
            key=best.key,
            code=best.code or _code(everyone) or _number([here.body for here, _ in self.sightings]),
            reason=best.reason or next((one.reason for one in everyone if one.reason), None),
            evidence=_unique([m for one in everyone for m in one.evidence], MOST_ADVICE),
            advice=_unique([m for one in _by_knowledge(everyone) for m in one.advice], MOST_ADVICE),
            facts=_facts(_by_knowledge(everyone)),
            place=next((str(v) for one in everyone for name, v in one.facts if name == "place"), ""),
            first_wall_s=own[0] if own else self.first_s,
            last_wall_s=own[1] if own else self.last_s,
            is_clock_known=own is not None,
            source=self.source,
            line=line.number,
            text=clean(line.text.strip())[:MOST_CHARACTERS],
            context=self.context() if with_context else (),
            by_rank=_by_rank(self.sightings),
            knows=best.knows,
            devices=_numbers([one.device for one in everyone], [here.device for here, _ in self.sightings]),
        )
        return self._of_memory(told) if best.category == "oom" else told

    def _of_memory(self, told: Incident) -> Incident:
        """Return an out-of-memory incident with what its own numbers say."""
        found = memory_ran_out.explain([cleaned(self._lines[number]) for number in sorted(self._lines)])
        if found is None:
            return told
        return dataclasses.replace(
            told,
            headline=found.headline,
            reason=found.reason,
            advice=(found.advice,) if found.advice else (),
            code=found.code or told.code,
            facts=(*found.facts, *(one for one in told.facts if one.name != "device"))[:MOST_FACTS],
            devices=found.devices or told.devices,
            ranks=told.ranks or found.ranks,
            step=told.step if told.step is not None else found.step,
            key=f"oom {found.kind}",
        )


def _is_report(sighting: Sighting) -> bool:
    return sighting.knows >= REASON and sighting.key.startswith("report ")


def _is_known_twice(one: Sighting, other: Sighting) -> bool:
    """Tell whether two are of different kinds, neither of which is a mere wrapper's."""
    return (
        one.category not in _ANY
        and other.category not in _ANY
        and kind_of(one.category) != kind_of(other.category)
        and min(one.knows, other.knows) > GENERIC
    )


def _device_differs(one: Sighting, other: Sighting) -> bool:
    return one.device is not None and other.device is not None and one.device != other.device


def _by_knowledge(sightings: Sequence[Sighting]) -> list[Sighting]:
    return sorted(sightings, key=lambda one: -one.knows)


def _code(sightings: Sequence[Sighting]) -> str:
    """Return the code that tells most: that of torch_npu's trailer is a wrapper's."""
    codes = sorted((one.code for one in sightings if one.code), key=lambda code: code.startswith("ERR"))
    return codes[0] if codes else ""


def _number(bodies: Sequence[str]) -> str:
    """Return the runtime's number that a line gives where none is told otherwise: retcode:507015."""
    found = next(filter(None, (_RUNTIME.search(body[:2000]) for body in bodies)), None)
    return found[1] if found else ""


def _numbers(*lists: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(sorted({n for numbers in lists for n in numbers if n is not None and n >= 0}))


def _unique(messages: Sequence[object], most: int) -> tuple:  # type: ignore[type-arg]
    return tuple(dict.fromkeys(messages))[:most]


def _facts(sightings: Sequence[Sighting]) -> tuple[Fact, ...]:
    known: dict[str, Fact] = {}
    for one in sightings:
        for name, value in one.facts:
            if name != "place":
                known.setdefault(name, Fact(name, clean(value) if isinstance(value, str) else value))
    return tuple(known.values())[:MOST_FACTS]


def _by_rank(sightings: Sequence[tuple[Line, Sighting]]) -> tuple[tuple[int, str], ...]:
    doing = next((one.doing for _, one in sightings if one.doing), "")
    ranks = _numbers([one.rank for _, one in sightings]) or _numbers([line.rank for line, _ in sightings])
    return tuple((rank, clean(doing)) for rank in ranks) if doing else ()
