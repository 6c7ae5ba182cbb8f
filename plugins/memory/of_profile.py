"""From a profiler's or msmemscope's files to a verdict and to what was still held at their end.

A profile covers a few steps, and within a step memory rises and falls: only what is left in the valleys, one
of each cycle, can show a leak.  A profile that ends in the midst of a step holds blocks that would be freed
later, so what is held at its end is shown, and called a leak only where it was allocated all along.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message
from ascend_tui.text import byte_size

from .files.events import Dump, Pool
from .files.profiler import Held, Operators, Reading
from .of_series import Rows, Run, in_units, judge_run, of_runs
from .snapshot import Verdict

FEWEST_CYCLES = 5
DEEP = 0.02
"""Share of the whole range that a fall or a rise must have to end a cycle."""
SHOWN = 20
MOST_COMPONENTS = 16

_LONGER = Message("profile more steps, or attach to the training")
_NONE = Message("no readings in it")


@frozen
class ComponentResult:
    """The peak of one component (PTA: torch's allocator, APP: the whole process) over a profile."""

    name: str
    rows: int
    span_s: float
    cycles: int
    allocated_peak_bytes: int | None
    reserved_peak_bytes: int | None
    active_peak_bytes: int | None
    verdict: Verdict


@frozen
class RecordResult:
    """The diagnosis of memory_record.csv."""

    verdict: Verdict
    source: Literal["memory_record"]
    axis: str
    peak_bytes: int | None
    reserved_bytes: int | None
    components: tuple[ComponentResult, ...]


@frozen
class HeldResult:
    """Blocks that were allocated in a file and not freed in it, the largest sum first."""

    verdict: Verdict
    source: Literal["operator_memory", "msmemscope"]
    rows: int
    peak_used_bytes: int
    total_reserved_bytes: int
    held_bytes: int
    held_count: int
    holders: tuple[Held, ...]
    first_ns: int | None = None
    last_ns: int | None = None
    pools: tuple[Pool, ...] = ()
    slope_bytes_per_step: float | None = None
    notes: tuple[Message, ...] = ()


class Valleys:
    """Find the lowest value of each cycle: a fall and a rise of at least `deep`."""

    def __init__(self, deep: float) -> None:
        """Start before the first value."""
        self.deep = deep
        self.found: list[tuple[float, float]] = []
        self._low: tuple[float, float] | None = None
        self._high = 0.0
        self._falling = False

    def add(self, at: float, value: float) -> None:
        """Take the next value."""
        if self._low is None:
            self._low, self._high = (at, value), value
        elif self._falling:
            if value <= self._low[1]:
                self._low = (at, value)
            elif value >= self._low[1] + self.deep:
                self.found.append(self._low)
                self._falling, self._high = False, value
        elif value >= self._high:
            self._high = value
        elif value <= self._high - self.deep:
            self._falling, self._low = True, (at, value)


def judge_record(again: Callable[[], Iterable[Reading]]) -> RecordResult:
    """Return the diagnosis of the readings that `again` gives; it is called twice, because they may be many.

    The first walk learns how far each component swings, the second finds its valleys.
    """
    seen: dict[str, _Component] = {}
    for reading in again():
        if reading.component in seen or len(seen) < MOST_COMPONENTS:
            seen.setdefault(reading.component, _Component(reading.component)).learn(reading)
    for one in seen.values():
        one.prepare()
    for reading in again():
        if reading.component in seen:
            seen[reading.component].take(reading)
    results = sorted((one.result() for one in seen.values()), key=lambda one: one.name != "PTA")
    if not results:
        return RecordResult(Verdict("undecided", 0.0, None, _NONE), "memory_record", "s", None, None, ())
    runs = [Run(one.name, max(one.rows, 3), one.verdict, "allocated") for one in results]
    return RecordResult(
        verdict=of_runs(runs, "s").verdict,
        source="memory_record",
        axis="s",
        peak_bytes=results[0].allocated_peak_bytes,
        reserved_bytes=results[0].reserved_peak_bytes,
        components=tuple(results),
    )


class _Component:
    def __init__(self, name: str) -> None:
        self.name = name
        self.rows = 0
        self.first_ns = self.last_ns = 0
        self.low: dict[str, float] = {}
        self.peak: dict[str, float] = {}
        self.valleys = Valleys(0.0)
        self.lead = "allocated"
        self.first = self.last = 0.0

    def learn(self, reading: Reading) -> None:
        self.first_ns = min(self.first_ns, reading.at_ns) if self.rows else reading.at_ns
        self.last_ns = max(self.last_ns, reading.at_ns)
        self.rows += 1
        for name, value in reading.values.items():
            self.low[name] = min(self.low.get(name, value), value)
            self.peak[name] = max(self.peak.get(name, value), value)

    def prepare(self) -> None:
        self.lead = "allocated" if self.peak.get("allocated") else next(iter(self.peak))
        swing = self.peak[self.lead] - self.low[self.lead]
        self.valleys = Valleys(max(DEEP * swing, 1.0))

    def take(self, reading: Reading) -> None:
        value = reading.values.get(self.lead)
        if value is not None:
            self.valleys.add((reading.at_ns - self.first_ns) / 1e9, value)
            self.last = value

    def result(self) -> ComponentResult:
        peaks = {name: int(value) for name, value in self.peak.items()}
        return ComponentResult(
            name=self.name,
            rows=self.rows,
            span_s=(self.last_ns - self.first_ns) / 1e9,
            cycles=len(self.valleys.found),
            allocated_peak_bytes=peaks.get("allocated"),
            reserved_peak_bytes=peaks.get("reserved"),
            active_peak_bytes=peaks.get("active"),
            verdict=self._verdict(),
        )

    def _verdict(self) -> Verdict:
        found, swing = self.valleys.found, self.peak[self.lead] - self.low[self.lead]
        if swing <= 0.005 * self.peak[self.lead] and self.rows > 2:
            return Verdict("steady", 0.6, None, Message("it does not change in this profile"))
        if len(found) < FEWEST_CYCLES:
            reason = Message.of(
                "the profile holds {count} cycles of rise and fall: what a step keeps cannot be told from"
                " what it uses",
                count=len(found),
            )
            return Verdict("undecided", 0.0, None, reason, _LONGER)
        return _of_valleys(found)


def _of_valleys(found: Sequence[tuple[float, float]]) -> Verdict:
    rows = Rows()
    for at, (_, value) in enumerate(found):
        rows.add(float(at), {"allocated": value})
    verdict = in_units(judge_run("", rows, "cycle", False).verdict, "cycle")
    # Cycles are no steps, so that no step of the training can be named.
    return dataclasses.replace(verdict, confidence=min(verdict.confidence, 0.7), since_step=None)


def judge_operators(found: Operators) -> HeldResult:
    """Return who holds what at the end of operator_memory.csv."""
    return HeldResult(
        verdict=_held(found.held, found.held_bytes, found.held_count),
        source="operator_memory",
        rows=found.rows,
        peak_used_bytes=found.peak_bytes,
        total_reserved_bytes=found.reserved_bytes,
        held_bytes=found.held_bytes,
        held_count=found.held_count,
        holders=found.held[:SHOWN],
    )


def judge_dump(found: Dump) -> HeldResult:
    """Return what a dump of events had in use, and what it left."""
    held = sorted((one for pool in found.pools for one in pool.held), key=lambda one: -one.bytes)
    held_bytes, held_count = sum(one.bytes for one in held), sum(pool.held_count for pool in found.pools)
    allocations = sum(pool.allocations for pool in found.pools)
    unmatched = sum(pool.unmatched_frees for pool in found.pools)
    notes = []
    if unmatched:
        notes.append(Message.of("{count} blocks freed in it were allocated before it began", count=unmatched))
    verdict, slope = _held(held, held_bytes, held_count), None
    if not found.pools:
        verdict = Verdict("undecided", 0.0, None, Message("no allocation in it"))
    elif not held_count and allocations:
        reason = Message.of(
            "every one of {count} blocks that were allocated in it was freed in it", count=allocations
        )
        verdict = Verdict("steady", 0.6, None, reason)
    stepped = _of_steps(found)
    if stepped is not None and stepped.verdict.kind != "undecided":
        verdict, slope = stepped.verdict, stepped.slope_bytes_per_step
    first = found.pools[0] if found.pools else None
    return HeldResult(
        verdict=verdict,
        source="msmemscope",
        rows=found.events,
        peak_used_bytes=first.peak_used_bytes if first else 0,
        total_reserved_bytes=first.total_reserved_bytes if first else 0,
        held_bytes=held_bytes,
        held_count=held_count,
        holders=tuple(held[:SHOWN]),
        first_ns=found.first_ns,
        last_ns=found.last_ns,
        pools=tuple(dataclasses.replace(pool, held=pool.held[:SHOWN]) for pool in found.pools[:SHOWN]),
        slope_bytes_per_step=slope,
        notes=tuple(notes),
    )


def _of_steps(found: Dump) -> Run | None:
    """Return the diagnosis of what was in use at the marks of steps, where the dump holds enough of them."""
    by_pool: dict[str, Rows] = {}
    for step, pool, used in found.steps:
        by_pool.setdefault(pool, Rows()).add(float(step), {"allocated": float(used)})
    judged = [
        judge_run(name, rows, "step", False) for name, rows in by_pool.items() if rows.count >= FEWEST_CYCLES
    ]
    if not judged:
        return None
    worst = of_runs(judged, "step")
    return next(run for run in judged if run.verdict is worst.verdict)


def _held(held: Sequence[Held], held_bytes: int, held_count: int) -> Verdict:
    spread = next((one for one in held if one.spread), None)
    if spread is not None:
        reason = Message.of(
            "{count} blocks of {name}, {size} in all, were allocated all along and are still held at the end",
            count=spread.count,
            name=spread.name or "one size",
            size=byte_size(spread.bytes),
        )
        return Verdict("leak", 0.5, None, reason, _LONGER)
    if not held_count:
        return Verdict("steady", 0.6, None, Message("everything that was allocated in it was freed in it"))
    reason = Message.of(
        "{size} in {count} blocks are held at the end; a file that ends in the midst of a run does not tell"
        " whether they are freed later",
        size=byte_size(held_bytes),
        count=held_count,
    )
    return Verdict("undecided", 0.0, None, reason, _LONGER)
