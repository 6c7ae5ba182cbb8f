"""What the calls of the API tell (api_statistic): mostly where the host waits for the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ascend_tui.plugin import Message

from .advice_figures import Found, average_us, calls, known, name_of, percent, time
from .snapshot import Finding, Row

SYNC_SHARE = 0.5
"""Chosen: over half of all time in calls is what "dominates" says."""
TINY_US = 1000.0


def judge(rows: Sequence[Row]) -> Iterator[Found]:
    """Say where waiting is most of the calls' time.

    That the host waits is what it does while a device is busy, so that this alone is no fault; the same call
    is in several layers (acl, runtime), of which the one with most time is judged.
    """
    levels: dict[str, list[Row]] = {}
    for row in rows:
        if known(row.self_time_us):
            levels.setdefault(row.level, []).append(row)
    if not levels:
        return
    level = max(levels.values(), key=lambda found: sum(row.self_time_us for row in found))
    whole_us = sum(row.self_time_us for row in level)
    waits = sorted((row for row in level if row.kind == "synchronisation"), key=lambda row: -row.self_time_us)
    wait_us = sum(row.self_time_us for row in waits)
    if whole_us < TINY_US or wait_us < SYNC_SHARE * whole_us:
        return
    share = wait_us / whole_us
    finding = Finding(
        rule="host_waits",
        headline=Message.of(
            "the host waits for the device {share} of the time in calls of the API", share=percent(share)
        ),
        evidence=tuple(
            Message.of(
                "{name}: {calls} calls, {time} in all, {average} on average",
                name=name_of(row),
                calls=calls(row.calls),
                time=time(row.self_time_us),
                average=time(average_us([row])),
            )
            for row in waits[:3]
        ),
        advice=(
            Message(
                "normal where the device is the bottleneck; this table does not tell: look at its idle time"
            ),
            Message(
                "where it is idle: many short waits are item(), numpy() and printed scalars in each step"
            ),
        ),
        ops=tuple(row.name for row in waits[:3]),
    )
    yield Found(0.0, finding)
