"""Which incidents a typed filter lets through: parts of a module path, steps, or both."""

from __future__ import annotations

import re

from ascend_tui.frozen import frozen
from ascend_tui.text import say

from .snapshot import Incident, Output

_RANGE = re.compile(r"(\d*)-(\d*)")
_NUMBER = re.compile(r"\d{1,18}")


@frozen
class Filter:
    """A filter as it was typed, taken apart; every part has to fit."""

    text: str = ""
    words: tuple[str, ...] = ()
    steps: tuple[tuple[int, int | None], ...] = ()
    numbers: tuple[str, ...] = ()

    def fits(self, incident: Incident) -> bool:
        """Tell whether an incident is one of those asked for."""
        first, last = steps_of(incident)
        if not all(first <= (last if end is None else end) and last >= start for start, end in self.steps):
            return False
        if not self.words and not self.numbers:
            return True
        texts = _texts(incident)
        return all(_is_in(word, texts) for word in self.words) and all(
            first <= int(number) <= last or _is_in(number, texts) for number in self.numbers
        )


def parse(text: str) -> Filter:
    """Take a filter apart: `layers.12`, `17000-18000`, `17,000-`, a step, or several of them."""
    words, steps, numbers = [], [], []
    for word in text.split()[:16]:
        bare = word.replace(",", "")
        ends = _RANGE.fullmatch(bare)
        if ends and (ends.group(1) or ends.group(2)) and len(bare) < 40:
            start = int(ends.group(1) or 0)
            end = int(ends.group(2)) if ends.group(2) else None
            steps.append((start, end) if end is None or end >= start else (end, start))
        elif _NUMBER.fullmatch(bare):
            numbers.append(bare)
        else:
            words.append(word.lower())
    return Filter(text.strip(), tuple(words), tuple(steps), tuple(numbers))


def steps_of(incident: Incident) -> tuple[int, int]:
    """Return the first and the newest step of an incident."""
    first = incident.first_step if 0 < incident.first_step <= incident.step else incident.step
    return first, incident.step


def _texts(incident: Incident) -> list[str]:
    """Return what of an incident words are looked for in."""
    texts = [incident.kind, say(incident.headline)]
    for output in (incident.first_seen, incident.source):
        if isinstance(output, Output):
            texts += [output.path, output.op, output.module_type, output.dtype]
    return [text.lower() for text in texts]


def _is_in(word: str, texts: list[str]) -> bool:
    """Tell whether a word is in any text; a number at its edge is a whole one: layers.1 is not layers.12."""
    head = r"(?<!\d)" if word[0].isdigit() else ""
    tail = r"(?!\d)" if word[-1].isdigit() else ""
    found = re.compile(head + re.escape(word) + tail)
    return any(found.search(text) for text in texts)
