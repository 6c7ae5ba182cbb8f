"""Lines that no rule knows, by what they have in common: what repeats, and what is rare and new.

What changes from line to line (numbers, addresses, names of files, quoted names) is masked, and lines with
one mask are one template.  Words are told apart from values by counting: where masks differ in one word only
and that word has many values, it is a value too.  Lines that never repeat cost little: after many misses in
a row only a part of them is looked at, and how many were not is known.
"""

from __future__ import annotations

from .masks import HOLE, LONGEST, mask
from .sighting import Line
from .snapshot import Template

VALUES = (12, 12, 8, 6, 5, 4)
"""Different words at one place, all else equal, from which on the place is a value: by the number of other
words without a hole, because the more two lines share, the less their one difference can mean."""
MISSES = 256
"""New masks in a row after which only one new line in SAMPLED is looked at."""
SAMPLED = 16
SETTLED = 5_000
"""Lines after which a template that was never seen is new, and not part of how a program starts."""
RARE = 3
_MOST_WORDS = 48


class _Cluster:
    """Lines of one mask; `into` is the wider one that took it over."""

    __slots__ = ("count", "example", "first", "into", "last", "level", "seen_at", "source", "words")

    def __init__(self, words: tuple[str, ...], line: Line, seen_at: int) -> None:
        self.words = words
        self.count = 0
        self.example = line.body[:LONGEST]
        self.first = self.last = line.number
        self.source = line.source
        self.level = line.level
        self.seen_at = seen_at
        self.into: _Cluster | None = None

    def end(self) -> _Cluster:
        """Return the cluster that counts now."""
        found = self
        while found.into is not None:
            found = found.into
        return found

    def swallow(self, other: _Cluster) -> None:
        """Count the lines of a narrower cluster as this one's."""
        self.count += other.count
        if other.seen_at < self.seen_at:
            self.seen_at, self.first, self.example = other.seen_at, other.first, other.example
            self.source, self.level = other.source, other.level
        self.last = max(self.last, other.last)
        other.into = self


