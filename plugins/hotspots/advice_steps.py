"""What step traces tell: free time, communication in the open, bubbles, and the rank that all wait for.

The letters after a threshold are the section of the field's rules; "chosen" says that the rule has no number.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message

from .advice_figures import TINY_US, Found, known, name_of, percent, time
from .snapshot import Finding, Link, StepTrace

FREE_SHARE = 0.2
"""Chosen, for "device idle" of A5.3, B6.3: more than what lies between the steps of a fed device."""
EXPOSED_SHARE = 0.2
"""Chosen: a step that hides a fifth of itself is 1.25 times as fast; for less it is seldom rebuilt."""
BUBBLE_SHARE, BUBBLE_WARNING = 0.1, 0.2
"""Chosen: eight micro-batches over two stages leave a ninth of the step as a bubble, by design."""
PREPARING_SHARE = 0.1
"""Chosen: the first operator of a step follows its begin at once where the data are there."""
EXPLAINS = 0.5
"""Free time of which so much is preparing is that of the data, not of the launches."""
STRAGGLES = 0.05
"""Chosen: ranks of one job differ by a few per cent of a step without any fault."""
TIED = 0.1
"""A rank within so much of the others' wait beside the first is held up just as little: both are named."""
WAITING, WAITING_WARNING = 0.2, 0.5
"""Chosen: some wait is in each collective, because ranks never come at the same time; half is a late rank."""


@frozen
class Rank:
    """The mean step of one rank, or of one device where ranks are not told."""

    name: str
    rank: int | None
    total_us: float
    computing_us: float
    exposed_us: float
    """Communication that nothing hides, without waiting for a stage of the pipeline."""
    free_us: float
    bubble_us: float
    preparing_us: float


def judge(steps: Sequence[StepTrace]) -> Iterator[Found]:
    """Say what the steps tell.

    Of several ranks only what holds for each is said of all: the wait for a late rank looks like slow
    communication on the others.
    """
    ranks = _ranks(steps)
    if not ranks:
        return
    yield from _straggler(ranks)
    yield from _host_bound(ranks)
    yield from _exposed(ranks)
    yield from _bubbles(ranks)
    yield from _preparing(ranks)


def judge_links(links: Sequence[Link]) -> Iterator[Found]:
    """Say how much of the communication is waiting, where a profile tells that apart from the transfer."""
    timed = [one for one in links if one.wait_ms is not None and known(one.time_ms) + known(one.wait_ms) > 0]
    wait = sum(known(one.wait_ms) for one in timed)
    whole = wait + sum(known(one.time_ms) for one in timed)
    if whole * 1000 < TINY_US or wait < WAITING * whole:
        return
    most = max(timed, key=lambda one: known(one.wait_ms))
    finding = Finding(
        rule="communication_waits",
        headline=Message.of(
            "communication waits {share} of its time for other ranks", share=percent(wait / whole)
        ),
        severity="warning" if wait >= WAITING_WARNING * whole else "info",
        category="communication",
        evidence=(
            Message.of("{wait} of waiting, {whole} in all", wait=time(wait * 1000), whole=time(whole * 1000)),
            Message.of(
                "the most in {name}: {wait}", name=name_of(most.name), wait=time(known(most.wait_ms) * 1000)
            ),
        ),
        advice=(_COMPARE_RANKS,),
    )
    yield Found(wait / whole, finding)


_COMPARE_RANKS = Message("compare the ranks: the one that waits least is the one that all wait for")
_EVEN_DATA = Message("look at what it computes: longer sequences, more experts or layers than the others")
_SLOW_CHIP = Message("look at its card: temperature, clock, a neighbour on it")
_HOST_OF_RANK = Message(
    "look at its host: cores shared with others, binding of cores, data loading, logging and checkpoints"
)
_LAUNCH = Message("launch less and earlier: larger batches, fused operators, a graph, no synchronising calls")
_SYNCS = Message("look for item(), numpy() and printed scalars in each step: each makes the host wait")
_NOT_TOLD = Message("free time also holds waiting for data: this table does not tell the two apart")


def _ranks(steps: Sequence[StepTrace]) -> list[Rank]:
    groups: dict[tuple[int | None, str], list[StepTrace]] = {}
    for one in steps:
        if known(one.total_us):
            groups.setdefault((one.rank, one.device_id if one.rank is None else ""), []).append(one)
    return [_mean(rank, device, group) for (rank, device), group in groups.items()]


def _mean(rank: int | None, device: str, steps: list[StepTrace]) -> Rank:
    def mean(value: Callable[[StepTrace], float | None]) -> float:
        return statistics.fmean(known(value(one)) for one in steps)

    bubble_us = mean(lambda one: one.bubble_us)
    return Rank(
        name=f"rank {rank}" if rank is not None else device,
        rank=rank,
        total_us=mean(lambda one: one.total_us),
        computing_us=mean(lambda one: one.computing_us),
        exposed_us=max(0.0, mean(lambda one: one.communication_not_overlapped_us) - bubble_us),
        free_us=mean(lambda one: one.free_us),
        bubble_us=bubble_us,
        preparing_us=mean(lambda one: one.preparing_us),
    )


