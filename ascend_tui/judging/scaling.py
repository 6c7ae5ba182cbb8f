"""Is the loss scale being searched, as it should be, or is it collapsing?

A scaler halves its scale where gradients overflow and skips that step; after a growth interval (2,000 steps
in torch, 1,000 in DeepSpeed) it doubles it again.  So skips in a row at the start and one skip now and then
are normal.  A scale that only falls is not, and below 1 it cannot be what makes gradients overflow.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Literal

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message, Severity

QUIET = 20
"""So many steps in a row without a skip end a run of skips, and the search at the start for good."""
SEARCHED = 100
"""After so many steps the search at the start is over, quiet or not."""
WINDOW = 32
MOST = 0.5
FEWEST = 8
"""Of the last steps, and in number: from so many skips on, most steps are skipped."""
HALVED = 4
"""Halvings after the search while most steps are skipped: the scale is falling, not being found."""
LOW, IN_A_ROW = 16.0, 6
"""A search that is still going on below this scale, by so many skips in a row, will find nothing."""
ONLY_FALLS, APART, BURSTS = 8, 500, 4
"""So many halvings without one doubling, this many steps apart or nearer and not at once: a slow collapse."""
SAME = 5
"""Skips that do not lower the scale any more: it is fixed or at its minimum, not slow (hysteresis)."""
TORCH_SEARCH, LONGEST_SEARCH = 18, 34
"""Skips in a row of a search from 65,536 down to 1, and from 2**32, each with DeepSpeed's hysteresis."""
KEPT = 512
"""Skips that are remembered."""

Kind = Literal["scale_search", "scale_collapse"]

_SKIPPED = Message("GradScaler skipped a step (normal search)")
_SEARCHING = Message("the scaler looks for the largest scale that fits: {n} steps skipped since step {since}")
_NOW_AND_THEN = Message("a skip about once every growth interval is how the scaler finds the largest scale")
_NOTHING = Message("the loss scale is {scale}: no step can be right any more")
_BELOW = Message("the loss scale fell below 1, to {scale}")
_STAYS = Message("steps are skipped, and the loss scale stays at {scale}")
_FALLS = Message("the loss scale collapses: {before} → {scale}, most steps are skipped")
_DOWN = Message("the loss scale only falls: {before} → {scale} without recovery")
_BLIND = Message("most steps are skipped: {n} of the last {window}")
_LOSS_FIRST = Message("steps are skipped because the loss itself is not finite")

_WHY_NOTHING = Message("gradients that were scaled by {scale} hold no numbers, and no halving changes it")
_WHY_BELOW = Message(
    "below 1 the scale makes gradients smaller than they are, and they still overflow: it is not the cause"
)
_WHY_START = Message(
    "all {n} steps since step {since} were skipped, longer than any search takes: the scale is not the cause"
)
_WHY_LOSS = Message("the loss is not finite since step {since}: no scale changes that, it is not the cause")
_WHY_FALLS = Message("{n} of the last {window} steps were skipped, and the scale does not recover")
_WHY_STAYS = Message("{n} steps were skipped at this scale: it is fixed, or at its minimum")
_WHY_DOWN = Message("{n} halvings since step {since} and not one doubling")
_WHY_BLIND = Message("the scale itself is not known, so that this is less sure")

_FIND = Message("find the first output that leaves its type: watch modules, then operators")
_NOT_SCALE = Message("look for the module or the part of the loss that makes NaN or Inf, not at the scale")
_NO_PROGRESS = Message("a skipped step changes no weight: there is no progress while most are skipped")
_WIDER = Message("bfloat16 needs no scale; in float16, keep what overflows in float32")


@frozen
class ScaleFinding:
    """What the loss scale does since `since_step`: it is found as usual, or it collapses.

    `skips` counts the steps skipped since then.  `scale_is_not_the_cause`: gradients are bad whatever it is.
    """

    kind: Kind
    severity: Severity
    headline: Message
    reason: Message
    advice: tuple[Message, ...] = ()
    since_step: int = 0
    scale_is_not_the_cause: bool = False
    skips: int = 0


