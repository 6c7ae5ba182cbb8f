"""Dumps of msmemscope (memscope_dump_*.csv, leaks_dump_*.csv): one row per event, in no strict order.

What was in use is rebuilt from the attributes of each allocation, in the order of the time stamps; those are
whole nanoseconds and never floats, which could not tell two of them apart.
"""

from __future__ import annotations

import heapq
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from ascend_tui.frozen import frozen

from .lines import cells
from .profiler import Held, is_spread

WINDOW = 1 << 16
"""Events that are held back to put them in order: how far a row may be out of its place."""
MOST_LIVE = 1 << 20
MOST_STEPS = 1 << 16

_ATTRIBUTE = re.compile(r"(\w+)\s*:\s*(0x[0-9a-fA-F]+|\d+)")


@frozen
class Event:
    """A row: `kind` is MALLOC, FREE …, `pool` the allocator (PTA, HAL …)."""

    at_ns: int
    number: int
    kind: str
    pool: str
    name: str
    thread: str
    device: str
    address: int | None
    numbers: Mapping[str, int]
    stack: str


@frozen
class Pool:
    """One allocator on one device: what it had in use and what was left at the end of the dump."""

    device: str
    pool: str
    peak_used_bytes: int
    last_used_bytes: int
    first_used_bytes: int
    total_reserved_bytes: int
    allocations: int
    frees: int
    unmatched_frees: int
    held_bytes: int
    held_count: int
    held: tuple[Held, ...]


@frozen
class Dump:
    """All of a dump. `steps` is what each pool had in use at each mark of a step: (step, pool, bytes)."""

    events: int
    first_ns: int | None
    last_ns: int | None
    pools: tuple[Pool, ...]
    steps: tuple[tuple[int, str, int], ...]


def is_dump(head: str) -> bool:
    """Tell whether a text begins like a dump of events."""
    line = next((one for one in head.splitlines() if one.strip() and not one.startswith("#")), "")
    names = {name.lower() for name in next(cells([line]), [])}
    return {"event", "event type", "ptr", "attr"} <= names or {"event", "timestamp(ns)", "ptr"} <= names


def dump(lines: Iterable[str]) -> Dump:
    """Return what a dump says, in memory that grows with live blocks only."""
    reader = _Dump()
    for event in _in_order(_events(lines)):
        reader.take(event)
    return reader.result()


def whole(text: str) -> int | None:
    """Return an integer in decimal or with 0x, None for all else."""
    text = text.strip()
    if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text):
        return int(text, 16)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _events(lines: Iterable[str]) -> Iterator[Event]:
    names: dict[str, int] = {}
    for number, row in enumerate(cells(line for line in lines if not line.startswith("#"))):
        if not names:
            names = {re.sub(r"\s+", " ", name.lower()): at for at, name in enumerate(row)} if any(row) else {}
            continue
        found = {name: row[at] for name, at in names.items() if at < len(row)}
        stamp = next((cell for name, cell in found.items() if name.startswith("timestamp")), "")
        at_ns = whole(stamp)
        if at_ns is None:
            continue
        stacks = [cell for name, cell in found.items() if name.startswith("call stack") and cell]
        yield Event(
            at_ns=at_ns,
            number=number,
            kind=found.get("event", "").upper(),
            pool=found.get("event type", ""),
            name=_known(found.get("name", "")),
            thread=found.get("thread id", ""),
            device=found.get("device id", ""),
            address=whole(found.get("ptr", "")),
            numbers={
                key: int(value, 0)
                for key, value in _ATTRIBUTE.findall(found.get("attr", ""))[:32]
                if _fits(value)
            },
            stack=_known(stacks[0]) if stacks else "",
        )


def _fits(value: str) -> bool:
    return len(value) < 20 and (value.startswith("0x") or value == "0" or not value.startswith("0"))


def _known(text: str) -> str:
    return "" if text.strip().upper() in ("N/A", "NA", "-", "") else text.strip()


