"""What a table of operators tells as a whole: where its time is, on which core, with how many shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ascend_tui.plugin import Message

from . import advice_moves, advice_waits
from .advice_figures import (
    LEAST_ROWS,
    MEASURE_WHOLE,
    SMALL_US,
    Found,
    Table,
    average_us,
    calls,
    name_of,
    names_of,
    ops_of,
    percent,
    share_of,
    time,
)
from .snapshot import Finding

TOP, TOP_SHARE = 5, 0.5
"""A5.1, B6.2: the top five over 50 % are concentrated."""
WIDE_TOP, WIDE_SHARE = 20, 0.7
"""A5.1, B6.2: so are the top 20 over 70 %; of fewer than twice as many rows either would say nothing."""
HUNDREDS = 200
"""A5.1: "flat over hundreds of small operators"."""
AI_CPU_SHARE, AI_CPU_WARNING = 0.005, 0.02
"""Chosen: an operator on the AI CPU takes tens to hundreds of times as long, so a little is a lot."""
COMMUNICATION_SHARE = 0.2
"""Chosen: less is seldom in the way, and what of it runs beside computing costs nothing."""
SHAPES_OF_STEPS = 10
"""Chosen: more sets than one step has calls come from several steps, so fewer of them tell."""
APART_SHARE = 0.02
"""Chosen: less communication does not change a share that is shown in whole per cent."""
APART = Message("shares are of the time without communication, which is {share} of the table")
SHAPES, CALLS_OF_A_SHAPE = 50, 2.0
"""Chosen: layers differ, but come in repeats; so many shapes of which hardly one comes twice do not."""


def judge(table: Table) -> Iterator[Found]:
    """Say what the table tells.  The units of the cores are judged apart: for those one row is enough."""
    apart = share_of(table.communication)
    for rule in (advice_moves.judge, advice_waits.judge, _ai_cpu, _shapes, _spread):
        for found in rule(table):
            yield _apart(found, apart) if apart >= APART_SHARE else found
    yield from _communication(table)


def _apart(found: Found, share: float) -> Found:
    words = Message.of(APART.text, share=percent(share))
    finding = dataclasses.replace(found.finding, evidence=(*found.finding.evidence, words))
    return Found(found.cost * (1 - share), finding)


def _spread(table: Table) -> Iterator[Found]:
    """Concentrated or flat; of a cut table neither can be said."""
    rows = table.rows
    if table.is_cut or len(rows) < 2 * TOP:
        return
    top, wide = share_of(rows[:TOP]), share_of(rows[:WIDE_TOP])
    is_wide = len(rows) >= 2 * WIDE_TOP and wide > WIDE_SHARE
    if top > TOP_SHARE or is_wide:
        number, share = (TOP, top) if top > TOP_SHARE else (WIDE_TOP, wide)
        finding = Finding(
            rule="concentrated",
            headline=Message.of(
                "concentrated: {number} of {rows} operators take {share} of the time",
                number=number,
                rows=len(rows),
                share=percent(share),
            ),
            evidence=(Message.of("the largest: {names}", names=names_of(rows)),),
            advice=(
                Message("look at these first: the others together are worth less"),
                MEASURE_WHOLE,
            ),
            ops=ops_of(rows, number),
            attribution="exact",
        )
        # A description: it goes behind whatever can be changed.
        yield Found(0.0, finding)
        return
    small = [row for row in rows if 0 < average_us([row]) < SMALL_US[table.clock]]
    number = sum(row.calls for row in small)
    if len(rows) < 2 * WIDE_TOP or number < HUNDREDS or share_of(small) < TOP_SHARE:
        return
    finding = Finding(
        rule="flat",
        headline=Message.of(
            "flat: no operator stands out, {calls} small calls take {share} of the time",
            calls=calls(number),
            share=percent(share_of(small)),
        ),
        severity="warning",
        evidence=(
            Message.of(
                "the top {top} of {rows} take {share}, a small call {time} on average",
                top=TOP,
                rows=len(rows),
                share=percent(top),
                time=time(average_us(small)),
            ),
        ),
        advice=(
            Message("fuse small operators (fused optimizer, fused norm and activation, torch.compile)"),
            Message("look at scheduling: a launch may cost more than its work, on an NPU more than on a GPU")
            if table.clock == "device"
            else Message("larger batches: the same number of calls for more work"),
        ),
        ops=ops_of(small),
    )
    yield Found(share_of(small), finding)


def _ai_cpu(table: Table) -> Iterator[Found]:
    """Operators on the AI CPU; of one that runs on several cores the first took the most of its time."""
    rows = [row for row in table.rows if row.core.partition("/")[0].replace("_", "").upper() == "AICPU"]
    share = share_of(rows)
    if share < AI_CPU_SHARE:
        return
    numbers = {"calls": calls(sum(row.calls for row in rows)), "share": percent(share)}
    is_sole = not any("/" in row.core for row in rows)
    finding = Finding(
        rule="ai_cpu",
        headline=Message.of("{calls} calls run on the AI CPU and take {share}", **numbers)
        if is_sole
        else Message.of("{calls} calls take {share}, much of it on the AI CPU", **numbers),
        severity="warning" if share >= AI_CPU_WARNING else "info",
        evidence=(Message.of("the largest: {names}", names=names_of(rows)),),
        advice=(
            Message(
                "move them to the AI Core: another type of the input (INT64 and float64 often fall back)"
            ),
            Message(
                "or another operator that does the same; compute it outside the loop where it is constant"
            ),
        ),
        ops=ops_of(rows),
        attribution="exact" if is_sole else "likely",
    )
    yield Found(share, finding)


def _shapes(table: Table) -> Iterator[Found]:
    """Shapes that hardly repeat.

    `OP State` dynamic is no evidence: every kernel of a binary package says so, also with one shape.  In one
    step of a net whose layers all differ no shape repeats either, so that it is certain only over several.
    """
    found = []
    for row in table.rows:
        seen = row.shapes_seen or 0
        # More sets than calls in a step: the others came in other steps.
        over_steps = table.per_step and seen >= SHAPES_OF_STEPS and seen > 1.5 * row.calls > 0
        if over_steps or (seen >= SHAPES and row.calls < CALLS_OF_A_SHAPE * seen):
            found.append((over_steps, row))
    if not found:
        return
    found.sort(key=lambda one: not one[0])
    rows = [row for _, row in found]
    row, over_steps = rows[0], found[0][0]
    is_certain = over_steps or (not table.per_step and (table.steps or 0) > 1)
    finding = Finding(
        rule="dynamic_shapes",
        headline=Message.of(
            "{name} had {shapes} sets of shapes in {calls} calls a step: shapes change from step to step",
            name=name_of(row),
            shapes=row.shapes_seen or 0,
            calls=calls(row.calls),
        )
        if over_steps
        else Message.of(
            "{name} had {shapes} sets of shapes in {calls} calls: hardly one comes twice",
            name=name_of(row),
            shapes=row.shapes_seen or 0,
            calls=calls(row.calls),
        ),
        severity="warning" if is_certain else "info",
        evidence=tuple(
            Message.of("{name}: {shapes} sets of shapes", name=name_of(one), shapes=one.shapes_seen or 0)
            for one in rows[1:3]
        )
        + (
            ()
            if is_certain
            else (Message("one step of a net whose layers all differ looks the same: compare two steps"),)
        ),
        advice=(
            Message("fix the shapes: pad to a few lengths, drop the last short batch"),
            Message("each new shape costs tiling, memory and, in a compiled graph, another compilation"),
        ),
        ops=ops_of(rows),
    )
    yield Found(share_of(rows), finding)


def _communication(table: Table) -> Iterator[Found]:
    rows = table.communication
    share = share_of(rows)
    if share < COMMUNICATION_SHARE or len(table.rows) + len(rows) < LEAST_ROWS:
        return
    finding = Finding(
        rule="communication",
        headline=Message.of("communication takes {share} of the operators' time", share=percent(share)),
        category="communication",
        evidence=(
            Message.of("the largest: {names}", names=names_of(rows)),
            Message("this holds waiting for other ranks, and what runs beside computing: a step trace tells"),
        ),
        advice=(Message("compare the ranks first: the one that waits least is the one that all wait for"),),
        ops=ops_of(rows),
    )
    yield Found(share, finding)
