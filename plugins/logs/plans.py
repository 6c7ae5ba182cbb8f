"""What is to be done with a line is decided once for all lines of its key."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Protocol

from .blocks import DIGITS, Block
from .knowledge import harmless, python_errors, rules
from .lines import cleaned
from .metrics import metric_lines
from .metrics.following import is_scale_line
from .sighting import GENERIC, HARMLESS, Found, Line, Sighting
from .templates import Templates

KEY_BYTES = 8 << 20
"""Bytes of keys whose plan is remembered, in each of two generations."""
FLOOD = 32
"""Lines of one key that are read one by one; of further ones most are only counted."""
GRAVE = 3
_ZERO = re.compile(r"(?<![\w.])0(?:\.0*)?(?![\w.])")
NOTHING = 12
"""Lines of one key that told nothing: of further ones, which differ in digits, few are read."""
READ_OF_FLOOD = 16
WIDE = 2000
"""Bytes of a line by which those are found that differ in paths, addresses and identifiers only."""
_VARIES = re.compile(
    rb"(?<=[ '\"=(:\[])/[\w.+-]+(?:/[\w.+-]+)+|0x[0-9a-fA-F]+|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{3,64}\b"
)
_CODES = re.compile(
    rb"(?:\b|_)(?:E[A-Z0-9]\d{4}|ERR\d{5}|[125]0\d{4})\b|(?:code|ret\w*|result)\W{1,6}\d+", re.IGNORECASE
)


class Keywords(Protocol):
    """What the user wants to be told of."""

    def is_special(self, text: str) -> bool:
        """Tell whether a line may hold one of the words, whatever its digits are."""

    def sight(self, text: str) -> Found:
        """Return what the user wants to be told of a line, or that it is to be ignored."""


class Plan:
    """What is done with the lines of one key: boring, harmless, metric, scale or special."""

    __slots__ = ("codes", "hits", "is_context", "kind", "layout", "nothing", "rows", "story", "told")

    def __init__(self, kind: str, layout: Any = None, rows: Any = None) -> None:
        self.kind, self.layout, self.rows = kind, layout, rows
        self.hits = 0
        self.nothing = self.told = 0
        """Lines that told nothing, all so far, and that told something."""
        self.story: tuple[str, str] | None = None
        """The incident whose line that matters is of this key."""
        self.is_context = False
        """Lines of this key go with an incident and tell nothing new of it."""
        self.codes: list[bytes] | None = None

    def is_counted_only(self, raw: bytes) -> bool:
        """Tell whether a line need not be read, because many like it were, with the same codes."""
        self.hits += 1
        if self.nothing > NOTHING:
            return self.hits % READ_OF_FLOOD > 0 and _CODES.findall(raw) == self.codes
        if self.hits <= FLOOD or (self.story is None and not self.is_context):
            return False
        codes = _CODES.findall(raw)
        if self.codes is None:
            self.codes = codes
        return codes == self.codes

    def tells_nothing(self, raw: bytes) -> None:
        """Learn that a line told nothing, as all of its key did so far."""
        self.nothing += not self.told
        if self.nothing == NOTHING:
            self.codes = _CODES.findall(raw)


class Plans:
    """The plans of the keys that were seen, in bounded memory."""

    def __init__(self, templates: Templates, keywords: Keywords | None) -> None:
        """Know no key; `templates` gets the lines that are no metric."""
        self._templates, self._keywords = templates, keywords
        self._young: dict[bytes, Plan] = {}
        self._old: dict[bytes, Plan] = {}
        self._key_bytes = 0
        self.harmless = 0

    def sort(self, block: Block) -> tuple[dict[bytes, Plan], dict[bytes, Plan]]:
        """Return the keys of a block whose lines are special, and those whose lines hold metrics."""
        special: dict[bytes, Plan] = {}
        metrics: dict[bytes, Plan] = {}
        places: dict[bytes, int] = {}
        young, add, last = self._young, self._templates.add, block.numbers[-1]
        for key, count in Counter(block.keys).items():
            plan = young.get(key)
            if plan is None:
                places = places or block.first_places()
                plan = self._old.get(key)
                if plan is None:
                    wider = _VARIES.sub(b"/", block.raws[places[key]][:WIDE]).translate(None, DIGITS)
                    plan = young.get(wider)
                    if plan is None:
                        plan = self._learn(block, places[key])
                        if wider != key and plan.kind != "metric":
                            self._remember(wider, plan)
                self._remember(key, plan)
                young = self._young
            kind = plan.kind
            if kind == "metric":
                metrics[key] = plan
                continue
            if kind in ("scale", "special"):
                special[key] = plan
                continue
            if kind == "harmless":
                self.harmless += count
            if not add(key, count, last):
                places = places or block.first_places()
                self._templates.take(key, block.line(places[key]), count)
        return special, metrics

    def sight(self, line: Line, plan: Plan) -> tuple[Sighting, ...] | None:
        """Return what a line tells; None where it is known to be harmless."""
        # Only numbers differ from lines that told something, and of numbers only 0 makes one harmless.
        is_grave = plan.told > GRAVE and not _ZERO.search(line.body)
        found = self._found(line, plan.rows, is_grave)
        if found is HARMLESS:
            return None
        if found is None:
            return ()
        told = (found,) if isinstance(found, Sighting) else tuple(found)
        return tuple(one for one in told if isinstance(one, Sighting))

    def _remember(self, key: bytes, plan: Plan) -> None:
        self._key_bytes += len(key) + 100
        if self._key_bytes > KEY_BYTES:
            self._old, self._young = self._young, {}
            self._key_bytes = len(key) + 100
        self._young[key] = plan

    def _learn(self, block: Block, index: int) -> Plan:
        """Decide what is to be done with the lines of a new key, by one of them."""
        text = cleaned(block.raws[index])
        if is_scale_line(text) and not python_errors.is_exception(text.lstrip()):
            return Plan("scale")
        is_asked = self._is_special(text)
        if not is_asked and not metric_lines.is_metric(text):
            return Plan("boring")
        line = block.line(index)
        rows = rules.rows_of(line.text) if is_asked else None
        found: Any = self._found(line, rows) if is_asked else None
        told = (
            () if found is None or found is HARMLESS else (found,) if isinstance(found, Sighting) else found
        )
        if not any(isinstance(one, Sighting) and one.knows > GENERIC for one in told):
            layout = metric_lines.layout_of(line, block.raws[index])
            if layout is not None:
                return Plan("metric", layout)
        if found is HARMLESS:
            return Plan("harmless")
        return Plan("special", rows=rows) if is_asked else Plan("boring")

    def _is_special(self, text: str) -> bool:
        return (
            rules.is_special(text)
            or "Traceback (most" in text
            or 'File "' in text
            or python_errors.is_exception(text.lstrip())
            or (self._keywords is not None and self._keywords.is_special(text))
        )

    def _found(self, line: Line, rows: Any, is_grave: bool = False) -> Any:
        if self._keywords is not None:
            wanted = self._keywords.sight(line.text)
            if wanted is not None:
                return wanted
        if python_errors.is_exception(line.body):
            # It asks the rules itself, which would take a logger's level for all that is known.
            nothing = None if is_grave else harmless.sight(line)
            return nothing or python_errors.sight(line, (), line.body.strip())
        return rules.sight(line, rows, is_grave)
