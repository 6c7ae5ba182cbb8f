"""Which of some hundred short texts are in a line, without looking for each of them.

The triples of a line's characters are made once; a needle is looked for only where its rarest one is there.
"""

from __future__ import annotations

from collections.abc import Sequence

_COMMON = frozenset("etaoinshrdlu ")
_Triple = tuple[str, str, str]


class Needles:
    """Rows of needles; a row is wanted where one of its needles is in the text."""

    def __init__(self, rows: Sequence[Sequence[str]]) -> None:
        """Sort the needles by their rarest triple."""
        self._rows: dict[str, list[int]] = {}
        for index, needles in enumerate(rows):
            for needle in needles:
                self._rows.setdefault(needle, []).append(index)
        self._tiny = tuple(needle for needle in self._rows if len(needle) < 3)
        self._by_triple: dict[_Triple, list[str]] = {}
        for needle in self._rows:
            if len(needle) >= 3:
                self._by_triple.setdefault(_rarest(needle), []).append(needle)
        self._triples = frozenset(self._by_triple)

    def any_in(self, text: str) -> bool:
        """Tell whether one of the needles is in a text."""
        return any(needle in text for needle in self._possible(text))

    def rows_of(self, text: str) -> list[int]:
        """Return the numbers of the rows that are wanted for a text, in their order."""
        found = {row for needle in self._possible(text) if needle in text for row in self._rows[needle]}
        return sorted(found)

    def _possible(self, text: str) -> list[str]:
        triples = self._triples.intersection(zip(text, text[1:], text[2:]))
        return [*self._tiny, *(needle for triple in triples for needle in self._by_triple[triple])]


def _rarest(needle: str) -> _Triple:
    triples = list(zip(needle, needle[1:], needle[2:]))
    return max(triples, key=lambda triple: sum(_rarity(one) for one in triple))


def _rarity(character: str) -> int:
    if not character.isalpha():
        return 0 if character in " .:=,-" else 3
    return 3 if character.isupper() else 0 if character in _COMMON else 1
