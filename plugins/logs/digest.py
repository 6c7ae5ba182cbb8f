"""The engine: blocks of bytes in, incidents, metrics and templates out, in bounded memory.

Nearly all lines of a log differ from earlier ones in their digits only.  So a line's key is its bytes without
digits, made for a whole block at once, and what is to be done with a line is decided once for each key:
nothing, read a metric, or ask the rules.  Lines of the first kind then cost a look in a dictionary, or less.
"""

from __future__ import annotations

from .assembly import Assembly
from .blocks import Block, Cutter
from .metrics.following import Following, Group
from .plans import Keywords, Plan, Plans
from .snapshot import Digest
from .templates import Templates

__all__ = ["Digester", "Keywords"]


class Digester:
    """Read lines of any number of sources."""

    def __init__(self, keywords: Keywords | None = None, year: int | None = None) -> None:
        """Start with no line; `year` completes dates that have none."""
        self.bytes = 0
        self._cutter = Cutter(year)
        self._templates = Templates()
        self._plans = Plans(self._templates, keywords)
        self._assembly = Assembly(self._plans)
        self._following = Following()

    @property
    def lines(self) -> int:
        """Return how many lines were read."""
        return self._cutter.lines

    def feed(self, source: int, data: bytes, now_s: float, rank: int | None = None) -> None:
        """Take whole lines of one source; `now_s` is when they were read, `rank` that of the whole source."""
        self.bytes += len(data)
        block = self._cutter.cut(source, data, now_s, rank)
        if block is None:
            return
        special, metrics = self._plans.sort(block)
        if special or self._assembly.traces:
            self._walk(block, special, metrics)
        elif metrics:
            self._follow(block, metrics, _grouped(block, metrics))
        self._assembly.close_quiet(now_s)

    def begin_anew(self, source: int) -> None:
        """Learn that what comes next of a source does not continue what came before."""
        self._assembly.traces.forget(source)
        self._cutter.forget(source)

    def idle(self, now_s: float) -> None:
        """Learn that it is `now_s`, with no new lines."""
        self._assembly.close_quiet(now_s)

    def settle(self) -> None:
        """Take what is being told as told: the input has ended."""
        self._assembly.close_all()

    def result(self) -> Digest:
        """Return all that is known."""
        return Digest(
            incidents=(*self._assembly.incidents(), *self._following.incidents()),
            metrics=self._following.metrics(),
            templates=self._templates.result(),
            lines=self.lines,
            bytes=self.bytes,
            ignored=self._plans.harmless + self._assembly.harmless,
            dropped_incidents=self._assembly.folded.dropped,
        )

    def _walk(self, block: Block, special: dict[bytes, Plan], metrics: dict[bytes, Plan]) -> None:
        """Go through the lines of a block one by one, because some of them tell something."""
        assembly, keys = self._assembly, block.keys
        index, end = 0, len(keys)
        for place in [*(at for at, key in enumerate(keys) if key in special), end]:
            # Lines between two that are special matter only while a traceback is open.
            while assembly.traces and index < place:
                if keys[index] not in metrics:
                    assembly.take(block, index, None)
                index += 1
            index = place + 1
            if place < end:
                plan = special[keys[place]]
                if plan.kind == "scale":
                    self._following.take_scale_line(block.line(place))
                else:
                    assembly.take(block, place, plan)
        if metrics:
            self._follow(block, metrics, _grouped(block, metrics))

    def _follow(self, block: Block, metrics: dict[bytes, Plan], groups: _Groups) -> None:
        self._following.take(
            [Group(metrics[key].layout, *group, block.source, block.now_s) for key, group in groups.items()]
        )


_Groups = dict[bytes, "tuple[list[int], list[bytes]]"]


def _grouped(block: Block, metrics: dict[bytes, Plan]) -> _Groups:
    """Return the lines of each key that holds metrics, where nothing else in the block matters."""
    if len(metrics) == 1:
        (key,) = metrics
        if block.keys.count(key) == len(block.keys):
            return {key: (list(block.numbers), block.raws)}
    groups: _Groups = {key: ([], []) for key in metrics}
    for key, number, raw in zip(block.keys, block.numbers, block.raws):
        group = groups.get(key)
        if group is not None:
            group[0].append(number)
            group[1].append(raw)
    return groups
