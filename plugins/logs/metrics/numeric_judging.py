"""From lines of metrics in which something is wrong to the few stories that they tell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ascend_tui.judging.losses import figure
from ascend_tui.plugin import Message

from ..snapshot import MetricTrend
from . import numeric_words as words
from .metric_lines import Layout
from .metric_track import HUGE, KNOWN, TENFOLD, whole
from .numeric_story import Bad, Row, Story, raw_of
from .writers import KNOWN as KNOWN_LINES
from .writers import Writer

MOST_STORIES, FIRST_ONES = 28, 8
"""Stories that are kept, and how many of the first among them always are: they say most."""
NEAR = 50
"""Lines between a bad number and a warning that repeats it without its step."""
BARE = 2
"""Lines of two columns without a word before one of them can be a loss that is not finite."""


class Stories:
    """What goes wrong in the metrics of one log, one story for each fault of a kind of line."""

    def __init__(self) -> None:
        """Start with none."""
        self.all: list[Story] = []
        self.dropped = 0

    def is_absent(self, writer: Writer, row: Row, bad: Sequence[Bad]) -> bool:
        """Take a line without its loss; tell whether that is missing, and not just how this logger writes."""
        if writer.is_loss_optional:
            return False
        is_same_step = row.step is not None and row.step == writer.step and not writer.is_absent
        if is_same_step or writer.rows < KNOWN_LINES:
            writer.is_loss_optional = True
            return False
        if not writer.is_absent:
            writer.lost_at.append(writer.rows)
            del writer.lost_at[:-8]
            if writer.is_regular():
                writer.is_loss_optional = True
                self.all = [one for one in self.all if not (one.what == "missing" and one.key == writer.key)]
                return False
        follows = writer.is_absent and (
            row.step is None
            or writer.step is None
            or 0 <= row.step - writer.step <= 2 * max(1, writer.stride)
        )
        writer.is_absent = True
        if bad:
            return True
        story = self._newest("missing", writer.key) if follows else None
        if story is None:
            story = Story("missing", row, (), writer.key)
            story.severity = "warning"
            story.context = tuple(
                raw_of(one, is_key=one is row) for one in (writer.last, row) if one is not None
            )
            self._keep(story)
        else:
            story.add(row)
            if story.count >= 3:
                story.severity = "error"
        _mark(writer, [writer.total or "loss"], "missing")
        return True

    def bad(
        self,
        writer: Writer,
        row: Row,
        bad: Sequence[Bad],
        loss: float | None,
        is_missing: bool,
        scale: float | None,
        overflows: int,
    ) -> None:
        """Take numbers that are not finite; `loss` is that of the line, `is_missing` where it has none."""
        if writer.is_bare and not _is_column(writer, row):
            return
        key = writer.key
        names = {one.name for one in bad}
        _mark(writer, names, "not_finite")
        is_zero = loss == 0.0 and any(one.kind == "norm" and one.value != one.value for one in bad)
        if is_zero:
            _mark(writer, ["loss"], "zero")
        story = self._joined(key, row, names, writer)
        if story is None:
            if "loss" in names:
                # The climb is how it came there; it is told as the reason.
                self.all = [one for one in self.all if one.what != "climbs" or one.key != key]
            story = Story("bad", row, bad, key)
            story.is_zero, story.is_missing, story.is_bare = is_zero, is_missing, writer.is_bare
            story.has_loss = loss is not None and math.isfinite(loss)
            story.context = tuple(
                raw_of(one, [b.printed for b in bad], one is row) for one in (writer.last, row) if one
            )
            story.evidence = _evidence(writer, bad, row, scale, overflows)
            if (
                any(one.kind == "loss" for one in bad)
                and row.step is not None
                and writer.climbs.bad_since == row.step
            ):
                story.reason = _came(writer, row.step)
            self._keep(story)
            return
        if "loss" in names and "loss" not in story.names and not story.loss_later:
            story.loss_later, story.loss_step = True, row.step
        if row.when is not None or story.key == key:
            story.add(row)
        story.names |= names

    def _joined(self, key: str, row: Row, names: set[str], writer: Writer) -> Story | None:
        """Return the story that a bad line belongs to: of its kind, of its moment, or just before it."""
        for story in reversed(self.all):
            if story.what != "bad":
                continue
            if story.key == key:
                return story
            if not (names & story.names) or story.last.source != row.source:
                continue
            if row.when is not None and row.when in (story.last.when, story.first.when):
                return story
            is_note = row.when is None and len(writer.family) == 1
            if is_note and 0 <= row.number - story.last.number <= NEAR:
                return story
        return None

    def far(self, writer: Writer, row: Row, layout: Layout, far: Sequence[Bad], overflows: int) -> None:
        """Take numbers that are finite and far from all before."""
        if writer.is_bare:
            return
        key = writer.key
        story = self._newest("explodes", key)
        if story is not None:
            story.add(row)
            return
        parts = [one for one in far if one.kind == "part"] or _risen(writer.last, row, layout, far[0])
        told = parts[:1] or list(far[:1])
        story = Story("explodes", row, told, key)
        first = told[0]
        is_thousandfold = first.before is not None and abs(first.value) >= 1000 * abs(first.before)
        story.severity = "error" if is_thousandfold else "warning"
        story.context = tuple(raw_of(one, [first.printed], one is row) for one in (writer.last, row) if one)
        if overflows:
            story.evidence.append(Message.of(words.OVERFLOWS.text, n=f"{overflows:,}"))
        self._keep(story)
        _mark(writer, {one.name for one in far}, "spike")

    def climb(self, writer: Writer, step: int | None, value: float) -> None:
        """Take a total loss; only printed steps give it a place."""
        if step is not None and writer.is_climbing_told:
            writer.climbs.take(step, value)

    def judge_climb(self, writer: Writer) -> None:
        """Look whether the loss, still finite, climbs away; once for each kind of line."""
        if not writer.is_climbing_told or writer.last is None:
            return
        if self._newest("climbs", writer.key) is not None:
            return
        found = writer.climbs.judge()
        if found is None:
            return
        story = Story("climbs", writer.last._replace(step=found.since_step), (), writer.key)
        story.last, story.severity, story.reason = writer.last, found.severity, found.reason
        self._keep(story)

    def _newest(self, what: str, key: str) -> Story | None:
        return next((one for one in reversed(self.all) if one.what == what and one.key == key), None)

    def _keep(self, story: Story) -> None:
        self.all.append(story)
        if len(self.all) > MOST_STORIES:
            del self.all[FIRST_ONES]
            self.dropped += 1


def _mark(writer: Writer, names: Iterable[str], trend: MetricTrend) -> None:
    for name in names:
        track = writer.tracks.get("loss" if name == writer.total else name)
        if track is not None:
            track.trend = trend


def _is_column(writer: Writer, row: Row) -> bool:
    """Tell whether two columns without a word are a step and a loss: the steps are evenly spaced."""
    return (
        writer.rows >= BARE
        and row.step is not None
        and writer.step is not None
        and writer.stride > 0
        and 0 < row.step - writer.step <= 2 * writer.stride
    )


def _evidence(
    writer: Writer, bad: Sequence[Bad], row: Row, scale: float | None, overflows: int
) -> list[Message]:
    """Return what came before a number that is not finite, and what stands beside it."""
    found: list[Message] = []
    losses = [one for one in bad if one.kind in ("loss", "part")]
    track = writer.tracks.get(losses[0].name) if losses else None
    if track is not None and track.before is not None and track.is_judged:
        step, value = track.before
        known = [abs(one) for one in track.recent][:-1]
        usual = max(known) if known else HUGE / TENFOLD
        if abs(value) >= TENFOLD * usual:
            at = whole(step)
            found.append(
                Message.of(words.EXPLODED_FIRST_ANY.text, value=figure(value))
                if at is None
                else Message.of(words.EXPLODED_FIRST.text, value=figure(value), step=f"{at:,}")
            )
        else:
            found.append(Message.of(words.BEFORE_VALUE.text, value=figure(value)))
    if row.step is None and row.epoch is not None:
        found.append(Message.of(words.EPOCH.text, epoch=f"{row.epoch:g}"))
    if scale is not None:
        found.append(Message.of(words.SCALE_THEN.text, scale=figure(scale)))
    if overflows:
        found.append(Message.of(words.OVERFLOWS.text, n=f"{overflows:,}"))
    return found


def _came(writer: Writer, step: int) -> Message | None:
    """Return how the loss came to be bad, where more than a few lines tell it."""
    track = writer.tracks.get("loss")
    if track is None or track.finite < KNOWN:
        return None
    return writer.climbs.judge_bad(step).reason


def _risen(last: Row | None, row: Row, layout: Layout, total: Bad) -> list[Bad]:
    """Return the numbers of a line, followed or not, that rose together with its loss."""
    if last is None or total.before is None:
        return []
    before = {pair.printed: pair.value for pair in layout.fields(last.raw)}
    rise = abs(total.value - total.before)
    found = []
    for pair in layout.fields(row.raw):
        was = before.get(pair.printed)
        if pair.kind not in ("other", "part") or was is None or not math.isfinite(pair.value + was):
            continue
        if abs(pair.value) >= 100 * abs(was) and 0.3 * rise <= abs(pair.value - was) <= 3 * rise:
            found.append(Bad("part", pair.name, pair.printed, pair.value, was))
    return sorted(found, key=lambda one: -abs(one.value))
