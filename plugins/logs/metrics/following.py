"""What the metrics of a log do: numbers that are not finite, losses that vanish or explode, scales that fall.

Blocks in which all is as usual cost a look at their extremes.  Only where something is not are they gone
through line by line.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from heapq import merge
from operator import itemgetter

from ascend_tui.frozen import frozen
from ascend_tui.judging.losses import Losses

from ..sighting import Line
from ..snapshot import Incident, Metric
from .metric_lines import Column, Layout, span_of
from .metric_names import JUDGED
from .metric_track import whole
from .numeric_judging import Stories
from .numeric_story import Bad, Row
from .scale_lines import ScaleLine, is_scale_line, read_scale_line
from .scale_story import ScaleStory
from .writers import KNOWN, Reading, Writer, Writers

__all__ = ["Following", "Group", "is_scale_line"]

MOST_METRICS = 32
FEWEST = 24
"""Lines that are gone through one by one rather than looked at for whether all is as usual."""
SAMPLES = 48
"""Lines of a calm block whose numbers are kept."""
MOST_WAITING = 4096
JUDGE_EVERY = 64
_PLACE = itemgetter(0, 1)
_ORDER = ("loss", "value", "grad_norm", "loss_scale", "learning_rate", "throughput")


@frozen
class Group:
    """Lines of one layout in one block of a source: their numbers, their bytes, and when they were read."""

    layout: Layout
    numbers: Sequence[int]
    raws: Sequence[bytes]
    source: int = 0
    wall_s: float | None = None
    watched: Sequence[Sequence[float]] | None = None
    """The columns whose every number counts, where all lines have them."""


class Following:
    """The metrics of one log."""

    def __init__(self) -> None:
        """Start knowing nothing."""
        self._writers = Writers()
        self._stories = Stories()
        self._scale = ScaleStory()
        self._waiting: list[ScaleLine] = []

    # What arrives.

    def take_scale_line(self, line: Line) -> None:
        """Take a line that tells of the loss scale in words; those of a block come before its groups."""
        found = read_scale_line(line.text, line.number, line.source, line.rank, line.wall_s)
        if found is None:
            return
        self._waiting.append(found)
        if len(self._waiting) > MOST_WAITING:
            self._flush()

    def take(self, groups: Sequence[Group]) -> None:
        """Take the metric lines of one block."""
        groups = [replace(group, watched=group.layout.watch(group.raws)) for group in groups if group.raws]
        if self._waiting:
            self._halve(groups)
        else:
            for kind in self._kinds(groups):
                self._halve(kind)
        self._flush()

    def _halve(self, groups: Sequence[Group]) -> None:
        """Take lines, those before others first: halved until a part is as usual, or few are left."""
        if not groups or self._take_calm(groups):
            return
        numbers = sorted(number for group in groups for number in group.numbers)
        # Lines of one number, as the states of a progress bar, stay together.
        middle = numbers[len(numbers) // 2]
        if len(numbers) <= FEWEST or middle == numbers[0]:
            self._replay(groups)
            return
        for first, last in ((numbers[0], middle - 1), (middle, numbers[-1])):
            self._halve([one for group in groups for one in _between(group, first, last)])

    def _kinds(self, groups: Sequence[Group]) -> list[list[Group]]:
        """Return the groups of each kind of lines: kinds know nothing of each other."""
        kinds: dict[int, list[Group]] = {}
        for group in groups:
            kinds.setdefault(id(self._writers.of(group.layout)[0]), []).append(group)
        return list(kinds.values())

    def _take_calm(self, groups: Sequence[Group]) -> bool:
        """Take lines at once where all of them are as usual; tell whether they are."""
        if sum(len(group.raws) for group in groups) <= FEWEST:
            return False
        spans = []
        for group in groups:
            span = self._calm(group, *self._writers.of(group.layout))
            if span is None:
                return False
            spans.append(span)
        # What is said in words between them needs the step at which it is said.
        for line in self._due(groups[0].source, max(group.numbers[-1] for group in groups)):
            self._scale.at_step(_step_before(groups, line))
            self._scale.take_line(line)
        for group, span in zip(groups, spans):
            self._absorb(group, self._writers.of(group.layout)[0], span)
        return True

    def _due(self, source: int, number: int) -> list[ScaleLine]:
        """Return the waiting lines that come before a line, those of other sources first."""
        if not self._waiting:
            return []
        due = [one for one in self._waiting if one.source != source or one.number < number]
        self._waiting = [one for one in self._waiting if one.source == source and one.number >= number]
        return sorted(due, key=lambda one: (one.source == source, one.number))

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            self._scale.take_line(line)

    # Blocks in which all is as usual.

    def _calm(self, group: Group, writer: Writer, role: str) -> list[tuple[float, float]] | None:
        """Return the extremes of the watched columns where all of them are as usual."""
        layout = group.layout
        if (role == "missing" and not writer.is_loss_optional) or writer.is_absent:
            return None
        if writer.rows < KNOWN or layout.is_overflow:
            return None
        if group.watched is None:
            return None
        spans = [span_of(column) for column in group.watched]
        for at, (low, high) in zip(layout.watched, spans):
            kind = layout.kinds[at]
            track = writer.tracks.get(layout.names[at])
            if track is None or not (low == low and high == high):
                return None
            if kind in JUDGED:
                limit = track.limit() if track.count >= KNOWN else -1.0
                if low < -limit or high > limit:
                    return None
            elif (
                low != high
                or high != track.value
                or (kind != "skipped_all" and (kind == "scale") == (not high))
            ):
                return None
        return spans

    def _absorb(self, group: Group, writer: Writer, spans: Sequence[tuple[float, float]]) -> None:
        layout, count = group.layout, len(group.raws)
        many = min(count, SAMPLES, 4 + count // 64)
        # Evenly, and the newest one.
        chosen = [count - 1 - count * at // many for at in range(many)][::-1]
        columns = layout.read([group.raws[at] for at in chosen])
        steps = _column(layout, columns, "step") or [None] * many
        ranges = dict(zip(layout.watched, spans))
        for at, kind in enumerate(layout.kinds):
            track = writer.track(layout, at) if kind not in ("step", "epoch", "rank") else None
            if track is None:
                continue
            some = [(step, value) for step, value in zip(steps, columns[at]) if value is not None]
            if not some:
                continue
            finite = [value for _, value in some if math.isfinite(value)] or [0.0]
            low, high = ranges.get(at, (min(finite), max(finite)))
            track.absorb(count, low, high, some, group.wall_s)
            if kind == "loss":
                if some[0][0] is not None and writer.step is not None and some[0][0] < writer.step:
                    writer.climbs = Losses()
                for step, value in some:
                    self._stories.climb(writer, whole(step), value)
        writer.rows += count
        step = whole(steps[-1])
        epochs = _column(layout, columns, "epoch")
        epoch = epochs[-1] if epochs else None
        writer.step = step
        writer.last = Row(
            step, epoch, layout.rank, group.numbers[-1], group.source, group.raws[-1], group.wall_s
        )
        self._scale.pass_rows(count, step)
        if writer.rows // JUDGE_EVERY > (writer.rows - count) // JUDGE_EVERY:
            self._stories.judge_climb(writer)

    # Line by line.

    def _replay(self, groups: Sequence[Group]) -> None:
        readings = [Reading(group.layout, *self._writers.of(group.layout)) for group in groups]
        streams = [_rows_of(group, at) for at, group in enumerate(groups)]
        rows = streams[0] if len(streams) == 1 else merge(*streams, key=_PLACE)
        for number, at, raw, values in rows:
            if self._waiting:
                for line in self._due(groups[at].source, number):
                    self._scale.take_line(line)
            self._row(groups[at], readings[at], number, raw, values)

    def _row(
        self, group: Group, reading: Reading, number: int, raw: bytes, values: Sequence[float | None]
    ) -> None:
        layout, writer = reading.layout, reading.writer
        at_step = None if reading.step_at is None else values[reading.step_at]
        epoch = None if reading.epoch_at is None else values[reading.epoch_at]
        rank = layout.rank if reading.rank_at is None else whole(values[reading.rank_at])
        step = whole(at_step)
        row = Row(step, epoch, rank, number, group.source, raw, group.wall_s)
        if step is not None and writer.step is not None and step < writer.step:
            # Another epoch, or a restart: how the loss came there is another story.
            writer.climbs = Losses()
        scale = None if reading.scale_at is None else values[reading.scale_at]
        overflowed = self._take_scale(reading, row, scale, values)
        bad: list[Bad] = []
        far: list[Bad] = []
        loss: float | None = None
        for at, kind, track, is_judged in reading.tracks:
            value = values[at]
            if value is None:
                continue
            before = track.before if track is not None else None
            exploded = track.take(at_step, value, group.wall_s) if track is not None else False
            if not is_judged:
                continue
            if kind == "loss":
                loss = value
                self._stories.climb(writer, step, value)
            if value - value != 0 and (value != value or kind != "watch"):
                name, printed = layout.names[at], layout.printed[at]
                bad.append(Bad(kind, name, printed, value, before[1] if before else None))
            elif exploded and track is not None:
                far.append(Bad(kind, layout.names[at], layout.printed[at], value, track.usual()))
        is_missing = reading.is_missing and self._stories.is_absent(writer, row, bad)
        if not is_missing:
            writer.is_absent = False
        if bad and not (overflowed and all(one.kind == "norm" for one in bad)):
            self._stories.bad(writer, row, bad, loss, is_missing, scale, self._scale.overflows)
        if far and not bad:
            self._stories.far(writer, row, layout, far, self._scale.overflows)
        if not is_missing:
            writer.rows += 1
            if writer.rows % JUDGE_EVERY == 0:
                self._stories.judge_climb(writer)
        if step is not None:
            if writer.step is not None and step > writer.step:
                writer.stride = max(1, min(writer.stride or step - writer.step, step - writer.step))
            writer.step = step
        writer.last = row

    def _take_scale(
        self, reading: Reading, row: Row, scale: float | None, values: Sequence[float | None]
    ) -> bool:
        """Tell the loss scale of a line of metrics; return whether the scaler skipped a step before it."""
        is_overflow = reading.layout.is_overflow
        skipped = 1.0 if is_overflow else None if reading.skipped_at is None else values[reading.skipped_at]
        if scale is None and skipped is None and not self._scale.is_awake:
            self._scale.pass_rows(1, row.step)
            return False
        is_total = not is_overflow and "skipped_all" in reading.layout.kinds
        return self._scale.take_row(row.step, scale, skipped, is_total, (row.number, row.source, row.raw))

    # What is known.

    def incidents(self) -> tuple[Incident, ...]:
        """Return what goes wrong, in the order in which it began; later calls may know more of the same."""
        self._flush()
        found = [*(story.incident() for story in self._stories.all), *self._scale.incidents()]
        return tuple(sorted(found, key=lambda one: (one.source, one.line)))

    def metrics(self) -> tuple[Metric, ...]:
        """Return the newest of each metric; of several writers, that which wrote it most often."""
        self._flush()
        best: dict[str, Metric] = {}
        for writer in self._writers.all:
            for track in writer.tracks.values():
                if not track.count or (track.name in best and best[track.name].count >= track.count):
                    continue
                best[track.name] = track.metric()
        if "loss_scale" in best and self._scale.trend != "steady":
            best["loss_scale"] = replace(best["loss_scale"], trend=self._scale.trend)
        order = sorted(best.values(), key=lambda one: _ORDER.index(one.name) if one.name in _ORDER else 99)
        return tuple(order[:MOST_METRICS])


def _between(group: Group, first: int, last: int) -> list[Group]:
    """Return the part of a group from one line to another, none where it has no line there."""
    start, end = bisect_left(group.numbers, first), bisect_right(group.numbers, last)
    if start == end:
        return []
    watched = None if group.watched is None else [column[start:end] for column in group.watched]
    return [replace(group, numbers=group.numbers[start:end], raws=group.raws[start:end], watched=watched)]


def _rows_of(group: Group, at: int) -> Iterable[tuple[int, int, bytes, tuple[float | None, ...]]]:
    rows = zip(*group.layout.read(group.raws))
    return ((number, at, raw, values) for number, raw, values in zip(group.numbers, group.raws, rows))


def _column(layout: Layout, columns: Sequence[Column], name: str) -> Column | None:
    return columns[layout.names.index(name)] if name in layout.names else None


def _step_before(groups: Sequence[Group], line: ScaleLine) -> int | None:
    """Return the step of the newest line of metrics before a line of words."""
    newest: tuple[int, Group, int] | None = None
    for group in groups:
        if group.source != line.source or "step" not in group.layout.names:
            continue
        at = bisect_right(group.numbers, line.number) - 1
        if at >= 0 and (newest is None or group.numbers[at] > newest[0]):
            newest = group.numbers[at], group, at
    if newest is None:
        return None
    _, group, at = newest
    column = _column(group.layout, group.layout.read([group.raws[at]]), "step")
    return whole(column[0]) if column else None
