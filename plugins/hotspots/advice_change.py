"""What a comparison tells: which operator became slower, and whether the whole is faster for it (B8.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ascend_tui.plugin import Message

from .advice_figures import (
    MEASURE_WHOLE,
    Found,
    bare,
    calls,
    known,
    name_of,
    names_of,
    ops_of,
    percent,
    signed_percent,
    time,
)
from .compare import Whole, difference_us, noise, notable, whole
from .snapshot import Finding, Row

MOST_SLOWER = 3
WARNING_SHARE = 0.03
"""Chosen: an operator that costs so much more of the step is worth a warning."""
ALL_SLOWER, ALL_RATIO = 0.7, 1.1
"""Chosen: most of the time slower by a like factor is the machine, not an operator."""
SAVED_SHARE = 0.02
"""Chosen: less saved in one operator cannot be seen in the whole."""
NO_FASTER = 0.99
NEW_SHARE = 0.05


def judge(rows: Sequence[Row], gone: Sequence[Row] = ()) -> Iterator[Found]:
    """Say what changed by more than noise.

    Profiles of different numbers of steps are brought to the same work by their calls, and that is said.
    """
    both = whole(rows, gone)
    if both is None or both.baseline_us <= 0 or both.calls_ratio <= 0:
        return
    changed = notable(rows, both.calls_ratio)
    slower = [row for row in changed if difference_us(row, both.calls_ratio) > 0]
    faster = [row for row in changed if difference_us(row, both.calls_ratio) < 0]
    if both.slower_share >= ALL_SLOWER and both.avg_ratio >= ALL_RATIO:
        yield _all_slower(both, rows)
        # Beyond what all have in common.
        slower = [
            row for row in slower if row.change and row.change.avg_ratio >= both.avg_ratio * (1 + noise(row))
        ]
    for row in slower[:MOST_SLOWER]:
        yield _slower(row, both)
    yield from _faster(faster, both)
    yield from _new(rows, both)


def _slower(row: Row, both: Whole) -> Found:
    change = row.change
    if change is None:
        raise ValueError("a row without a change is neither slower nor faster")
    ratio = change.time_ratio / both.calls_ratio
    cost = difference_us(row, both.calls_ratio) / both.time_us if both.time_us else 0.0
    more_calls = ratio / change.avg_ratio
    numbers = {"name": name_of(row), "change": signed_percent(ratio)}
    if change.since_step is None:
        headline = Message.of("{name} {change} against the baseline", **numbers)
    elif bare(row).endswith("cast"):
        headline = Message.of(
            "{name} {change} since step {step}: a cast loop per weight?",
            step=f"{change.since_step:,}",
            **numbers,
        )
    else:
        headline = Message.of("{name} {change} since step {step}", step=f"{change.since_step:,}", **numbers)
    evidence = [
        Message.of(
            "a call took {before} and takes {now}, all calls {total}",
            before=time(change.baseline_avg_us),
            now=time(change.baseline_avg_us * change.avg_ratio),
            total=signed_percent(ratio),
        )
    ]
    if more_calls >= 1 + noise(row):
        evidence.append(
            Message.of(
                "it is called {ratio} times as often, now {calls}",
                ratio=f"{more_calls:.2f}",
                calls=calls(row.calls),
            )
        )
        advice = Message("look for what calls it: a new branch, a loop, more or shorter micro-batches")
    else:
        advice = Message("look at its inputs first: larger shapes, another type or layout")
    if not both.same_work:
        evidence.append(_other_amount(both))
    finding = Finding(
        rule="slower",
        headline=headline,
        severity="warning" if cost >= WARNING_SHARE else "info",
        evidence=tuple(evidence),
        advice=(advice, MEASURE_WHOLE),
        ops=(row.name,),
        step=change.since_step,
    )
    return Found(cost, finding)


def _all_slower(both: Whole, rows: Sequence[Row]) -> Found:
    step = next((row.change.since_step for row in rows if row.change is not None), None)
    finding = Finding(
        rule="all_slower",
        headline=Message.of(
            "nearly all operators became slower, {change} in the median: the machine, or larger inputs",
            change=signed_percent(both.avg_ratio),
        ),
        severity="warning",
        evidence=(
            Message.of(
                "{share} of the time is in operators that are slower", share=percent(both.slower_share)
            ),
        ),
        advice=(
            Message("look at clock, temperature (over 85 °C) and neighbours on the card and on the host"),
            Message("larger batches or longer sequences do the same: compare the shapes"),
        ),
        step=step,
    )
    return Found(1 - 1 / both.avg_ratio, finding)


def _faster(faster: Sequence[Row], both: Whole) -> Iterator[Found]:
    """An operator is faster; what counts is the whole."""
    saved_us = -sum(difference_us(row, both.calls_ratio) for row in faster)
    if not faster or saved_us < SAVED_SHARE * both.baseline_us * both.calls_ratio:
        return
    row = faster[0]
    ratio = row.change.time_ratio / both.calls_ratio if row.change is not None else 1.0
    numbers = {"name": name_of(row), "change": signed_percent(ratio), "whole": signed_percent(both.ratio)}
    pays = both.ratio < NO_FASTER
    headline = (
        Message.of("{name} {change}, all operators together {whole}", **numbers)
        if pays
        else Message.of("{name} {change}, but all operators together {whole}: nothing is gained", **numbers)
    )
    evidence = [
        Message.of("{now} in all, {before} before", now=time(both.time_us), before=time(both.baseline_us))
    ]
    if not both.same_work:
        evidence.append(_other_amount(both))
    finding = Finding(
        rule="faster" if pays else "no_gain",
        headline=headline,
        evidence=tuple(evidence),
        advice=(MEASURE_WHOLE,),
        ops=ops_of(faster),
    )
    yield Found(saved_us / both.baseline_us / both.calls_ratio, finding)


def _new(rows: Sequence[Row], both: Whole) -> Iterator[Found]:
    new = sorted(
        (row for row in rows if row.change is None and known(row.share) >= NEW_SHARE),
        key=lambda row: -row.share,
    )
    if not new:
        return
    finding = Finding(
        rule="new",
        headline=Message.of("not in the baseline: {names}", names=names_of(new)),
        evidence=(Message.of("all operators together {whole}", whole=signed_percent(both.ratio)),),
        advice=(MEASURE_WHOLE,),
        ops=ops_of(new),
        attribution="exact",
    )
    yield Found(0.0, finding)


def _other_amount(both: Whole) -> Message:
    return Message.of(
        "it holds {ratio} times the calls of the baseline: times are compared for the same number of calls",
        ratio=f"{both.calls_ratio:.2f}",
    )