class Scaling:
    """What is known of the scale and of the skipped steps, in bounded memory.

    Calls for steps that went well may be thinned, those for skipped ones not: a step between two calls counts
    as a good one.  The skips of the last few hundred may be told in any order.
    """

    def __init__(self) -> None:
        """Start knowing nothing."""
        self.scale: float | None = None
        self._first: int | None = None
        self._last = 0
        self._skips: list[int] = []
        self._over_at: int | None = None
        self._read_at = self._changed_at = 0
        self._high: tuple[int, float] = (0, 0.0)
        self._changes = 0

    def take(self, step: int, scale: float | None, skipped: bool) -> None:
        """Take what is known of one attempt at a step; `scale` is None where only skips are seen."""
        if self._first is None:
            self._first = self._last = step
        self._first, self._last = min(self._first, step), max(self._last, step)
        if skipped and (at := bisect_left(self._skips, step)) == bisect_right(self._skips, step):
            self._skips.insert(at, step)
            del self._skips[:-KEPT]
        if self._over_at is None and (self._was_quiet() or self._last - self._first >= SEARCHED):
            self._over_at = step
            # What the search left is the level that later falls are measured from.
            self._high = (step, self.scale or 0.0)
        if scale is not None and step >= self._read_at:
            self._take_scale(step, scale)

    def judge(self, loss_bad_since: int | None = None) -> ScaleFinding | None:
        """Return what the scale does, None where no step was skipped and the scale is a number.

        `loss_bad_since` is the step from which on the loss itself, before it is scaled, is not finite.
        """
        run = self._run()
        if self.scale is not None and (self.scale == 0 or not math.isfinite(self.scale)):
            size = figure(self.scale)
            why = Message.of(_WHY_NOTHING.text, scale=size)
            return _collapse(run or [self._changed_at], Message.of(_NOTHING.text, scale=size), why, True)
        if not run:
            return None
        if self._last - run[-1] < QUIET:
            found = self._collapse_of(run, loss_bad_since)
            if found is not None:
                return found
        found = self._only_falls()
        if found is not None:
            return found
        words = Message.of(_SEARCHING.text, n=f"{len(run):,}", since=f"{run[0]:,}")
        normal = _NOW_AND_THEN if len(run) == 1 and self._over_at is not None else words
        return ScaleFinding("scale_search", "info", _SKIPPED, normal, since_step=run[0], skips=len(run))

    def _take_scale(self, step: int, scale: float) -> None:
        before, self.scale, self._read_at = self.scale, scale, step
        if scale == before or (scale != scale and before is not None and before != before):
            return
        self._changes += before is not None
        self._changed_at = step
        if before is None or scale > before or not self._high[1]:
            self._high = (step, max(scale, before or 0.0) if not self._high[1] else scale)

    def _was_quiet(self) -> bool:
        """Tell whether the newest stretch without a skip was long enough to end the search at the start."""
        newest = [self._first or 0, *self._skips[-1:]]
        earlier = self._skips[-2:]
        between = earlier[1] - earlier[0] - 1 if len(earlier) == 2 else 0
        return max(self._last - newest[-1], between) >= QUIET

    def _run(self) -> list[int]:
        """Return the skips of the newest run: those without a long good stretch between them."""
        start = len(self._skips) - 1
        while start > 0 and self._skips[start] - self._skips[start - 1] <= QUIET:
            start -= 1
        return self._skips[max(0, start) :]

    def _collapse_of(self, run: list[int], loss_bad_since: int | None) -> ScaleFinding | None:
        scale, row = self.scale, self._in_a_row()
        window = min(WINDOW, self._last - (self._first or 0) + 1)
        skipped = self._since(self._last - WINDOW + 1)
        many = skipped >= max(FEWEST, MOST * window)
        if loss_bad_since is not None and loss_bad_since <= run[-1] and row >= 3:
            why = Message.of(_WHY_LOSS.text, since=f"{loss_bad_since:,}")
            return _collapse(run, _LOSS_FIRST, why, True)
        from_start = run[0] <= (self._first or 0) + 1 and row == len(run)
        start = Message.of(_WHY_START.text, n=f"{len(run):,}", since=f"{run[0]:,}")
        if scale is None:
            endless = from_start and row >= LONGEST_SEARCH
            if not endless and not (many and self._over_at is not None):
                return None
            words = Message.of(_BLIND.text, n=skipped, window=window)
            return _collapse(run, words, start if endless else _WHY_BLIND, endless, "warning")
        size = figure(scale)
        if scale < 1 and self._changes:
            why = start if from_start and row >= TORCH_SEARCH else _WHY_BELOW
            return _collapse(run, Message.of(_BELOW.text, scale=size), why, True)
        stayed = bisect_right(self._skips, self._read_at) - bisect_right(self._skips, self._changed_at)
        if stayed >= SAME and stayed >= MOST * (self._read_at - self._changed_at):
            endless = from_start and row >= LONGEST_SEARCH
            why = start if endless else Message.of(_WHY_STAYS.text, n=f"{stayed:,}")
            return _collapse(run, Message.of(_STAYS.text, scale=size), why, endless)
        return self._falling(run, scale, skipped, window, many, row)

    def _falling(
        self, run: list[int], scale: float, skipped: int, window: int, many: bool, row: int
    ) -> ScaleFinding | None:
        """Return that the scale goes on falling after its search should have ended."""
        high, halvings = self._high[1], self._halvings(scale)
        why = Message.of(_WHY_FALLS.text, n=skipped, window=window)
        words = Message.of(_FALLS.text, before=figure(high), scale=figure(scale))
        if many and halvings >= HALVED and self._over_at is not None:
            return _collapse(run, words, why, False)
        if scale < LOW and (many or row >= IN_A_ROW) and halvings >= HALVED:
            return _collapse(run, words, why, False, "warning" if self._over_at is None else "error")
        return None

    def _only_falls(self) -> ScaleFinding | None:
        """Return that the scale lost much in many small falls, and never doubled in between."""
        since, high = self._high
        halvings = self._halvings(self.scale or 0.0)
        skips = self._skips[bisect_left(self._skips, since) :]
        if self._over_at is None or halvings < ONLY_FALLS or not skips or self._last - skips[-1] >= APART:
            return None
        bursts = 1 + sum(1 for one, other in zip(skips, skips[1:]) if other - one > QUIET)
        if bursts < BURSTS or self._last - since > APART * halvings:
            return None
        why = Message.of(_WHY_DOWN.text, n=f"{halvings:.0f}", since=f"{skips[0]:,}")
        words = Message.of(_DOWN.text, before=figure(high), scale=figure(self.scale or 0.0))
        return _collapse(skips, words, why, False, "warning")

    def _halvings(self, scale: float) -> float:
        """Return how often the scale was halved since its last high."""
        high = self._high[1]
        return math.log2(high / scale) if high > scale > 0 else 0.0

    def _in_a_row(self) -> int:
        """Return how many of the newest attempts were skipped, one after the other."""
        count = 0
        while count < len(self._skips) and self._skips[-1 - count] == self._last - count:
            count += 1
        return count

    def _since(self, step: int) -> int:
        return len(self._skips) - bisect_left(self._skips, step)


def figure(scale: float) -> str:
    """Return a scale in few characters: 65,536, 0.5, 2.7e-51."""
    if scale != scale:
        return "NaN"
    if math.isinf(scale):
        return "Inf" if scale > 0 else "-Inf"
    if scale == int(scale):
        return f"{scale:,.0f}" if abs(scale) < 1e15 else f"{scale:.2g}"
    return f"{scale:.2g}"


def _collapse(
    run: list[int], headline: Message, reason: Message, elsewhere: bool, severity: Severity = "error"
) -> ScaleFinding:
    advice = (_NOT_SCALE, _NO_PROGRESS) if elsewhere else (_FIND, _NO_PROGRESS, _WIDER)
    return ScaleFinding("scale_collapse", severity, headline, reason, advice, run[0], elsewhere, len(run))
