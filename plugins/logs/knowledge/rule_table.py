"""Rules as rows of a table: what a line has to hold, what it then tells, and what to do."""

from __future__ import annotations

import re
from typing import Callable

from ascend_tui.plugin import Attribution, Category, Message, Scalar, Severity
from ascend_tui.text import clean

from ..sighting import HARMLESS, SPECIFIC, Found, Harmless, Line, Rule, Sighting

Row = tuple[tuple[str, ...], Rule]
MOST = 300
"""Characters of a foreign text inside a sentence."""
_WINDOW = 4_000
"""Characters around a needle that a pattern sees: a line may be endless."""
_TEMPORARY = re.compile(
    r"(?:/[\w.+-]{1,64}){0,12}/(?:tmp[\w-]{4,40}|torchinductor_\w{1,40}"
    r"|kernel_meta_\w{1,64})(?:/[\w.+-]{1,80}){0,6}?(?=/[\w.+-]{1,80}(?![\w./+-])|$)"
    r"|\btmp[a-z0-9_]{6,12}\b|0x[0-9a-fA-F]{4,16}\b"
)
_LONG_HASH = re.compile(r"_?(?<![0-9a-zA-Z])[0-9a-f]{24,64}(?![0-9a-zA-Z])")
_NUMBER = re.compile(r"\d+")
_SPACES = re.compile(r"\s+")


def short(text: str, most: int = MOST) -> str:
    """Return a foreign text on one line, safe to draw, its end left out where it is long."""
    text = _SPACES.sub(" ", clean(text[: 4 * most])).strip()
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def masked(text: str, most: int = MOST) -> str:
    """Return a text without names of temporary files, addresses and hashes: they differ each time."""
    return short(_LONG_HASH.sub("", _TEMPORARY.sub("*", text[: 4 * most])), most)


def key_of(text: str) -> str:
    """Return what a text has in common with the same one of another time: no numbers, no names of a "
    "moment."""
    return _NUMBER.sub("#", masked(text, 120)).lower()


def near(text: str, needles: tuple[str, ...]) -> str:
    """Return the part of a line around its first needle, all of it where it is short."""
    if len(text) <= 2 * _WINDOW:
        return text
    at = min((found for found in map(text.find, needles) if found >= 0), default=0)
    return text[max(0, at - _WINDOW) : at + _WINDOW]


def number(text: str | None) -> int | None:
    """Return a whole number of at most 18 digits; None for anything else."""
    if text is None or not re.fullmatch(r"-?\d{1,18}", text.strip(), re.ASCII):
        return None
    return int(text)


def row(
    needles: tuple[str, ...],
    pattern: str,
    headline: Message,
    category: Category,
    severity: Severity = "error",
    knows: int = SPECIFIC,
    key: str = "",
    attribution: Attribution = "exact",
    reason: Message | None = None,
    advice: tuple[Message, ...] = (),
    facts: tuple[str, ...] = (),
    alone: bool = False,
    flags: int = 0,
) -> Row:
    """Return a rule that knows lines by a pattern.

    Its named groups are the places of the headline; those in `facts` are facts, whole numbers as such.
    `rank`, `device`, `step`, `count` and `code` are also what they are called.  The key of a sighting is
    `key` with its own {places} filled, so that one fault of two operators is two.
    """
    compiled = re.compile(pattern, flags)

    def sight(line: Line) -> Found:
        found = compiled.search(near(line.text, needles))
        if found is None:
            return None
        places: dict[str, Scalar] = {
            name: masked(value) if isinstance(value, str) else "" for name, value in found.groupdict().items()
        }
        told = {name: found.groupdict().get(name) for name in ("rank", "device", "step", "count")}
        return Sighting(
            category=category,
            severity=severity,
            headline=Message(headline.text, tuple(places.items())) if places else headline,
            knows=knows,
            key=(key or headline.text).format(**places),
            attribution=attribution,
            code=str(places.get("code", "")),
            reason=reason,
            advice=advice,
            facts=tuple((name, scalar(found[name])) for name in facts if found[name]),
            step=number(told["step"]),
            rank=number(told["rank"]),
            device=number(told["device"]),
            count=max(1, number(told["count"]) or 1),
            alone=alone,
        )

    return needles, sight


def scalar(text: str) -> Scalar:
    """Return a fact's value: a number where the text is one."""
    whole = number(text)
    return masked(text) if whole is None else whole


def harmless(needles: tuple[str, ...], pattern: str, flags: int = 0) -> Row:
    """Return a rule for lines that are known to be nothing."""
    compiled = re.compile(pattern, flags)

    def sight(line: Line) -> Harmless | None:
        return HARMLESS if compiled.search(near(line.text, needles)) else None

    return needles, sight


def custom(needles: tuple[str, ...], sight: Callable[[Line], Found]) -> Row:
    """Return a rule that is a function."""
    return needles, sight
