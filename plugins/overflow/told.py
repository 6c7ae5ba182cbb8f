"""What other plugins tell of bad numbers: a log's loss of NaN belongs to the stream, too."""

from __future__ import annotations

import dataclasses

from ascend_tui.plugin import Alert, Message

from .incidents import EPISODE, Fault, Stream
from .snapshot import Incident

_TOO = Message("the training's log tells it, too:")
_FROM_LOG = Message("the training's log tells it; its lines are in the logs pane")
_GROUPS = ("bad", "loss", "scale", "zero")


def take_told(stream: Stream, alert: Alert) -> Fault | None:
    """Put an alert of another plugin into the stream, or beside what is known of that step already.

    None where the step is not known by our count, as without a shim: the stream is one of steps, and none
    is made up.
    """
    step = alert.step
    if step is None:
        return None
    for fault in reversed(stream.faults):
        one = fault.incident
        if (
            fault.group in _GROUPS
            and one.kind != "told"
            and one.first_step - EPISODE <= step <= one.step + EPISODE
        ):
            fault.add(_TOO, alert.headline)
            return fault
    told = Incident(
        kind="told",
        severity=alert.severity,
        headline=alert.headline,
        step=step,
        ranks=alert.ranks,
        # How often is not followed here: an alert comes when something is new or graver.
        attribution=alert.attribution,
        first_step=step,
        wall_s=alert.wall,
        evidence=(_FROM_LOG,),
    )
    for fault in stream.faults:
        if fault.incident.kind == "told" and fault.incident.headline.text == alert.headline.text:
            # An alert that comes again is one that grew.
            first = fault.incident
            fault.incident = dataclasses.replace(told, first_step=first.first_step, wall_s=first.wall_s)
            return fault
    fault, _ = stream.take("told", told, "told")
    return fault
