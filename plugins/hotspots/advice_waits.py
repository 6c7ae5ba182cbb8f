"""What waits between its tasks: small operators one after the other, and latency that nothing hides."""

from __future__ import annotations

from collections.abc import Iterator

from ascend_tui.plugin import Message

from .advice_figures import (
    MANY,
    SMALL_US,
    Found,
    Table,
    average_us,
    calls,
    known,
    name_of,
    names_of,
    ops_of,
    percent,
    time,
)
from .snapshot import Finding

WAIT_SHARE = 0.3
"""Chosen, for "high wait" of A5.2: a third of the time between the tasks is more than launches explain."""
IDLE_SHARE = 0.1
"""Chosen: a device that is idle for less has its waits hidden."""
TAIL_SHARE = 0.2
"""Chosen, for the serial tail of B6.3: under a fifth of all time there is more to gain elsewhere."""
PAUSE_US = 500.0
"""Chosen: a longer wait for each call is no launch that comes late, but a pause of something else."""


_STREAMS = Message("a task of another stream may run meanwhile: this table does not tell")


def judge(table: Table) -> Iterator[Found]:
    """Say what waits; where it is the small operators, only that.

    A task may wait while another stream keeps the device busy: then nothing is lost.
    """
    if table.idle_share is not None and table.idle_share < IDLE_SHARE:
        return
    tail = list(_serial_tail(table))
    yield from tail or _waits(table)


def _serial_tail(table: Table) -> Iterator[Found]:
    """Small operators that wait longer than they run: one after the other, with nothing beside.

    Which one follows which is not in a table of sums.  What is there is how long tasks waited for the end of
    the one before; a tail is where that is longer than the work.  A live step has its idle time instead,
    which is judged as host-bound; a table without waits has neither, so that nothing is said.
    """
    rows = [row for row in table.rows if row.wait_us is not None]
    whole_us = sum(row.self_time_us + known(row.wait_us) for row in rows)
    tail = [
        row
        for row in rows
        if average_us([row]) < SMALL_US["device"] and known(row.wait_us) > row.self_time_us
    ]
    number = sum(row.calls for row in tail)
    run_us, wait_us = sum(row.self_time_us for row in tail), sum(known(row.wait_us) for row in tail)
    # One long wait is a pause of the profile, so what a single call waits is bounded too.
    if number < MANY or run_us + wait_us < TAIL_SHARE * whole_us or wait_us / number > PAUSE_US:
        return
    finding = Finding(
        rule="serial_tail",
        headline=Message.of(
            "serial tail: {calls} small operators run {run} and wait {wait} one after the other",
            calls=calls(number),
            run=time(run_us),
            wait=time(wait_us),
        ),
        severity="warning",
        evidence=(
            Message.of("the largest: {names}", names=names_of(tail)),
            Message.of(
                "together {share} of the time of all tasks with their waits",
                share=percent((run_us + wait_us) / whole_us),
            ),
        ),
        advice=(
            Message("fuse them, or run what does not depend on them on another stream meanwhile"),
            Message("where the host launches them too slowly: a graph, torch.compile, fewer Python calls"),
        ),
        ops=ops_of(tail),
    )
    yield Found((run_us + wait_us) / whole_us, finding)


def _waits(table: Table) -> Iterator[Found]:
    rows = [row for row in table.rows if row.wait_us is not None]
    wait_us, run_us = sum(known(row.wait_us) for row in rows), sum(row.self_time_us for row in rows)
    if sum(row.calls for row in rows) < MANY or wait_us < WAIT_SHARE * (wait_us + run_us):
        return
    longest = sorted(rows, key=lambda row: -known(row.wait_us))
    finding = Finding(
        rule="wait",
        headline=Message.of(
            "tasks wait {wait} and run {run}: latency is not hidden, {share} of the time",
            wait=time(wait_us),
            run=time(run_us),
            share=percent(wait_us / (wait_us + run_us)),
        ),
        severity="warning",
        evidence=tuple(
            Message.of(
                "before {name}: {wait} in {calls} calls",
                name=name_of(row),
                wait=time(known(row.wait_us)),
                calls=calls(row.calls),
            )
            for row in longest[:3]
        )
        + (() if table.idle_share is not None else (_STREAMS,)),
        advice=(
            Message(
                "a step trace or the timeline tells what they wait for: the host, data or another stream"
            ),
            Message("hide it: launch earlier, prefetch, let copies and communication run beside computing"),
        ),
        ops=ops_of(longest, 3),
    )
    yield Found(wait_us / (wait_us + run_us), finding)
