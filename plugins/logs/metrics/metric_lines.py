"""Which lines print metrics, and how all lines of one template are read at once.

Lines of a template differ in their digits only, so what was understood of one holds for all: a single regular
expression over the joined lines brings the columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Optional

from ascend_tui.frozen import frozen

from ..lines import cleaned, text_of
from ..sighting import Line
from .metric_names import JUDGED, SCALED, Kind, normal
from .metric_scan import Pair, is_hinted, number, pairs_of

Column = list[Optional[float]]
MOST_JUDGED = 12
"""Losses and their like of one line that are followed; what is not finite is followed beside."""
MOST_SHOWN = 8
WATCHED = JUDGED | SCALED
_SHOWN = SCALED | {"rate", "shown"}
_RANK = re.compile(
    r"\[(?:rank|default|R)[ :_]?(?P<a>\d{1,6})\]|\(\w{0,40}?_TP(?P<b>\d{1,5}) pid="
    r"|\brank[ :=]{1,2}(?P<c>\d{1,6})\b",
    re.IGNORECASE,
)
_OVERFLOW = re.compile(r"\boverflow(?:[ _]cond(?:ition)?)?\s?[:=]\s?True\b", re.IGNORECASE)
_PIECE = re.compile(
    r"(?P<number>[-+.]?\d[\d.eE+\-]*|(?<![a-z])nan(?![a-z]))|(?P<spaces>[ \t]{2,})", re.IGNORECASE
)
_MARKS = (":", "=", "|", "'", ",", ";")
_ESCAPES = (b"\x1b", b"\r", b"\0")


@frozen
class Layout:
    """How the lines of one template are read: a column for each number that is followed.

    `names` are the field's words, `printed` those of the line; `family` are all names of the line, which tell
    one kind of line from another, whatever the form of its numbers.  `watched` are the columns whose every
    number counts, which `quick` brings alone.  `rank` is that of all its lines; `is_overflow` where they say
    `overflow cond: True`.
    """

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    printed: tuple[str, ...]
    units: tuple[str, ...]
    family: frozenset[str]
    pattern: re.Pattern[bytes]
    watched: tuple[int, ...]
    quick: re.Pattern[bytes]
    is_washed: bool = False
    rank: int | None = None
    is_overflow: bool = False

    def read(self, raws: Sequence[bytes]) -> list[Column]:
        """Return the columns of these lines; None where a line does not hold the number."""
        if self.is_washed:
            raws = [_washed(raw) for raw in raws]
        rows = self.pattern.findall(b"\n".join(raws))
        if len(rows) != len(raws):
            return self._one_by_one(raws)
        if len(self.names) == 1:
            rows = [(row,) for row in rows]
        try:
            return [list(map(float, column)) for column in zip(*rows)]
        except ValueError:
            return [[_number(value) for value in column] for column in zip(*rows)]

    def watch(self, raws: Sequence[bytes]) -> list[list[float]] | None:
        """Return the watched columns; None where one of the lines lacks a number."""
        if not self.watched:
            return []
        if self.is_washed:
            raws = [_washed(raw) for raw in raws]
        rows = self.quick.findall(b"\n".join(raws))
        if len(rows) != len(raws):
            return None
        columns = list(zip(*rows)) if len(self.watched) > 1 else [rows]
        try:
            return [list(map(float, column)) for column in columns]
        except ValueError:
            numbers = [[_number(value) for value in column] for column in columns]
        found = [[value for value in column if value is not None] for column in numbers]
        return found if found == numbers else None

    def fields(self, raw: bytes) -> list[Pair]:
        """Return all numbers with a name of one line, also those that are not followed."""
        return pairs_of(cleaned(raw))

    def _one_by_one(self, raws: Sequence[bytes]) -> list[Column]:
        rows: list[Sequence[float | None]] = []
        for raw in raws:
            found = self.pattern.search(raw)
            rows.append([_number(value) for value in found.groups()] if found else [None] * len(self.names))
        return [list(column) for column in zip(*rows)]


def is_metric(text: str) -> bool:
    """Tell whether a line could be one of metrics, cheaply: `layout_of` has the last word."""
    return is_hinted(text)


def layout_of(line: Line, raw: bytes) -> Layout | None:
    """Return how lines like this one are read, None where it holds no metric."""
    start = max(0, len(line.text) - len(line.body)) if line.text.endswith(line.body) else 0
    pairs = pairs_of(line.text, start)
    if not pairs:
        return None
    family = frozenset(normal(pair.printed) for pair in pairs if pair.kind not in ("step", "epoch", "rank"))
    columns = _columns(pairs)
    rank = _RANK.search(line.text[:400])
    if rank is not None and not any(pair.kind == "rank" for pair in columns):
        at = next(group for group in "abc" if rank[group])
        columns.append(Pair("rank", "rank", "rank", float(rank[at]), rank.start(at), rank.end(at)))
    columns.sort(key=lambda pair: pair.start)
    is_washed = any(one in raw for one in _ESCAPES) or text_of(raw).rstrip() != line.text
    codec = "utf-8"
    if not is_washed and line.text.encode(codec) != raw.rstrip():
        codec = "gb18030"
        is_washed = line.text.encode(codec, "replace") != raw.rstrip()
    codec = "utf-8" if is_washed else codec
    return Layout(
        names=tuple(pair.name for pair in columns),
        kinds=tuple(pair.kind for pair in columns),
        printed=tuple(pair.printed for pair in columns),
        units=tuple(pair.unit for pair in columns),
        family=family,
        pattern=_compiled(_pattern(line.text, columns).encode(codec)),
        watched=tuple(at for at, pair in enumerate(columns) if pair.kind in WATCHED),
        quick=_compiled(
            _pattern(line.text, [pair for pair in columns if pair.kind in WATCHED]).encode(codec)
        ),
        is_washed=is_washed,
        rank=None if any(pair.kind == "rank" for pair in columns) else line.rank,
        is_overflow=_OVERFLOW.search(line.text) is not None,
    )


def _columns(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs that are followed, each name once, the foremost of what is judged."""
    chosen: dict[str, Pair] = {}
    judged = shown = 0
    for pair in sorted(pairs, key=lambda pair: pair.kind not in ("loss", "norm")):
        if pair.name in chosen or pair.kind in ("other", "setting"):
            continue
        if pair.kind in JUDGED:
            if judged >= MOST_JUDGED and (math.isfinite(pair.value) or judged >= 2 * MOST_JUDGED):
                continue
            judged += 1
        elif pair.kind in _SHOWN:
            if shown >= MOST_SHOWN:
                continue
            shown += 1
        chosen[pair.name] = pair
    return list(chosen.values())


