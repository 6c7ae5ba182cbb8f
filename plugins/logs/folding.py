"""The same incident again, of another rank or at another time, is one line with a count."""

from __future__ import annotations

import dataclasses
import re
from collections import deque
from collections.abc import Callable

from ascend_tui.plugin import Message

from .episodes import MOST_FACTS
from .snapshot import SEVERITIES, Incident, Key, Raw, key_of, kind_of

RECENT, SHORT = 8, 20
"""Times of an incident that are remembered; characters, under which lines are the same by chance."""
MOST = 200
"""Incidents that are kept; beyond, the mildest and oldest is let go."""
ECHO_S, ECHO_LINES = 30.0, 200
"""What one rank tells again so soon, in the words of another layer, happened once."""
SAME_HANG_S = 300.0
"""Ranks that give up so near each other waited for the same."""
_FIRST = Message("rank {rank} was first, by the times of its lines")
_DIFFER = Message("ranks are in different collectives: {what}")
_WHY_DIFFER = Message(
    "the program took another way on these ranks, so that each waits for a collective the others never enter"
)


class Folded:
    """Incidents by what they are, in bounded memory."""

    def __init__(self) -> None:
        """Start with none."""
        self.dropped = 0
        self._known: dict[Key, Incident] = {}
        self._recent: dict[Key, deque[tuple[int, tuple[int, ...], str]]] = {}
        self._twice: set[tuple[Key, int]] = set()
        """Sources that tell of an incident what another one has told already."""

    def add(self, one: Incident, context: Callable[[], tuple[Raw, ...]] | None = None) -> Key:
        """Take an incident that is over; return under which key it is kept.

        `context` makes the lines around it, which is done for the first of its kind only.
        """
        key = key_of(one)
        if not self._room(one):
            return key
        if self._is_twice(key, one):
            self._twice.add((key, one.source))
            return key
        key = _into(self._known, one)
        self._recent.setdefault(key, deque(maxlen=RECENT)).append((one.source, one.ranks, one.text))
        kept = self._known[key]
        if not kept.context and context is not None:
            self._known[key] = dataclasses.replace(kept, context=context())
        return key

    def seen_again(self, key: Key, source: int, count: int, wall_s: float | None, rank: int | None) -> None:
        """Count what is known already, where its lines need not be read again."""
        one = self._known.get(key)
        if one is not None and (key, source) not in self._twice:
            ranks = one.ranks if rank is None else tuple(sorted({*one.ranks, rank}))
            self._known[key] = dataclasses.replace(
                one, count=one.count + count, last_wall_s=wall_s or one.last_wall_s, ranks=ranks
            )

    def with_open(self, told: list[Incident]) -> tuple[Incident, ...]:
        """Return all incidents, those that are still being told among them."""
        known = dict(self._known)
        for one in told:
            if not self._is_twice(key_of(one), one):
                _into(known, one)
        return tuple(known.values())

    def _is_twice(self, key: Key, one: Incident) -> bool:
        """Tell whether another source has just told it in the same words: a logger with two handlers."""
        return any(
            source != one.source and ranks == one.ranks and _is_same_message(text, one.text)
            for source, ranks, text in self._recent.get(key, ())
        )

    def _room(self, one: Incident) -> bool:
        if len(self._known) < MOST or key_of(one) in self._known:
            return True
        self.dropped += 1
        mildest = min(self._known, key=lambda key: SEVERITIES.index(self._known[key].severity))
        if SEVERITIES.index(self._known[mildest].severity) > SEVERITIES.index(one.severity):
            return False
        del self._known[mildest]
        self._recent.pop(mildest, None)
        return True


def _into(known: dict[Key, Incident], one: Incident) -> Key:
    key = key_of(one)
    before = known.get(key)
    if before is None:
        other = _told_by_another(known, one)
        if other is None:
            known[key] = one
            return key
        key, before = other, known[other]
        known[key] = _merged(before, one, before if before.knows >= one.knows else one, is_echo=True)
        return key
    known[key] = _merged(before, one, before, _is_echo(before, one))
    return key


def _told_by_another(known: dict[Key, Incident], one: Incident) -> Key | None:
    """Return what another source tells of now: a plog tells the reason, a program the wrapper."""
    for key, other in reversed(list(known.items())):
        if other.source == one.source or not (other.is_clock_known and one.is_clock_known):
            continue
        near = abs((other.last_wall_s or 0) - (one.first_wall_s or 0)) <= ECHO_S
        same = kind_of(other.category) == kind_of(one.category) or "crash" in (other.category, one.category)
        if near and same and _same_place(other, one):
            return key
    return None


