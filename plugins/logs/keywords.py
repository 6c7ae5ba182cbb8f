"""Words that the user of the monitor gave a severity, from the settings file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from ascend_tui.plugin import Message, Severity

from .sighting import HARMLESS, REASON, Found, Sighting

LONGEST = 4000
"""Characters of a line that keywords are looked for in: a regular expression may be slow in a long one."""
IGNORE = "ignore"

_HEADLINE = Message("a keyword of the settings: {line}")
_NO_DIGITS = {ord(digit): None for digit in "0123456789"}
_ATOM = re.compile(
    r"(?P<edge>\\[bBAZ]|\^|\$)"
    r"|(?P<odd>\(\?(?!:|P<)|\\[0-9xuUNpP])"
    r"|(?P<group>\(\?(?::|P<[^>]*>)|\((?!\?)|\)(?:[*+?]|\{\d*,?\d*\})?\??|\|)"
    r"|(?P<atom>\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|.)(?P<many>[*+?]|\{\d*,?\d*\})?[?+]?",
    re.DOTALL,
)
_FLAGS = re.compile(r"\(\?([aims]+)\)")


class Keywords:
    """Look for the words of one settings table, `text` or `/regular expression/` to a severity.

    A text is found in capitals too, and not inside a longer word: "nan" is not in "nanometre".
    """

    def __init__(self, table: Mapping[str, str] | None = None) -> None:
        self._all: list[tuple[re.Pattern[str], str, str]] = []
        self._first: list[re.Pattern[str] | None] = []
        """What a line without its digits has to hold, None where that cannot be told."""
        for text, weight in (table or {}).items():
            if len(text) > 2 and text[0] == text[-1] == "/":
                pattern, loose = text[1:-1], _without_digits(text[1:-1])
            else:
                pattern, loose = _whole(text), "(?i:" + re.escape(text.translate(_NO_DIGITS)) + ")"
            self._all.append((re.compile(pattern), text, weight))
            self._first.append(re.compile(loose) if loose is not None else None)

    def __bool__(self) -> bool:
        return bool(self._all)

    def is_special(self, text: str) -> bool:
        """Tell whether a line may hold a keyword, whatever its digits are: they are no part of a template."""
        if not self._all:
            return False
        bare = text[:LONGEST].translate(_NO_DIGITS)
        return any(pattern is None or pattern.search(bare) for pattern in self._first)

    def sight(self, text: str) -> Found:
        """Return what the first keyword in a line makes of it, HARMLESS where that is to be ignored."""
        text = text[:LONGEST]
        for pattern, keyword, weight in self._all:
            found = pattern.search(text)
            if found is None:
                continue
            if weight == IGNORE:
                return HARMLESS
            shown = text[max(0, found.start() - 120) : found.end() + 200].strip()
            headline = Message.of(_HEADLINE.text, line=shown)
            key = f"keyword {keyword}"
            return Sighting("other", cast("Severity", weight), headline, REASON, key, alone=True)
        return None


def _whole(text: str) -> str:
    """Return a pattern for a text that stands for itself, not inside a longer word."""
    word = "[A-Za-z0-9_]"
    before = f"(?<!{word})" if re.match(word, text) else ""
    after = f"(?!{word})" if re.search(word + r"\Z", text) else ""
    return "(?i:" + before + re.escape(text) + after + ")"


def _without_digits(pattern: str) -> str | None:
    """Return a pattern that a line without its digits matches wherever the line itself matches `pattern`.

    None where that cannot be told.  What may stand for a digit may be absent; no edge of a word is sure.
    """
    flags = _FLAGS.match(pattern)
    parts = []
    for found in _ATOM.finditer(pattern, flags.end() if flags else 0):
        if found["odd"]:
            return None
        if found["group"]:
            parts.append(found["group"])
        elif found["atom"]:
            atom, many = found["atom"], found["many"] or ""
            if atom.isdecimal() or atom == r"\d":
                continue
            if atom[0] == "[" or atom in (".", r"\w", r"\S", r"\D"):
                many = "?" if many in ("", "?") else "*"
            parts.append(atom + many)
    loose = (flags.group() if flags else "") + "".join(parts)
    try:
        re.compile(loose)
    except (re.error, OverflowError, RecursionError):
        return None
    return loose
