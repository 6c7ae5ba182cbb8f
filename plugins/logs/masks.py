"""What of a line is a value by its look: numbers, times, addresses, identifiers, paths, quoted names."""

from __future__ import annotations

import re

LONGEST = 600
"""Characters of a line that are looked at; what comes behind is values more often than words."""
HOLE = "<*>"

# What may hold a space is looked for in a whole line, the rest word by word; no part is walked through twice.
_BAR = re.compile(r"\|[#█▉▊▋▌▍▎▏░▒▓ =>.-]+\|")
_QUOTED = re.compile(r"(?<![\w'])'[^'\n]{1,200}'(?![\w':])|(?<![\w\"])\"[^\"\n]{1,200}\"(?![\w\":])")
_DAY = re.compile(
    r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? "
    r"(?:\d|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[\w: ]{0,40}\d"
)
_IN_WORD = re.compile(
    r"(?P<path>(?<![\w.<])(?:[A-Za-z]:|~|\.{1,2})?(?:[/\\][\w.@+=,~%-]{1,255}){2,}[/\\]?"
    r"|\b[a-z][a-z0-9+]{1,9}://[^\s\"'<>]{1,500})"
    r"|(?P<id>\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b|\b[0-9a-f]{1,2}(?::[0-9a-f]{1,2}){5}\b)"
    r"|(?P<number>(?<![\w.])[-+]?(?:0x[0-9a-fA-F]+|\d[\d.,:]*(?<![.,:])(?:[eE][-+]?\d+)?)(?![\w]))"
    r"|(?P<value>(?<=[:=])(?:[-+]?(?:nan|inf|NaN|Inf|infinity)|True|False|None|true|false|null)\b)"
    r"|(?P<dotted>\b[A-Za-z_]\w{0,80}(?:\.\w{1,80}){2,20}(?![\w(]))"
    r"|(?P<word>\b(?:tmp[a-z0-9_]{6,12}\b|[^\W\d]{0,80}\d\w{0,200}))"
)
_VALUES = frozenset(
    sign + word
    for word in ("nan", "inf", "NaN", "Inf", "infinity", "True", "False", "None", "true", "false", "null")
    for sign in ("", "-", "+")
)
_DAYS = frozenset(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))
_HEX = re.compile(r"[0-9a-fA-F]{8,}|[0-9a-f]{4,}(?:_[0-9a-f]{4,}){2,}")
_MIXED = re.compile(r"\d[A-Za-z]+\d+[A-Za-z]")
_DIGITS = re.compile(r"\d+")
_JOINED = re.compile(r"(?:(?<=_)-)?<\*>(?:[-+.,:/x_*@ ]{0,2}<\*>)*")
_RULED = re.compile(r"([-=*#_~.+])\1{3,}")


def mask(text: str) -> str:
    """Return a line with `<*>` for what is a value by its look; equal for lines that say the same."""
    text = text[:LONGEST]
    if "|" in text:
        text = _BAR.sub("|<*>|", text)
    if "'" in text or '"' in text:
        text = _QUOTED.sub(lambda found: found[0][0] + HOLE + found[0][0], text)
    words = text.split()
    if not _DAYS.isdisjoint(words) or not _DAYS.isdisjoint(word[:-1] for word in words if word[-1] == ","):
        words = _DAY.sub(HOLE, " ".join(words)).split()
    for at, word in enumerate(words):
        if word.isalpha():
            # Few words are a value, and few of these stand where one is expected.
            if (word in _VALUES and at and words[at - 1][-1] in ":=") or word.startswith("tmp"):
                words[at] = _masked(word) if word not in _VALUES else HOLE
        elif word.isdigit() or (word.strip(",;") in _VALUES and at and words[at - 1][-1] in ":="):
            words[at] = HOLE + word[len(word.rstrip(",;")) :]
        else:
            words[at] = _masked(word)
    masked = " ".join(words)
    if HOLE in masked:
        masked = _JOINED.sub(HOLE, masked)
    return _RULED.sub(r"\1\1\1", masked)


def _masked(word: str) -> str:
    """Return a word with holes; words without digits are known after the first time."""
    found = _known.get(word)
    if found is None:
        found = _IN_WORD.sub(_hole, word)
        if found == word and len(word) < 40:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[word] = found
    return found


_MOST_KNOWN = 4096
_known: dict[str, str] = {}


def _hole(found: re.Match[str]) -> str:
    if found.lastgroup != "word":
        return HOLE
    word = found.group()
    if word.startswith("tmp") or _HEX.fullmatch(word) or _MIXED.search(word):
        return HOLE
    return _DIGITS.sub(HOLE, word)
