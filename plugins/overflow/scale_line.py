"""The loss scale in the stream: its search is one line, its collapse another, a consequence is none."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from ascend_tui.judging.scaling import ScaleFinding, Scaling

from . import describe
from .decode import Pulse, Rows
from .incidents import CLEAN, EPISODE, Fault, News, Stream, is_forward
from .operators import plain
from .origin import Finding
from .snapshot import Incident
from .values import is_finite

HARD = frozenset(
    {"root_zero", "root", "log", "divide", "masked", "zero_times_inf", "uninitialised", "memory", "weights"}
)
"""Causes that no scale makes, so that a scaler's search does not excuse them."""


class ScaleLine:
    """What is known of the scale of one target."""

    def __init__(self, stream: Stream, skips: Mapping[int, None]) -> None:
        """Start knowing nothing; `skips` are the newest skipped steps, as far as they are told."""
        self.scale: float | None = None
        self._stream = stream
        self._skips = skips
        self._scaling = Scaling()
        self._aside: tuple[Finding, Rows] | None = None

    def is_scaled(self, scale: float | None = None) -> bool:
        """Tell whether gradients are scaled up, so that a scale too large can be what makes them bad."""
        scale = self.scale if scale is None else scale
        return scale is not None and scale >= 1

    def excuses(self, finding: Finding, rows: Rows, loss: float) -> bool:
        """Tell whether a scaler that looks for its scale makes these bad gradients, as it should."""
        collapsed = self._stream.of_group("scale", "scale_collapse")
        collapses = collapsed is not None and rows.step - collapsed.incident.step <= EPISODE
        scaled = self.is_scaled(rows.scale) or collapses or rows.step in self._skips
        if not scaled or finding.cause in HARD or not math.isfinite(loss):
            return False
        first = finding.first
        # The scale times the loss may leave float16 too.
        outside = plain(first.op) == "mul" and not first.path
        scaled_loss = outside and math.prod(first.shape) == 1 and not is_finite(first)
        if first.phase == "backward" or first.part == "gradient" or scaled_loss:
            # Should it turn out to be a collapse, this tells where.
            self._aside = finding, rows
            return True
        return False

    def take(self, pulse: Pulse, bad_since: int | None, wall_s: float) -> list[tuple[Fault, News]]:
        """Take the scales and skips of a second; `bad_since`: the loss itself is bad from this step on."""
        steps = dict(pulse.scales)
        if not steps and not pulse.skips:
            return []
        for step in sorted({*steps, *pulse.skips}):
            self._scaling.take(step, steps.get(step), step in pulse.skips)
        found = self._scaling.judge(bad_since)
        if found is None:
            return []
        fault = self._stream.open_bad(found.since_step if bad_since is None else bad_since)
        if fault is not None and _is_because(found, fault):
            for step in pulse.skips:
                fault.again(step)
            return [(fault, self._fold(found, fault))]
        newest = max(self._skips, default=found.since_step)
        incident = describe.scale(found, newest, max(found.skips, 1), wall_s)
        old = self._stream.of_group("scale", found.kind)
        if old is None:
            fault, news = self._stream.take("scale", incident)
        else:
            fault, news = old, _again(old, incident, pulse.skips)
        if found.kind == "scale_collapse":
            self._explain(fault)
        return [(fault, news)]

    def _fold(self, found: ScaleFinding, fault: Fault) -> News:
        """Tell of the skipped steps with the fault that they are skipped for: one fault, one line."""
        if found.kind == "scale_search":
            return "more"
        fault.add(found.headline, found.reason)
        told = self._stream.of_group("scale", "scale_collapse")
        if told is not None and told.incident.step >= found.since_step:
            self._stream.faults.remove(told)
        return "more"

    def _explain(self, fault: Fault) -> None:
        """Say where gradients were bad: a search had excused them until now."""
        if self._aside is None or fault.incident.first_seen is not None:
            return
        finding, rows = self._aside
        fault.incident = dataclasses.replace(
            fault.incident,
            first_seen=finding.first,
            source=finding.source,
            source_reason=finding.source_reason or fault.incident.source_reason,
            attribution=finding.attribution,
            window=describe.window(rows.outputs, finding),
        )
        fault.add(*finding.evidence)


def _is_because(found: ScaleFinding, fault: Fault) -> bool:
    """Tell whether steps are skipped because of a fault that is told already."""
    if fault.cause in HARD:
        return True
    is_consequence = found.kind == "scale_search" or found.scale_is_not_the_cause
    return is_consequence and is_forward(fault.incident)


def _again(fault: Fault, incident: Incident, skips: tuple[int, ...]) -> News:
    """Bring the one line of a scale's search or collapse up to date."""
    old = fault.incident
    count = old.count + sum(1 for step in skips if step > old.step)
    fault.incident = dataclasses.replace(
        incident,
        count=max(count, incident.count),
        first_step=min(old.first_step, incident.first_step),
        first_seen=old.first_seen,
        source=old.source,
        window=old.window,
        evidence=old.evidence,
    )
    return "back" if incident.step - old.step > CLEAN else "more"
