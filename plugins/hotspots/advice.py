"""Everything worth knowing of a live step or a profile: the rules of all themes, the most costly first.

Each rule speaks only from numbers that are there, and shows them.  What cannot be had: which operator depends
on which (a serial tail) is in no table of sums, so that it is told by waits; the layout of a KV-cache and the
time to the first token are those of inference, which has no steps.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import advice_calls, advice_change, advice_live, advice_steps, advice_table, advice_units
from .advice_figures import Found, table_of
from .snapshot import Finding, HotspotsSnapshot, ProfileResult

MOST = 6
"""More findings than that are read by nobody."""
_OF_ASCEND = ("operator_details", "trace_view")
"""Only a profiler with a device writes these: times of the host in them are those of launches."""

_IDLE = ("host_bound", "preparing", "wait", "serial_tail")
"""What says already why a device is idle."""


def live(snapshot: HotspotsSnapshot) -> tuple[Finding, ...]:
    """Return what a live step tells."""
    found = list(advice_live.judge(snapshot))
    table = table_of(
        snapshot.rows,
        snapshot.rows_dropped,
        snapshot.clock,
        per_step=True,
        is_launching=snapshot.clock == "host" and snapshot.runs_on != "cpu",
    )
    found += advice_table.judge(table)
    found += advice_units.judge(snapshot.rows)
    found += advice_change.judge(snapshot.rows)
    return _ordered(found)


def profile(result: ProfileResult) -> tuple[Finding, ...]:
    """Return what a profile tells."""
    found = list(advice_steps.judge(result.steps))
    found += advice_steps.judge_links(result.links)
    found += advice_live.judge_phases(result.phases)
    if any(row.level for row in result.rows):
        found += advice_calls.judge(result.rows)
    else:
        steps = {one.step for one in result.steps if one.step}
        table = table_of(
            result.rows,
            result.rows_dropped,
            result.clock,
            steps=len(steps) or None,
            is_launching=result.clock == "host" and result.format in _OF_ASCEND,
            idle_share=result.device.idle_share if result.device is not None else None,
        )
        found += advice_table.judge(table)
        found += advice_units.judge(result.rows)
    if result.device is not None and not any(one.finding.rule in _IDLE for one in found):
        data = sum(one.share for one in result.phases if one.name == "data")
        found += advice_live.judge_device(result.device, data)
        found += advice_live.judge_idle(result.device)
    if result.baseline:
        found += advice_change.judge(result.rows, result.gone)
    return _ordered(found)


def _ordered(found: Iterable[Found]) -> tuple[Finding, ...]:
    """Return the findings: what can be changed before what is only so, by what each is about."""
    rank = {"fatal": 0, "error": 1, "warning": 2, "info": 3}
    ordered = sorted(found, key=lambda one: (rank[one.finding.severity], -one.cost))
    return tuple(one.finding for one in ordered[:MOST])