def _straggler(ranks: list[Rank]) -> Iterator[Found]:
    """The rank that comes last: it waits least, and either computes longest or is idle longest."""
    if len(ranks) < 2:
        return
    first, *_ = ordered = sorted(ranks, key=lambda one: one.exposed_us)
    others_us = statistics.median(one.exposed_us for one in ranks)
    step_us = statistics.median(one.total_us for one in ranks)
    wait_us = others_us - first.exposed_us
    if wait_us < STRAGGLES * step_us:
        return
    late = [one for one in ordered if one.exposed_us <= first.exposed_us + TIED * wait_us]
    rest = [one for one in ranks if one not in late]
    if len(late) * 2 > len(ranks):
        return
    computes_us = first.computing_us - statistics.median(one.computing_us for one in rest)
    idles_us = first.free_us - statistics.median(one.free_us for one in rest)
    if max(computes_us, idles_us) < STRAGGLES * step_us:
        return
    told: tuple[Message, ...] = ()
    if computes_us > idles_us:
        headline = Message("{name} is slow at computing: it waits least, the others wait for it")
        why = Message.of("it computes {more} longer than the others", more=time(computes_us))
        advice: tuple[Message, ...] = (_EVEN_DATA, _SLOW_CHIP)
    else:
        headline = Message(
            "{name} is the straggler, host-bound: it waits least and is most idle, the others wait"
        )
        why = Message.of("its device is idle {more} longer than the others", more=time(idles_us))
        advice, told = (_HOST_OF_RANK,), (_NOT_TOLD,)
    finding = Finding(
        rule="straggler",
        headline=Message.of(headline.text, name=", ".join(name_of(one.name) for one in late)),
        severity="warning",
        category="communication",
        evidence=(
            Message.of(
                "communication not hidden: {own}, the median rank {others}, the most {most}",
                own=time(first.exposed_us),
                others=time(others_us),
                most=time(ordered[-1].exposed_us),
            ),
            why,
            Message.of(
                "computing {computing}, free {free} of a step of {step}",
                computing=time(first.computing_us),
                free=time(first.free_us),
                step=time(first.total_us),
            ),
            *told,
        ),
        advice=advice,
        ranks=tuple(one.rank for one in late if one.rank is not None),
    )
    yield Found(wait_us / step_us, finding)


def _host_bound(ranks: list[Rank]) -> Iterator[Found]:
    """Free time that preparing does not explain.  A step trace cannot tell the host from the data."""
    least = min(ranks, key=lambda one: one.free_us / one.total_us)
    share = least.free_us / least.total_us
    if share < FREE_SHARE or least.preparing_us >= EXPLAINS * least.free_us:
        return
    finding = Finding(
        rule="host_bound",
        headline=Message.of(
            "host-bound, likely: the device is free {share} of the step", share=percent(share)
        )
        if len(ranks) == 1
        else Message.of(
            "host-bound, likely: each of {n} devices is free at least {share} of its step",
            n=len(ranks),
            share=percent(share),
        ),
        severity="warning",
        evidence=(_parts(least), _NOT_TOLD),
        advice=(_LAUNCH, _SYNCS),
    )
    yield Found(share, finding)


def _exposed(ranks: list[Rank]) -> Iterator[Found]:
    least = min(ranks, key=lambda one: one.exposed_us / one.total_us)
    share = least.exposed_us / least.total_us
    if share < EXPOSED_SHARE:
        return
    finding = Finding(
        rule="communication_bound",
        headline=Message.of(
            "communication-bound: {share} of the step is communication that nothing hides",
            share=percent(share),
        )
        if len(ranks) == 1
        else Message.of(
            "communication-bound: at least {share} of each rank's step is communication that nothing hides",
            share=percent(share),
        ),
        severity="warning",
        category="communication",
        evidence=(_parts(least),),
        advice=(
            Message(
                "let it run beside computing: gradient buckets, prefetch of shards, another order of streams"
            ),
            Message("send less: larger micro-batches, fewer steps of synchronising, a narrower type"),
            _COMPARE_RANKS,
        ),
    )
    yield Found(share, finding)


def _bubbles(ranks: list[Rank]) -> Iterator[Found]:
    most = max(ranks, key=lambda one: one.bubble_us / one.total_us)
    share = most.bubble_us / most.total_us
    if share < BUBBLE_SHARE:
        return
    finding = Finding(
        rule="bubble",
        headline=Message.of("pipeline bubbles take {share} of the step", share=percent(share)),
        severity="warning" if share >= BUBBLE_WARNING else "info",
        category="communication",
        evidence=(
            Message.of("{bubble} of a step of {step}", bubble=time(most.bubble_us), step=time(most.total_us)),
        ),
        advice=(
            Message("more micro-batches, interleaved stages, or layers spread so that stages take as long"),
        ),
        ranks=() if most.rank is None or len(ranks) == 1 else (most.rank,),
    )
    yield Found(share, finding)


def _preparing(ranks: list[Rank]) -> Iterator[Found]:
    most = max(ranks, key=lambda one: one.preparing_us / one.total_us)
    share = most.preparing_us / (most.total_us + most.preparing_us)
    if share < PREPARING_SHARE:
        return
    finding = Finding(
        rule="preparing",
        headline=Message.of(
            "the first operator of a step comes {time} late: preparing takes {share}",
            time=time(most.preparing_us),
            share=percent(share),
        ),
        severity="warning",
        evidence=(_parts(most),),
        advice=(
            Message("load data beside the step: more workers of the DataLoader, prefetch, pinned memory"),
            Message("move logging and checkpoints off the path between two steps"),
        ),
        ranks=() if most.rank is None or len(ranks) == 1 else (most.rank,),
    )
    yield Found(share, finding)


def _parts(one: Rank) -> Message:
    return Message.of(
        "computing {computing}, communication not hidden {exposed}, free {free} of {step}",
        computing=percent(one.computing_us / one.total_us),
        exposed=percent((one.exposed_us + one.bubble_us) / one.total_us),
        free=percent(one.free_us / one.total_us),
        step=time(one.total_us),
    )
