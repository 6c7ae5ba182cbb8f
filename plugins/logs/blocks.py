"""Bytes of a source become numbered lines with their keys."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from ascend_tui.text import clean, plain

from .lines import cleaned, parse
from .sighting import Line
from .snapshot import Raw

DIGITS = b"0123456789"
BEFORE, AFTER = 6, 8
"""Lines around one that matters that are kept with it."""
SHOWN = 600
"""Bytes of such a line that are kept: those of an out-of-memory error tell its numbers."""
_ANSI = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


class Block:
    """Lines of one source that were read at once.

    The key of a line is its bytes without digits: nearly all lines of a log share theirs with earlier ones.
    """

    __slots__ = ("_before", "_year", "keys", "now_s", "numbers", "rank", "raws", "source")

    def __init__(
        self,
        source: int,
        raws: list[bytes],
        keys: list[bytes],
        numbers: Sequence[int],
        before: Sequence[tuple[int, bytes]],
        now_s: float,
        rank: int | None,
        year: int | None,
    ) -> None:
        self.source, self.raws, self.numbers = source, raws, numbers
        self.now_s, self.rank = now_s, rank
        self.keys = keys
        self._before, self._year = before, year

    def line(self, index: int) -> Line:
        """Return a line as the rules see it."""
        return parse(self.raws[index], self.numbers[index], self.source, self.rank, self._year)

    def around(self, index: int) -> list[tuple[int, bytes]]:
        """Return the lines around one, with their numbers."""
        first = max(0, index - BEFORE)
        here = list(zip(self.numbers[first : index + AFTER], self.raws[first : index + AFTER]))
        missing = BEFORE - index
        return [*self._before[-missing:], *here] if missing > 0 else here

    def first_places(self) -> dict[bytes, int]:
        """Return where each key stands first."""
        return dict(zip(reversed(self.keys), range(len(self.keys) - 1, -1, -1)))


class Cutter:
    """Number the lines of each source."""

    def __init__(self, year: int | None) -> None:
        """Start at line 1 everywhere; `year` completes dates that have none."""
        self.lines = 0
        self._year = year
        self._numbers: dict[int, int] = {}
        self._tails: dict[int, deque[tuple[int, bytes]]] = {}

    def cut(self, source: int, data: bytes, now_s: float, rank: int | None) -> Block | None:
        """Return the lines of whole lines' bytes; a progress bar's states share one number."""
        if b"\x1b" in data:
            data = _ANSI.sub(b"", data)
        if b"\0" in data:
            data = data.replace(b"\0", b"")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        if data.endswith(b"\n"):
            data = data[:-1]
        elif not data:
            return None
        raws = data.split(b"\n")
        first = self._numbers.get(source, 0) + 1
        self._numbers[source] = first + len(raws) - 1
        self.lines += len(raws)
        numbers: Sequence[int] = range(first, first + len(raws))
        if b"\r" in data:
            raws, numbers = _states(raws, numbers)
            data = b"\n".join(raws)
            if not raws:
                return None
        keys = data.translate(None, DIGITS).split(b"\n")
        block = Block(source, raws, keys, numbers, list(self._tails.get(source, ())), now_s, rank, self._year)
        self._tails[source] = deque(zip(numbers[-BEFORE:], raws[-BEFORE:]), maxlen=BEFORE)
        return block

    def forget(self, source: int) -> None:
        """Learn that what comes next of a source does not continue what came before."""
        self._tails.pop(source, None)


def _states(raws: list[bytes], numbers: Sequence[int]) -> tuple[list[bytes], list[int]]:
    """Return each state of a line that was rewritten as a line of its own."""
    states: list[bytes] = []
    placed: list[int] = []
    done = 0
    for index in [at for at, raw in enumerate(raws) if b"\r" in raw]:
        states += raws[done:index]
        placed += numbers[done:index]
        shown = [state for state in raws[index].split(b"\r") if state.strip()]
        states += shown
        placed += [numbers[index]] * len(shown)
        done = index + 1
    return states + raws[done:], [*placed, *numbers[done:]]


def shown(number: int, raw: bytes, source: int) -> Raw:
    """Return a line as it is kept for showing: safe and not too long."""
    return Raw(number, clean(plain(cleaned(raw[: 4 * SHOWN])))[:SHOWN], source)
