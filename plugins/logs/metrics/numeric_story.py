"""A numeric fault that goes on: what was bad first, since when, how often, and what is said of it now."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ascend_tui.frozen import frozen
from ascend_tui.judging.losses import figure
from ascend_tui.plugin import Attribution, Message, Severity
from ascend_tui.text import clean

from ..lines import cleaned, parse
from ..snapshot import Fact, Incident, Raw
from . import numeric_words as words
from .metric_names import Kind

SHOWN = 400
"""Characters of a line that are kept; what lies between its head and its key is left out."""
HEAD = 160
MOST_RANKS = 4096

What = Literal["bad", "missing", "explodes", "climbs"]


class Row(NamedTuple):
    """Where and when a line of metrics stands in its log.

    One is made for each line that is gone through, and a frozen data class takes four times as long.
    """

    step: int | None
    epoch: float | None
    rank: int | None
    number: int
    source: int
    raw: bytes
    wall_s: float | None = None
    """When it was read; its own clock is looked for where it is told."""

    @property
    def when(self) -> tuple[str, float] | None:
        """Return what lines of one moment have in common, None where the line does not tell its moment."""
        if self.step is not None:
            return "step", self.step
        return None if self.epoch is None else ("epoch", self.epoch)


@frozen
class Bad:
    """One number of a line that is bad, `before` being what it was."""

    kind: Kind
    name: str
    printed: str
    value: float
    before: float | None = None


class Story:
    """One fault of one kind of line."""

    def __init__(self, what: What, row: Row, bad: Sequence[Bad], key: str) -> None:
        """Begin with the line that showed it first."""
        self.what, self.first, self.last, self.key = what, row, row, key
        self.bad = tuple(bad)
        self.names = {one.name for one in bad}
        self.ranks: set[int] = set()
        self.count = 0
        self.is_zero = self.is_missing = self.is_bare = self.has_loss = False
        self.loss_step: int | None = None
        self.loss_later = False
        self.evidence: list[Message] = []
        self.reason: Message | None = None
        self.context: tuple[Raw, ...] = ()
        self.severity: Severity = "error"
        self.text = shown(row.raw, [one.printed for one in bad])
        self.add(row)

    def add(self, row: Row) -> None:
        """Take one more line of it; lines of one moment, as those of several ranks, count once."""
        if self.count == 0 or row.when is None or row.when != self.last.when:
            self.count += 1
        if row.rank is not None and len(self.ranks) < MOST_RANKS:
            self.ranks.add(row.rank)
        self.last = row

    def incident(self) -> Incident:
        """Return it as it is known now."""
        headline, reason, advice = _SAID[self.what](self)
        evidence = list(self.evidence)
        if self.loss_later and self.what == "bad":
            step = self.loss_step
            later = (
                words.THEN_LOSS_ANY if step is None else Message.of(words.THEN_LOSS.text, step=f"{step:,}")
            )
            evidence.insert(0, later)
        facts = [Fact(clean(one.printed)[:80] or "value", _fact(one.value)) for one in self.bad[:8]]
        if self.first.step is None and self.first.epoch is not None:
            facts.append(Fact("epoch", self.first.epoch))
        is_likely = self.what in ("missing", "climbs") or self.is_zero or self.is_bare
        attribution: Attribution = "likely" if is_likely else "exact"
        first_s, last_s = (parse(row.raw).wall_s for row in (self.first, self.last))
        return Incident(
            severity=self.severity,
            category="numeric",
            headline=headline,
            step=self.first.step,
            ranks=tuple(sorted(self.ranks)),
            count=self.count,
            attribution=attribution,
            key=self.key,
            reason=self.reason or reason,
            evidence=tuple(evidence),
            advice=advice,
            facts=tuple(facts),
            first_wall_s=self.first.wall_s if first_s is None else first_s,
            last_wall_s=self.last.wall_s if last_s is None else last_s,
            last_step=self.last.step,
            is_clock_known=first_s is not None,
            source=self.first.source,
            line=self.first.number,
            text=self.text,
            context=self.context,
        )


Said = tuple[Message, "Message | None", tuple[Message, ...]]


def _bad(story: Story) -> Said:
    parts = [one for one in story.bad if one.kind in ("part", "eval")]
    named = ", ".join(clean(one.printed)[:60] for one in parts[:3])
    losses = [one for one in story.bad if one.kind == "loss"]
    norms = [one for one in story.bad if one.kind == "norm"]
    if story.is_zero:
        headline = Message.of(words.ZERO.text, value=worded(norms[0].value))
        return headline, words.WHY_ZERO, (words.ADVISE_FILTER, words.ADVISE_FORWARD)
    if losses:
        value = worded(losses[0].value)
        if story.is_bare:
            headline = Message.of(words.BARE_BAD.text, value=value)
            return headline, words.WHY_BARE, (words.ADVISE_FORWARD, words.ADVISE_STOP)
        if not parts:
            return (
                Message.of(words.LOSS_BAD.text, value=value),
                None,
                (words.ADVISE_FORWARD, words.ADVISE_STOP),
            )
        headline = Message.of(words.LOSS_BAD_IN.text, value=value, parts=named)
        first = clean(parts[0].printed)[:60]
        reason = Message.of(words.WHY_FIRST_PART.text, part=first)
        return headline, reason, (Message.of(words.ADVISE_PART.text, part=first), words.ADVISE_FORWARD)
    if norms:
        value = worded(norms[0].value)
        if story.is_missing:
            headline = Message.of(words.NORM_BAD_MISSING.text, value=value)
            return headline, words.WHY_MISSING, (words.ADVISE_FORWARD, words.ADVISE_STOP)
        if story.has_loss:
            headline = Message.of(words.NORM_BAD.text, value=value)
            return headline, words.WHY_BACKWARD, (words.ADVISE_BACKWARD, words.ADVISE_STOP)
        return Message.of(words.NORM_BAD_ALONE.text, value=value), None, (words.ADVISE_BACKWARD,)
    if parts:
        text = (words.PART_BAD_TOTAL if story.has_loss else words.PART_BAD).text
        headline = Message.of(text, parts=named, value=worded(parts[0].value))
        return headline, None, (Message.of(words.ADVISE_PART.text, part=clean(parts[0].printed)[:60]),)
    one = story.bad[0]
    headline = Message.of(words.OTHER_BAD.text, name=clean(one.printed)[:60], value=worded(one.value))
    return headline, None, (words.ADVISE_FORWARD,)


def _missing(_story: Story) -> Said:
    return words.MISSING, words.WHY_MISSING, (words.ADVISE_FORWARD, words.ADVISE_STOP)


def _explodes(story: Story) -> Said:
    one = story.bad[0]
    before = "-" if one.before is None else figure(one.before)
    if one.kind == "loss":
        headline = Message.of(words.EXPLODES.text, before=before, value=figure(one.value))
    else:
        part = clean(one.printed)[:60]
        headline = Message.of(words.PART_EXPLODES.text, part=part, before=before, value=figure(one.value))
    return headline, None, (words.ADVISE_RATE, words.ADVISE_STOP)


def _climbs(_story: Story) -> Said:
    return words.CLIMBS, None, (words.ADVISE_RATE,)


_SAID = {"bad": _bad, "missing": _missing, "explodes": _explodes, "climbs": _climbs}


def worded(value: float) -> str:
    """Return a number that is not finite as people write it."""
    if math.isnan(value):
        return "NaN"
    return figure(value) if math.isfinite(value) else "Inf" if value > 0 else "-Inf"


def shown(raw: bytes, keys: Sequence[str] = ()) -> str:
    """Return a line safe to draw and short: its head, and the place of its key where that is far right."""
    text = clean(cleaned(raw)).strip()
    if len(text) <= SHOWN:
        return text
    at = max((text.rfind(key) for key in keys if key), default=-1)
    if at < SHOWN - 40:
        return text[: SHOWN - 1] + "…"
    room = SHOWN - HEAD - 3
    start = min(max(HEAD, at - room // 3), len(text) - room)
    return f"{text[:HEAD]} … {text[start : start + room]}"


def raw_of(row: Row, keys: Sequence[str] = (), is_key: bool = False) -> Raw:
    """Return a line as context."""
    return Raw(row.number, shown(row.raw, keys), row.source, is_key)


def _fact(value: float) -> float | str:
    return value if math.isfinite(value) else worded(value)