def _pattern(text: str, columns: Sequence[Pair]) -> str:
    """Return the expression of a template: its columns as groups, other numbers and widths left open."""
    parts: list[str] = []
    at = 0
    for pair in columns:
        parts += (_hops(text[at : pair.start]), _slot(text, pair))
        at = pair.end
    return "".join(parts) + r"[^\n]*"


def _slot(text: str, pair: Pair) -> str:
    """Return the group of a number: `nan` and `1e-5` are letters too, those behind `25GiB` are not of it."""
    letters = "" if text[pair.end : pair.end + 1].isalpha() else "a-zA-Z"
    comma = "," if "," in text[pair.start : pair.end] else ""
    # What ends a sentence or parts two fields is no part of the number.
    return f"([-+.{comma}0-9{letters}]*[0-9{letters}])"


def _hops(text: str) -> str:
    """Return the expression of what stands between two columns.

    From colon to colon is three times as fast as letter by letter, and as sure: all lines of a template have
    the same ones.
    """
    last = max(_MARKS, key=text.rfind)
    cut = text.rfind(last) + 1
    if not cut:
        return _opened(text)
    mark = re.escape(last)
    return rf"[^{mark}\n]*{mark}" + f"[^{mark}]*{mark}" * (text.count(last) - 1) + _opened(text[cut:])


def _opened(text: str) -> str:
    parts: list[str] = []
    at = 0
    for found in _PIECE.finditer(text):
        parts.append(re.escape(text[at : found.start()]))
        parts.append(r"[ \t]+" if found["spaces"] else "[-+.0-9a-zA-Z]+")
        at = found.end()
    return "".join([*parts, re.escape(text[at:])])


def span_of(values: Sequence[float]) -> tuple[float, float]:
    """Return the extremes of numbers, NaN where one of them is not finite."""
    total = sum(values)
    if total - total != 0:
        return math.nan, math.nan
    return min(values), max(values)


@lru_cache(maxsize=512)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern)


def _washed(raw: bytes) -> bytes:
    return cleaned(raw).encode("utf-8", "replace")


def _number(value: bytes) -> float | None:
    """Return the number that a group holds, None where it holds none."""
    try:
        return number(value.decode("ascii").rstrip(","))
    except ValueError:
        return None