def _in_order(events: Iterable[Event]) -> Iterator[Event]:
    waiting: list[tuple[int, int, Event]] = []
    for event in events:
        heapq.heappush(waiting, (event.at_ns, event.number, event))
        if len(waiting) > WINDOW:
            yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]


class _Dump:
    def __init__(self) -> None:
        self.events = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.pools: dict[tuple[str, str], _Pool] = {}
        self.operators: dict[str, deque[str]] = {}
        self.steps: deque[tuple[int, str, int]] = deque(maxlen=MOST_STEPS)
        self.step = 0

    def take(self, event: Event) -> None:
        self.events += 1
        if self.first_ns is None:
            self.first_ns = event.at_ns
        self.last_ns = event.at_ns
        if event.kind == "OP_LAUNCH":
            running = self.operators.setdefault(event.thread, deque(maxlen=64))
            if event.pool.endswith("START"):
                running.append(event.name)
            elif running and event.pool.endswith("END"):
                running.pop()
        elif event.kind == "MSTX" and "step" in (event.name + event.pool).lower():
            self.step += 1
            for (device, kind), one in self.pools.items():
                self.steps.append((self.step, f"{kind} {device}".strip(), one.used))
        elif event.kind in ("MALLOC", "FREE") and event.address is not None:
            pool = self.pools.setdefault((event.device, event.pool), _Pool(event.device, event.pool))
            running = self.operators.get(event.thread, deque())
            if event.kind == "MALLOC":
                pool.allocate(event, event.name or (running[-1] if running else ""))
            else:
                pool.free(event)

    def result(self) -> Dump:
        pools = [one.result((self.first_ns or 0, self.last_ns or 0)) for one in self.pools.values()]
        pools.sort(key=lambda one: -one.peak_used_bytes)
        return Dump(self.events, self.first_ns, self.last_ns, tuple(pools), tuple(self.steps))


class _Pool:
    def __init__(self, device: str, pool: str) -> None:
        self.device, self.pool = device, pool
        self.used = self.peak = self.reserved = 0
        self.first: int | None = None
        self.allocations = self.frees = self.unmatched = 0
        self.live: dict[int, tuple[int, str, str, int]] = {}

    def allocate(self, event: Event, name: str) -> None:
        self.allocations += 1
        size = event.numbers.get("size", 0)
        self._use(event, size)
        if event.address is not None and len(self.live) < MOST_LIVE:
            self.live[event.address] = (size, name, event.stack, event.at_ns)

    def free(self, event: Event) -> None:
        self.frees += 1
        block = self.live.pop(event.address, None) if event.address is not None else None
        # What was allocated before the dump began is freed in it, too.
        self.unmatched += block is None
        self._use(event, -(block[0] if block else event.numbers.get("size", 0)))

    def _use(self, event: Event, change: int) -> None:
        # The allocator's own count is right also where the dump began late; without it, sizes are added.
        told = event.numbers.get("used")
        before = self.used
        self.used = told if told is not None else max(0, before + change)
        if self.first is None:
            self.first = max(0, self.used - change)
        self.peak = max(self.peak, self.used)
        self.reserved = max(self.reserved, event.numbers.get("total", 0))

    def result(self, span: tuple[int, int]) -> Pool:
        groups: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for size, name, stack, at_ns in self.live.values():
            groups.setdefault((name, stack), []).append((size, at_ns))
        held = [
            Held(
                name,
                sum(size for size, _ in blocks),
                len(blocks),
                is_spread([at for _, at in blocks], span),
                stack[:400],
            )
            for (name, stack), blocks in groups.items()
        ]
        held.sort(key=lambda one: -one.bytes)
        return Pool(
            device=self.device,
            pool=self.pool,
            peak_used_bytes=self.peak,
            last_used_bytes=self.used,
            first_used_bytes=self.first or 0,
            total_reserved_bytes=self.reserved,
            allocations=self.allocations,
            frees=self.frees,
            unmatched_frees=self.unmatched,
            held_bytes=sum(one.bytes for one in held),
            held_count=len(self.live),
            held=tuple(held),
        )
