"""What is moved instead of computed: how much, how fast, in how many pieces, and casts of each weight."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ascend_tui.plugin import Message

from .advice_bytes import moved_bytes
from .advice_figures import (
    LEAST_ROWS,
    MANY,
    SMALL_US,
    Found,
    Table,
    average_us,
    bare,
    calls,
    known,
    name_of,
    names_of,
    ops_of,
    percent,
    share_of,
    time,
)
from .snapshot import Finding, Row

MOVEMENT_SHARE = 0.2
"""Chosen: without any movement the whole would then be 1.25 times as fast; under that it hardly pays."""
SLOW_MOVE_GB_S = 50.0
"""Chosen: a quarter of the slowest memory of a current chip (310P, 204 GB/s): no healthy copy is named."""
SLOW_MOVE_US = 50.0
"""Chosen: in a shorter call the launch is what takes the time, not the bytes."""
SLOW_MOVE_SHARE = 0.02
"""Chosen: of a smaller operator nobody would see the gain."""
MANY_OF_CALLS = 0.1
"""Chosen: in a profile of many steps everything is many; one call in ten is still many."""
TINY_MOVE_SHARE = 0.03
"""Chosen: as for slow movement, and a little more because the gain is a part of it."""
CAST_SHARE = 0.05
"""Chosen: 240 casts of one weight each took 10.6 % of a real step; half of that is still worth a look."""
SKEWED = 5.0
"""Chosen: a longest call of so many averages says that the calls differ."""

_MOVERS = re.compile(
    r"transpose|trans_?data|permute|gather|^index(_?select|put)?(_|v\d|d)?$|contiguous|^clone$|viewcopy"
    r"|as_?strided"
)
_CASTS = re.compile(r"(^|_)cast(aicore)?(v\d)?$|^_to_copy$|^(npu|_npu)_dtype_cast$")
_STREAMS = re.compile(r"transpose|trans_?data|permute|cast|tensormove|identity|concat|^split|contiguous")
"""Kernels that read and write each byte of their inputs once: for others the shapes do not tell the bytes."""


def judge(table: Table) -> Iterator[Found]:
    """Say what movement costs; casts that are most of it are said alone.

    A host that launches a copy and waits for it shows the wait as its time, so of launches nothing is said.
    """
    if table.is_launching:
        return
    storm = list(_casts(table))
    yield from storm
    yield from _movement(table, sum(one.cost for one in storm))
    yield from _slow_moves(table)
    yield from _tiny_moves(table)


def _movement(table: Table, cast_share: float) -> Iterator[Found]:
    rows = [row for row in table.rows if row.kind == "movement"]
    share = share_of(rows)
    if len(table.rows) < LEAST_ROWS or share < MOVEMENT_SHARE or cast_share >= 0.7 * share:
        return
    headline = (
        Message.of(
            "movement takes at least {share}: casts, transposes and copies compute nothing",
            share=percent(share),
        )
        if table.is_cut
        else Message.of(
            "movement takes {share}: casts, transposes and copies compute nothing", share=percent(share)
        )
    )
    on_device = table.clock == "device"
    finding = Finding(
        rule="movement",
        headline=headline,
        severity="warning" if on_device else "info",
        evidence=(
            Message.of("the largest: {names}", names=names_of(rows)),
            Message.of(
                "computing takes {share}, {calls} of {all} calls move",
                share=percent(share_of(table.rows, "compute")),
                calls=calls(sum(row.calls for row in rows)),
                all=calls(table.calls),
            ),
        ),
        advice=(
            Message("keep one layout and one type from operator to operator: each change of either is a copy")
            if on_device
            else Message(
                "look for copies that are not needed: contiguous(), clone(), to() and cat() in loops"
            ),
            Message("make inputs contiguous once, before the loop that uses them"),
        ),
        ops=ops_of(rows),
    )
    yield Found(share, finding)


def _slow_moves(table: Table) -> Iterator[Found]:
    """Movement out of proportion to its bytes, where shapes and types of enough calls are known."""
    slow = []
    for row in table.rows:
        if row.kind != "movement" or row.clock != "device" or not _STREAMS.search(bare(row)):
            continue
        if row.share < SLOW_MOVE_SHARE or average_us([row]) < SLOW_MOVE_US or not row.uses:
            continue
        sizes = [(moved_bytes(use), use) for use in row.uses]
        timed_us = sum(known(use.self_time_us) for size, use in sizes if size)
        moved = sum(size * use.calls for size, use in sizes if size)
        if moved and timed_us >= 0.5 * row.self_time_us and moved / timed_us / 1e3 < SLOW_MOVE_GB_S:
            slow.append((row, moved / timed_us / 1e3))
    if not slow:
        return
    rows = [row for row, _ in slow]
    finding = Finding(
        rule="slow_movement",
        headline=Message.of(
            "{name} moves {rate} GB/s: too slow for its bytes, {share} of the time",
            name=name_of(rows[0]),
            rate=f"{slow[0][1]:.1f}",
            share=percent(share_of(rows)),
        ),
        severity="warning",
        evidence=tuple(
            Message.of(
                "{name}: {calls} calls of {time}, {rate} GB/s by its shapes, each byte read and written once",
                name=name_of(row),
                calls=calls(row.calls),
                time=time(average_us([row])),
                rate=f"{rate:.1f}",
            )
            for row, rate in slow[:3]
        ),
        advice=(
            Message("look at the layout: small last dimensions and strides make a copy slow, not its size"),
            Message(
                "keep the layout that the next operator wants (NC1HWC0 for convolutions, NZ for products)"
            ),
        ),
        ops=ops_of(rows),
    )
    yield Found(share_of(rows), finding)


def _tiny_moves(table: Table) -> Iterator[Found]:
    rows = [
        row
        for row in table.rows
        if row.kind == "movement"
        and _MOVERS.search(bare(row))
        and 0 < average_us([row]) < SMALL_US[table.clock]
    ]
    number, share = sum(row.calls for row in rows), share_of(rows)
    if number < MANY or number < MANY_OF_CALLS * table.calls or share < TINY_MOVE_SHARE:
        return
    finding = Finding(
        rule="tiny_moves",
        headline=Message.of(
            "{calls} tiny transposes and gathers of {time} take {share} of the time",
            calls=calls(number),
            time=time(average_us(rows)),
            share=percent(share),
        ),
        severity="warning",
        evidence=(Message.of("the largest: {names}", names=names_of(rows)),),
        advice=(
            Message("make their inputs contiguous first, once, instead of in each call"),
            Message("gather with one index tensor instead of in a loop"),
        ),
        ops=ops_of(rows),
    )
    yield Found(share, finding)


def _by_optimizer(row: Row) -> int:
    return sum(place.calls for place in row.places if place.phase == "optimizer")


def _whole_share(row: Row) -> float:
    """Return the share of a row with what it calls: on the host a cast leaves the work to a copy."""
    if row.clock == "host" and row.total_time_us and row.self_time_us > 0:
        return row.share * row.total_time_us / row.self_time_us
    return known(row.share)


def _casts(table: Table) -> Iterator[Found]:
    rows = [row for row in table.rows if row.kind == "movement" and _CASTS.search(bare(row))]
    # An optimizer casts its counters, a number each: that is no cast of a weight.
    number = sum(row.calls - _by_optimizer(row) for row in rows)
    share = sum(_whole_share(row) for row in rows)
    if number < MANY or share < CAST_SHARE:
        return
    row = rows[0]
    average, longest = average_us([row]), known(row.max_us)
    evidence = [
        Message.of(
            "{name}: {calls} calls, {time} in all, {average} on average",
            name=name_of(row),
            calls=calls(row.calls),
            time=time(row.self_time_us),
            average=time(average),
        )
    ]
    if average and longest >= SKEWED * average:
        evidence.append(
            Message.of(
                "its longest call takes {longest}, {ratio} times the average: few are large, many small",
                longest=time(longest),
                ratio=f"{longest / average:.0f}",
            )
        )
    finding = Finding(
        rule="cast_storm",
        headline=Message.of(
            "{name} is called {calls} times and takes {share}: a cast for each weight, in a loop?",
            name=name_of(row),
            calls=calls(number),
            share=percent(share),
        ),
        severity="warning",
        evidence=tuple(evidence),
        advice=(
            Message("cast all weights in one call (a _foreach_ operator, a flat buffer), not one by one"),
            Message("keep the type between operators: each border of autocast casts there and back"),
        ),
        ops=ops_of(rows),
    )
    yield Found(share, finding)