class Templates:
    """Clusters of lines in bounded memory; `most` of them at the same time.

    They live in two generations: when the younger is full, the older is forgotten but for what repeats most.
    """

    def __init__(self, most: int = 2000) -> None:
        self._half = max(most // 2, 8)
        self._young: dict[str, _Cluster] = {}
        self._old: dict[str, _Cluster] = {}
        self._keys: dict[int, _Cluster] = {}
        self._old_keys: dict[int, _Cluster] = {}
        self._open: dict[int, _Cluster] = {}
        """Clusters with a hole that counting found, by all but the word in that place."""
        self._new_since = 0
        self._misses = 0
        self.lines = 0
        self.passed_over = 0
        """Lines that were not looked at, because too many before them were each of a kind of its own."""
        self.forgotten = 0
        """Templates that were dropped for younger ones."""

    def take(self, key: bytes, line: Line, count: int = 1) -> None:
        """Take the first line of a key that is new; `count` lines of it stand in this block.

        `key` is the line's bytes without digits.
        """
        self.lines += count
        if self._misses >= MISSES:
            self._misses += 1
            if self._misses % SAMPLED:
                self.passed_over += count
                return
        cluster = self._of(line)
        cluster.count += count
        cluster.last = max(cluster.last, line.number)
        if len(self._keys) >= 2 * self._half:
            self._old_keys, self._keys = self._keys, {}
        self._keys[hash(key)] = cluster

    def add(self, key: bytes, count: int, last_number: int) -> bool:
        """Count lines of a known key; False where it is not known any more: `take` one of them then."""
        name = hash(key)
        cluster = self._keys.get(name)
        if cluster is None:
            cluster = self._old_keys.get(name)
            if cluster is None:
                return False
            self._keys[name] = cluster
        cluster = cluster.end()
        self._misses = 0
        self.lines += count
        cluster.count += count
        cluster.last = max(cluster.last, last_number)
        return True

    def text_of(self, key: bytes) -> str:
        """Return the template that lines of this key are counted under, "" for none."""
        cluster = self._keys.get(hash(key)) or self._old_keys.get(hash(key))
        return " ".join(cluster.end().words) if cluster is not None else ""

    def result(self, most: int = 200) -> tuple[Template, ...]:
        """Return what is rare and new, the newest first, and then what repeats, the most frequent first."""
        self._fold()
        alive = [one for one in (*self._young.values(), *self._old.values()) if one.into is None]
        fresh = [one for one in alive if one.seen_at >= SETTLED and one.count <= RARE]
        fresh.sort(key=lambda one: -one.seen_at)
        # Lines that never repeat are no news, however late they come.
        if self._misses >= MISSES or len(fresh) > self._half:
            fresh = []
        often = sorted(
            (one for one in alive if one.count > 1 and one not in fresh), key=lambda one: -one.count
        )
        fresh = fresh[: max(most // 4, most - len(often))]
        shown = [(one, True) for one in fresh] + [(one, False) for one in often[: most - len(fresh)]]
        return tuple(
            Template(
                " ".join(one.words),
                one.count,
                one.example,
                one.first,
                one.last,
                one.source,
                one.level,
                is_new,
            )
            for one, is_new in shown
        )

    def _of(self, line: Line) -> _Cluster:
        text = mask(line.body)
        found = self._young.get(text)
        if found is None:
            found = self._old.pop(text, None)
            if found is not None:
                self._keep(text, found)
        if found is not None:
            self._misses = 0
            return found.end()
        words = tuple(text.split(" "))
        if self._open and len(words) <= _MOST_WORDS:
            for name in _names(words):
                wide = self._open.get(name)
                if wide is not None:
                    self._misses = 0
                    return wide.end()
        self._misses += 1
        found = _Cluster(words, line, self.lines)
        self._keep(text, found)
        self._new_since += 1
        if self._new_since > 32 + len(self._young) // 8:
            self._fold()
        return found.end()

    def _keep(self, text: str, cluster: _Cluster) -> None:
        if len(self._young) >= self._half:
            self._turn()
        self._young[text] = cluster

    def _turn(self) -> None:
        """Forget the older generation, but for a part that counts most."""
        best = sorted(self._old.items(), key=lambda item: -item[1].count)[: self._half // 4]
        self.forgotten += len(self._old) - len(best)
        kept = dict(best)
        self._old = {**kept, **self._young}
        self._young = {}
        while len(self._open) > self._half:
            del self._open[next(iter(self._open))]

    def _fold(self) -> None:
        """Make one of clusters that differ in one word only, where that word has many values."""
        if not self._new_since:
            return
        self._new_since = 0
        places: dict[int, list[_Cluster]] = {}
        for one in (*self._old.values(), *self._young.values()):
            if one.into is None and 1 < len(one.words) <= _MOST_WORDS:
                for name in _names(one.words):
                    places.setdefault(name, []).append(one)
        for name, members in sorted(places.items(), key=lambda item: -len(item[1])):
            if len(members) < VALUES[-1]:
                break
            left = [one for one in members if one.into is None]
            if len(left) < _enough(left):
                continue
            place = next(at for at, found in enumerate(_names(left[0].words)) if found == name)
            words = (*left[0].words[:place], HOLE, *left[0].words[place + 1 :])
            if not any(word.strip(HOLE) for word in words):
                continue
            text = " ".join(words)
            wide = self._young.get(text)
            if wide is None or wide.into is not None:
                wide = _Cluster(words, Line("", left[0].example, left[0].first, left[0].source), self.lines)
                wide.level = left[0].level
            for one in left:
                if one is not wide:
                    wide.swallow(one)
            self._open[name] = wide
            self._young[text] = wide
        for generation in (self._young, self._old):
            for text in [text for text, one in generation.items() if one.into is not None]:
                del generation[text]


def _enough(alike: list[_Cluster]) -> int:
    """Return how many clusters that differ in one word have to be there before the word is a value."""
    fixed = sum(HOLE not in word for word in alike[0].words) - 1 if alike else 0
    return VALUES[max(0, min(fixed, len(VALUES) - 1))]


def _names(words: tuple[str, ...]) -> list[int]:
    """Return for each place a name of all other words and their places; one pass, whatever the length."""
    parts = [hash((at, word)) for at, word in enumerate(words)]
    whole = sum(parts) + len(words)
    return [hash((at, whole - part)) for at, part in enumerate(parts)]
