"""Which operators a typed filter lets through: names, `kind:movement`, parts of a module path."""

from __future__ import annotations

from ascend_tui.frozen import frozen
from ascend_tui.text import tr

from .figures import KIND_NAMES, KINDS
from .snapshot import Row

_MOST_WORDS = 16
_KIND = "kind:"


@frozen
class Filter:
    """A filter as it was typed, taken apart; every part has to fit."""

    text: str = ""
    words: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def fits(self, row: Row) -> bool:
        """Tell whether an operator is one of those asked for."""
        if self.kinds and row.kind not in _named(self.kinds):
            return False
        if not self.words:
            return True
        texts = [
            row.name.lower(),
            row.core.lower(),
            row.level.lower(),
            *(one.path.lower() for one in row.places),
        ]
        return all(any(_is_in(word, text) for text in texts) for word in self.words)


def parse(text: str) -> Filter:
    """Take a filter apart: `cast`, `layers.12 attention`, `kind:movement`, or the beginning of a kind."""
    words, kinds = [], []
    # In Chinese the colon is often the wide one.
    for word in text.lower().replace("：", ":").split()[:_MOST_WORDS]:
        for name in (_KIND, f"{tr('kind').lower()}:"):
            if word.startswith(name):
                kinds.append(word[len(name) :])
                break
        else:
            words.append(word)
    return Filter(text.strip(), tuple(words), tuple(kinds))


def _named(kinds: tuple[str, ...]) -> set[str]:
    """Return the kinds whose name in any language begins so; of several parts any may fit."""
    found = set()
    for kind, name in KIND_NAMES.items():
        spoken = (kind, tr(name).lower(), KINDS[kind][0], tr(KINDS[kind][0]).lower())
        if any(one.startswith(part) for one in spoken for part in kinds):
            found.add(kind)
    return found


def _is_in(word: str, text: str) -> bool:
    """Tell whether a word is in a text; a number at its end is a whole one: layers.1 is not layers.12."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        cut = (word[0].isdigit() and text[at - 1 : at].isdigit()) or (
            word[-1].isdigit() and text[end : end + 1].isdigit()
        )
        if not cut:
            return True
        at = text.find(word, at + 1)
    return False
