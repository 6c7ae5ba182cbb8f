"""What the loss scale does, from lines that say so in words and from the scale that lines of metrics print.

Scalers print when they lower the scale and are silent when they raise it, and the steps between two messages
are seen only where lines of metrics count them.  A scale that is lowered to the same value twice was raised
between.
"""

from __future__ import annotations

import math
from collections import deque

from ascend_tui.judging.scaling import HALVED, IN_A_ROW, LOW, MOST, QUIET, ScaleFinding, Scaling, figure
from ascend_tui.plugin import Message, Severity
from ascend_tui.text import clean

from ..snapshot import Incident, MetricTrend, Raw
from . import numeric_words as words
from .numeric_story import SHOWN, shown
from .scale_lines import ScaleLine

NEAR = 6
"""Lines between the copies of one message that several ranks print."""
SOON = 100
"""Steps in which no scaler doubles its scale."""
CONTEXT = 8


class _Told:
    """The messages of one kind: how often, and where first and last."""

    def __init__(self) -> None:
        self.count = 0
        self.first: ScaleLine | None = None
        self.last: ScaleLine | None = None
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.scales: set[float] = set()
        self.ranks: set[int] = set()
        self.lines: deque[Raw] = deque(maxlen=CONTEXT)

    def add(self, line: ScaleLine, count: int, step: int | None) -> None:
        if self.first is None:
            self.first, self.first_step = line, step
        self.count += count
        self.last, self.last_step = line, step
        if len(self.scales) < 16:
            self.scales.update(line.scales)
        if line.rank is not None and len(self.ranks) < 4096:
            self.ranks.add(line.rank)
        self.lines.append(Raw(line.number, clean(line.text)[:SHOWN], line.source))


