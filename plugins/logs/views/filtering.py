r"""Which lines a typed filter lets through: words, `/regular expressions/`, `sev:error rank:3 since:10m`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Union

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message
from ascend_tui.text import say, tr

from ..snapshot import Incident, Metric, Source, Template
from .figures import SEVERITIES, category_word, grade, plain

Shown = Union[Incident, Metric, Template, Source]
"""What the four tables have a line for."""
_MOST_WORDS = 16
_MOST_CHARACTERS = 600
"""Of each text that a regular expression is tried on."""
_RANGE = re.compile(r"(\d{0,15})-(\d{0,15})")
_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])")
_AGES_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NAMES = ("sev", "cat", "rank", "since", "step", "code")
_CLOSED = re.compile(r"(?:^|(?<=\s))/(\S.*)/i?(?=\s|$)")
_OPEN = re.compile(r"(?:^|(?<=\s))/(\S+)")
_REGEX = re.compile(r"(?:^|(?<=\s))re[:：](.+)$")


class NotAFilter(ValueError):
    """What was typed cannot be understood; says why in a Message."""

    def __init__(self, message: Message) -> None:
        """Keep the sentence."""
        super().__init__(message.text)
        self.message = message


@frozen
class Filter:
    """A filter as it was typed, taken apart; every part has to fit, of one name any."""

    text: str = ""
    words: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    least: str = ""
    categories: tuple[str, ...] = ()
    ranks: tuple[tuple[int, int], ...] = ()
    steps: tuple[tuple[int, float], ...] = ()
    codes: tuple[str, ...] = ()
    since_s: float | None = None

    def fits(self, one: Shown, now_s: float = 0.0) -> bool:
        """Tell whether a line of any table is one of those asked for; `now_s` is Unix time."""
        if isinstance(one, Incident):
            return self._fits_incident(one, now_s) and self._is_said(_texts_of_incident(one))
        if self.least or self.categories or self.codes:
            return False
        if isinstance(one, Metric):
            return self._is_between(one.step, one.step) and self._is_said([one.name, one.printed, one.trend])
        if isinstance(one, Template):
            return self._is_said([one.text, one.example, one.level])
        if self.ranks and not (one.rank is not None and self._has_rank((one.rank,))):
            return False
        return self._is_said([one.name, one.kind, one.state])

    def _fits_incident(self, one: Incident, now_s: float) -> bool:
        if self.least and grade(one.severity) < grade(self.least):
            return False
        if self.categories and not any(_is_category(word, one.category) for word in self.categories):
            return False
        if self.ranks and not self._has_rank(one.ranks):
            return False
        if self.codes and not any(word in text for word in self.codes for text in _codes_of(one)):
            return False
        if self.since_s is not None and not (
            one.last_wall_s is not None and one.last_wall_s >= now_s - self.since_s
        ):
            return False
        return self._is_between(one.step, one.last_step if one.last_step is not None else one.step)

    def _has_rank(self, ranks: Iterable[int]) -> bool:
        return any(first <= rank <= last for rank in ranks for first, last in self.ranks)

    def _is_between(self, first: int | None, last: int | None) -> bool:
        if not self.steps:
            return True
        if first is None or last is None:
            return False
        return any(low <= max(first, last) and min(first, last) <= high for low, high in self.steps)

    def _is_said(self, texts: list[str]) -> bool:
        lowered = [text.lower() for text in texts] if self.words else []
        if not all(any(word in text for text in lowered) for word in self.words):
            return False
        pattern = self.pattern
        return pattern is None or any(pattern.search(text[:_MOST_CHARACTERS]) for text in texts)


def parse(text: str) -> Filter:
    """Take a filter apart: `hccl timeout`, `/seq.*19\\d/`, `re:EI00\\d+`, `sev:error since:10m 17000-18000`.

    Raises NotAFilter with the reason; a filter whose last name still lacks its value leaves that out.
    """
    typed = text.strip()
    rest, pattern = _pattern(typed)
    # In Chinese the colon is often the wide one.
    rest = rest.replace("：", ":")
    words: list[str] = []
    named: dict[str, list[str]] = {name: [] for name in _NAMES}
    for word in rest.split()[:_MOST_WORDS]:
        name, colon, value = word.partition(":")
        if colon and name.lower() in named:
            # While it is typed a name comes before its value.
            named[name.lower()] += [part for part in value.lower().split(",") if part]
        elif (ends := _steps(word)) is not None:
            named["step"].append(f"{ends[0]}-{'' if math.isinf(ends[1]) else int(ends[1])}")
        elif word not in ("re:", "/"):
            words.append(word.lower())
    return Filter(
        typed,
        tuple(words),
        pattern,
        least=_severity(named["sev"]),
        categories=tuple(named["cat"]),
        ranks=tuple((first, int(min(last, 1e9))) for first, last in _ranges("rank", named["rank"])),
        steps=tuple(_ranges("step", named["step"])),
        codes=tuple(named["code"]),
        since_s=_age(named["since"]),
    )


def _pattern(text: str) -> tuple[str, re.Pattern[str] | None]:
    """Return the filter without its regular expression, and that; lower and upper case are the same."""
    # While it is typed the second slash is still missing.
    found = _REGEX.search(text) or _CLOSED.search(text) or _OPEN.search(text)
    if found is None:
        return text, None
    try:
        pattern = re.compile(found.group(1), re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise NotAFilter(
            Message.of("no regular expression: {reason}", reason=plain(str(error), 80))
        ) from error
    return f"{text[: found.start()]} {text[found.end() :]}", pattern


def _steps(word: str) -> tuple[int, float] | None:
    """Return the ends of `17000-18000`, `17,000-` or `-300`; a date and a bare number are words."""
    ends = _RANGE.fullmatch(word.replace(",", ""))
    if ends is None or not (ends.group(1) or ends.group(2)):
        return None
    first, last = int(ends.group(1) or 0), int(ends.group(2)) if ends.group(2) else math.inf
    return (first, last) if last >= first else (int(last), first)


def _ranges(name: str, values: Iterable[str]) -> Iterable[tuple[int, float]]:
    for value in values:
        if value.isascii() and value.isdigit() and len(value) < 16:
            yield int(value), int(value)
        elif (ends := _steps(value)) is not None:
            yield ends
        else:
            raise NotAFilter(
                Message.of("{name}: needs a number or a range, such as {example}", name=name, example="0-3")
            )


def _severity(values: list[str]) -> str:
    """Return the least severity that is asked for, by the beginning of its name in any language."""
    for value in values[:1]:
        for name, (_, word, _) in SEVERITIES.items():
            if name.startswith(value) or tr(word).lower().startswith(value):
                return name
        names = ", ".join(SEVERITIES)
        raise NotAFilter(Message.of("{name}: is one of {names}", name="sev", names=names))
    return ""


def _age(values: list[str]) -> float | None:
    for value in values[:1]:
        found = _AGE.fullmatch(value)
        if found is None and not value.isdigit():
            raise NotAFilter(Message.of("since: needs a time, such as {example}", example="90s, 10m, 2h"))
        # While it is typed the unit is still missing.
        return float(found.group(1)) * _AGES_S[found.group(2)] if found else None
    return None


def _is_category(word: str, category: str) -> bool:
    return category.startswith(word) or word in category_word(category).lower()


def _codes_of(one: Incident) -> list[str]:
    facts = [str(fact.value) for fact in one.facts if "code" in fact.name]
    return [text.lower() for text in (one.code, *facts)]


def _texts_of_incident(one: Incident) -> list[str]:
    texts = [say(one.headline), one.text, one.code, one.place, one.category]
    texts += [f"{fact.name} {fact.value}" for fact in one.facts]
    return texts + [raw.text for raw in one.context]