def _same_place(one: Incident, other: Incident) -> bool:
    for here, there in ((one.devices, other.devices), (one.ranks, other.ranks)):
        if here and there and not set(here) & set(there):
            return False
    if one.code and one.code == other.code:
        return True
    number = _facts_of(one, "error_code")
    return bool(number) and number == _facts_of(other, "error_code")


def _facts_of(one: Incident, name: str) -> str:
    return next((str(fact.value) for fact in one.facts if fact.name == name), "")


def _is_echo(before: Incident, one: Incident) -> bool:
    """Tell whether one rank tells the same a second time, rather than that it happened twice."""
    if before.ranks != one.ranks or before.source != one.source or _words(before) == _words(one):
        return False
    if before.is_clock_known and one.is_clock_known:
        return abs((one.first_wall_s or 0) - (before.last_wall_s or 0)) <= ECHO_S
    return one.line - before.line <= ECHO_LINES


def _is_same_message(one: str, other: str) -> bool:
    """Tell whether two lines differ in what stands before their message only."""
    return min(len(one), len(other)) >= SHORT and (one.endswith(other) or other.endswith(one))


def _words(one: Incident) -> str:
    return re.sub(r"\d+", "", one.text)


def _merged(before: Incident, one: Incident, lead: Incident, is_echo: bool) -> Incident:
    facts = {fact.name: fact for fact in (*one.facts, *before.facts, *lead.facts)}
    by_rank = tuple(sorted({**dict(one.by_rank), **dict(before.by_rank)}.items()))
    timed = [each for each in (before, one) if each.is_clock_known] or [before, one]
    first = min((each.first_wall_s for each in timed if each.first_wall_s is not None), default=None)
    last = max((each.last_wall_s for each in timed if each.last_wall_s is not None), default=None)
    steps = [n for n in (before.last_step, one.last_step, one.step) if n is not None]
    merged = dataclasses.replace(
        lead,
        severity=max((before.severity, one.severity), key=SEVERITIES.index),
        step=before.step if before.step is not None else one.step,
        last_step=max(steps, default=None),
        ranks=tuple(sorted({*before.ranks, *one.ranks})),
        devices=tuple(sorted({*before.devices, *one.devices})),
        count=before.count + (0 if is_echo else one.count),
        facts=tuple(facts.values())[:MOST_FACTS],
        evidence=tuple(dict.fromkeys((*before.evidence, *one.evidence)))[:8],
        advice=tuple(dict.fromkeys((*lead.advice, *before.advice, *one.advice)))[:4],
        code=lead.code or before.code or one.code,
        reason=lead.reason or before.reason or one.reason,
        place=before.place or one.place,
        first_wall_s=first,
        last_wall_s=last,
        is_clock_known=timed[0].is_clock_known,
        by_rank=by_rank,
    )
    return _with_first_rank(_with_mismatch(merged), before, one)


def _with_mismatch(one: Incident) -> Incident:
    """Say it where ranks that wait for each other wait in different operations."""
    doing: dict[str, list[int]] = {}
    for rank, what in one.by_rank:
        doing.setdefault(what, []).append(rank)
    if len(doing) < 2 or kind_of(one.category) != "peers":
        return one
    what = "; ".join(
        f"rank {', '.join(map(str, ranks[:8]))} {operator}" for operator, ranks in list(doing.items())[:4]
    )
    return dataclasses.replace(one, headline=Message.of(_DIFFER.text, what=what), reason=_WHY_DIFFER)


def _with_first_rank(merged: Incident, before: Incident, one: Incident) -> Incident:
    """Say which rank was first, which is not which was printed first."""
    if kind_of(merged.category) != "peers" or not (before.is_clock_known and one.is_clock_known):
        return merged
    earlier, later = (before, one) if (before.first_wall_s or 0) <= (one.first_wall_s or 0) else (one, before)
    apart_s = (later.first_wall_s or 0) - (earlier.last_wall_s or 0)
    if before.ranks == one.ranks or len(earlier.ranks) != 1 or apart_s > SAME_HANG_S:
        return merged
    kept = tuple(message for message in merged.evidence if message.text != _FIRST.text)
    return dataclasses.replace(merged, evidence=(Message.of(_FIRST.text, rank=earlier.ranks[0]), *kept))