class ScaleStory:
    """The loss scale of one log."""

    def __init__(self) -> None:
        """Start knowing nothing."""
        self.scaling = Scaling()
        self.scale: float | None = None
        self.overflows = 0
        self._axis = self._step_axis = 0
        """Attempts at steps so far, as far as they are told: not the printed step, which may be unknown."""
        self._step: int | None = None
        self._last_skip = -1
        self._told = _Told()
        self._still = _Told()
        self._run_base = self._skips = self._lowers = 0
        self._message_base = 0
        """How many messages were told before the one, or the pair, that is being told."""
        self._pending_skip = self._has_scales = False
        self._lowered_at: tuple[int, int, int | None] | None = None
        self._high: float | None = None
        self._high_axis = self._falls = 0
        self._is_minimum = False
        self._since_row = 0
        self._counter: float | None = None
        self._collapse: tuple[ScaleFinding | None, float | None] | None = None
        self._last_bad_step: int | None = None
        self._row: tuple[int, int, str, int | None] | None = None
        """Number, source, text and step of the line of metrics in which it was seen."""

    # What arrives.

    def take_line(self, line: ScaleLine) -> None:
        """Take what a line says in words."""
        if line.is_still:
            self._still.add(line, 1, self._step)
            self.overflows += 1
            self._since_row += 1
            return
        self._is_minimum = self._is_minimum or line.is_minimum
        is_overflow = line.skips > 0 or line.is_lowered or line.is_minimum
        if not is_overflow:
            return
        self._since_row += 1
        self._skips += line.skips
        self._lowers += len(line.scales) if line.is_lowered else 0
        before = self._told.count
        if not self._pending_skip:
            self._message_base = before
        total = max(self._skips, self._lowers, before)
        if not line.scales:
            if self._pending_skip and not self._has_scales:
                self._attempt(None)
            self._pending_skip = line.skips > 0
        else:
            self._has_scales, self._pending_skip = True, False
            for scale in line.scales:
                self._named(line, scale)
        self._told.add(line, total - before, self._step)
        self.overflows = self._told.count + self._still.count
        self._look()

    def take_row(
        self,
        step: int | None,
        scale: float | None,
        skipped: float | None,
        is_total: bool,
        seen: tuple[int, int, bytes],
    ) -> bool:
        """Take a line of metrics; tell whether the scaler skipped a step since the one before."""
        if step is not None and self._step is not None and step < self._step:
            self._restart()
        if is_total and skipped is not None:
            skipped, self._counter = (
                (skipped - (self._counter or 0.0) if self._counter is not None else 0.0),
                skipped,
            )
        self._advance(step, 1)
        told, self._since_row = self._since_row > 0, 0
        if self._pending_skip and not self._has_scales:
            self._attempt(None)
        self._pending_skip = False
        fell = scale is not None and self.scale is not None and scale < self.scale
        counted = skipped is not None and skipped > 0
        # What was told in words is not counted again.
        is_new = (fell or counted) and not told
        if scale is None and not counted and self.scaling.scale is None and not self._told.count:
            return told
        self.scaling.take(self._axis, scale, is_new)
        if scale is not None:
            self.scale = scale
            self._rise(scale)
        is_wrong = scale is not None and (scale <= 0 or not math.isfinite(scale))
        if is_new or is_wrong:
            self._last_bad_step = step
            self._row = seen[0], seen[1], shown(seen[2]), step
            self._skips += is_new
        if is_new or is_wrong or told:
            self._look()
        return told or is_new

    @property
    def is_awake(self) -> bool:
        """Tell whether anything was said of the scale since the last line of metrics."""
        return self._since_row > 0 or self._pending_skip

    def pass_rows(self, count: int, step: int | None) -> None:
        """Take lines of metrics in which the scale did nothing."""
        self._advance(step, count)
        self._since_row = 0
        if self.scaling.scale is not None or self._told.count:
            self.scaling.take(self._axis, self.scale, False)

    def at_step(self, step: int | None) -> None:
        """Learn which step a line of words follows."""
        if step is not None:
            self._advance(step, 0)

    def _advance(self, step: int | None, count: int) -> None:
        """Move on by `count` lines of metrics, or by the steps that they tell, less the attempts between."""
        if step is not None and step == self._step:
            return
        if step is None or self._step is None:
            self._axis += count
        else:
            between = self._axis - self._step_axis
            self._axis += max(count, step - self._step - between)
        if step is not None and step != self._step:
            self._step, self._step_axis = step, self._axis

    def _restart(self) -> None:
        self.scaling = Scaling()
        self._axis = self._step_axis = 0
        self._step = self._counter = self._lowered_at = None
        self._last_skip = -1
        self._high, self._high_axis, self._falls = self.scale, 0, 0
        self._run_base = self._told.count

    def _named(self, line: ScaleLine, scale: float) -> None:
        """Take a scale that a message names as the one after an overflow."""
        lowered, self._lowered_at = self._lowered_at, (line.number, line.source, self._step)
        if lowered is not None and self.scale is not None and line.is_lowered:
            is_copy = (
                not line.is_stuck
                and scale == self.scale
                and lowered[1] == line.source
                and line.number - lowered[0] <= NEAR
            )
            if is_copy:
                return
            soon = self._step is not None and lowered[2] is not None and self._step - lowered[2] <= SOON
            if scale > self.scale or (scale == self.scale and not soon and not line.is_stuck):
                self._axis += QUIET + 1
                self._high, self._high_axis, self._falls = scale, self._axis, 0
        self._attempt(scale)
        self.scale = scale
        self._falls += 1
        self._rise(scale)

    def _attempt(self, scale: float | None) -> None:
        last = self._axis
        self._axis += 1
        if self._last_skip < 0 or last - self._last_skip > QUIET:
            self._run_base = self._message_base
        self._last_skip = self._axis
        self.scaling.take(self._axis, scale, True)

    # What is known.

    def _look(self) -> None:
        finding = self.scaling.judge()
        if finding is not None and finding.kind == "scale_collapse":
            self._collapse = finding, self.scale
        elif self._only_falls():
            self._collapse = None, self.scale

    def _only_falls(self) -> bool:
        """Tell whether messages alone show a scale that is lower than any search ends, and still falls."""
        if self.scale is None or self._high is None or not 0 < self.scale < LOW:
            return False
        halvings = math.log2(self._high / self.scale) if self._high > self.scale else 0.0
        passed = self._axis - self._high_axis
        return self._falls >= IN_A_ROW - 1 and halvings >= HALVED and self._falls >= MOST * passed

    def _rise(self, scale: float) -> None:
        """Keep the newest high, from which falls are counted."""
        if self._high is None or scale > self._high:
            self._high, self._high_axis, self._falls = scale, self._axis, 0

    @property
    def trend(self) -> MetricTrend:
        """Return the shape of the scale in one word."""
        finding = self.scaling.judge()
        if self.scale == 0:
            return "zero"
        return "collapsing" if finding is not None and finding.kind == "scale_collapse" else "steady"

    def incidents(self) -> list[Incident]:
        """Return what is to be said: updates in spite of overflows, and skipped steps or a collapse."""
        found = []
        if self._still.first is not None:
            found.append(self._of_still())
        if self._pending_skip and not self._has_scales:
            self._attempt(None)
            self._pending_skip = False
            self._look()
        if self._collapse is not None or self._is_minimum:
            found.append(self._of_collapse())
        elif self._told.first is not None:
            scale = self.scale
            headline = (
                words.SEARCH_BLIND if scale is None else Message.of(words.SEARCH.text, scale=figure(scale))
            )
            found.append(self._incident(self._told, "info", headline, words.WHY_NORMAL, (), "search"))
        return found

    def _of_still(self) -> Incident:
        told = self._still
        evidence: tuple[Message, ...] = ()
        if len(told.scales) == 1 and told.count > 1:
            evidence = (Message.of(words.WHY_CONSTANT.text, scale=figure(next(iter(told.scales)))),)
        advice = (words.ADVISE_SKIP, words.ADVISE_RATE, words.ADVISE_PRECISION)
        return self._incident(told, "error", words.STILL, words.WHY_STILL, advice, "still", evidence)

    def _of_collapse(self) -> Incident:
        finding, scale = self._collapse or (None, self.scale)
        reason: Message | None = None
        severity: Severity = "error"
        advice: tuple[Message, ...] = (words.ADVISE_NOT_SCALE, words.ADVISE_PRECISION)
        if finding is not None:
            severity, advice = finding.severity, finding.advice
        elif not self._is_minimum:
            severity = "warning"
        if scale is not None and (scale == 0 or not math.isfinite(scale)):
            headline = Message.of(words.NOTHING.text, scale=figure(scale))
            reason = words.WHY_LOW if scale == 0 and self._told.count else None
        elif self._is_minimum:
            headline = words.MINIMUM
        elif scale is not None and scale < 1:
            headline, reason = Message.of(words.BELOW_ONE.text, scale=figure(scale)), words.WHY_LOW
        elif scale is not None and self._high is not None and self._high > scale:
            headline = Message.of(words.FALLS.text, before=figure(self._high), scale=figure(scale))
            reason = Message.of(words.WHY_NEVER.text, n=f"{self._told.count:,}") if self._told.count else None
        else:
            headline = finding.headline if finding is not None else words.MINIMUM
        told = self._told
        if told.first is not None:
            return self._incident(told, severity, headline, reason, advice, "collapse", (), self._run_base)
        number, source, text, step = self._row or (0, 0, "", None)
        count = max(1, finding.skips if finding is not None else 1)
        return Incident(
            severity,
            "numeric",
            headline,
            step=step,
            last_step=self._last_bad_step,
            count=count,
            key="scale collapse",
            reason=reason,
            advice=advice,
            source=source,
            line=number,
            text=text,
        )

    def _incident(
        self,
        told: _Told,
        severity: Severity,
        headline: Message,
        reason: Message | None,
        advice: tuple[Message, ...],
        key: str,
        evidence: tuple[Message, ...] = (),
        base: int = 0,
    ) -> Incident:
        first, last = told.first, told.last
        if first is None or last is None:
            raise ValueError("an incident needs a line that told it")
        if told.first_step is not None:
            after = Message.of(words.AFTER.text, step=f"{told.first_step:,}")
            evidence = (after, *evidence)
        return Incident(
            severity,
            "numeric",
            headline,
            attribution="exact" if told.first_step is None else "likely",
            step=told.first_step,
            last_step=told.last_step,
            ranks=tuple(sorted(told.ranks)),
            count=max(1, told.count - base),
            key=f"scale {key}",
            reason=reason,
            evidence=evidence,
            advice=advice,
            first_wall_s=first.wall_s,
            last_wall_s=last.wall_s,
            is_clock_known=first.wall_s is not None,
            source=first.source,
            line=first.number,
            text=clean(first.text)[:SHOWN],
            context=tuple(told.lines),
        )
