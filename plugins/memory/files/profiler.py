"""What torch_npu's profiler writes of memory: `memory_record.csv` and `operator_memory.csv`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from ascend_tui.frozen import frozen

from .columns import number
from .lines import cells

MIB = 1 << 20
KIB = 1 << 10
MOST_GROUPS = 4096
SPREAD_BLOCKS = 8
"""Blocks of one operator and size that are still held, from which on their spread means something."""
SPREAD_SHARE = 0.8
SPREAD_GAP = 0.4

_RECORD = ("total allocated", "total reserved", "total active")


@frozen
class Reading:
    """One row of memory_record.csv: `component` is PTA, GE, APP …, `at_ns` its time stamp as an integer."""

    component: str
    at_ns: int
    values: Mapping[str, float]


@frozen
class Held:
    """Blocks of one name that were still held at the end of the file.

    `spread` tells that they were allocated all along and not at the beginning, as weights are.
    """

    name: str
    bytes: int
    count: int
    spread: bool = False
    stack: str = ""


@frozen
class Operators:
    """All of operator_memory.csv."""

    rows: int
    held: tuple[Held, ...]
    held_bytes: int
    held_count: int
    peak_bytes: int
    reserved_bytes: int
    span_s: float


def is_record(head: str) -> bool:
    """Tell whether a text begins like memory_record.csv."""
    first = _header(head)
    return first[:1] == ["component"] and any(name.startswith("total reserved") for name in first)


def is_operators(head: str) -> bool:
    """Tell whether a text begins like operator_memory.csv."""
    first = _header(head)
    return any(name.startswith("size") for name in first) and any(
        name.startswith("allocation time") for name in first
    )


def _header(head: str) -> list[str]:
    line = next((one for one in head.splitlines() if one.strip() and not one.startswith("#")), "")
    return [name.lower() for name in next(cells([line]), [])]


def nanoseconds(text: str) -> int | None:
    """Return a time stamp in microseconds as whole nanoseconds: floats would lose the last digits."""
    whole, _, part = text.strip().partition(".")
    if not (whole.isascii() and whole.isdigit() and len(whole) < 19):
        return None
    if part and not (part.isascii() and part.isdigit()):
        return None
    return int(whole) * 1000 + int(part[:3].ljust(3, "0"))


def readings(lines: Iterable[str]) -> Iterator[Reading]:
    """Yield the rows of memory_record.csv, the memory in bytes by quantity."""
    rows = _rows(lines)
    names = next(rows, [])
    places = {
        word.removeprefix("total "): at
        for at, name in enumerate(names)
        for word in _RECORD
        if name.startswith(word)
    }
    component, stamp = _place(names, "component"), _place(names, "timestamp")
    if stamp is None:
        return
    for row in rows:
        at_ns = nanoseconds(row[stamp]) if stamp < len(row) else None
        values = {
            word: value
            for word, at in places.items()
            if at < len(row) and (value := number(row[at], MIB)) is not None
        }
        if at_ns is not None and values:
            yield Reading(row[component] if component is not None else "", at_ns, values)


def operators(lines: Iterable[str]) -> Operators:
    """Return what operator_memory.csv says of blocks that were not released before its end."""
    rows = _rows(lines)
    names = next(rows, [])
    name, size = _place(names, "name"), _place(names, "size")
    begun, ended = _place(names, "allocation time"), _place(names, "release time")
    total, reserved = _place(names, "allocation total allocated"), _place(names, "allocation total reserved")
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    first: int | None = None
    last = count = peak = most = 0
    for row in rows:
        begin = nanoseconds(_cell(row, begun))
        amount = number(_cell(row, size), KIB)
        if amount is None:
            continue
        count += 1
        peak = max(peak, int(number(_cell(row, total), MIB) or 0))
        most = max(most, int(number(_cell(row, reserved), MIB) or 0))
        if begin is not None:
            first = begin if first is None else min(first, begin)
            last = max(last, begin)
        # A negative or missing time of release is how the profiler says "not yet".
        if nanoseconds(_cell(row, ended)) is None and amount > 0:
            key = (_cell(row, name), int(amount))
            if key in groups or len(groups) < MOST_GROUPS:
                groups[key].append(begin if begin is not None else -1)
    return _operators(groups, count, (first or 0, last), peak, most)


def _operators(
    groups: Mapping[tuple[str, int], list[int]], rows: int, span: tuple[int, int], peak: int, reserved: int
) -> Operators:
    by_name: dict[str, list[int]] = {}
    spread: set[str] = set()
    for (name, amount), times in groups.items():
        so_far = by_name.setdefault(name, [0, 0])
        so_far[0] += amount * len(times)
        so_far[1] += len(times)
        if is_spread(times, span):
            spread.add(name)
    held = sorted(
        (Held(name, size, count, name in spread) for name, (size, count) in by_name.items()),
        key=lambda one: -one.bytes,
    )
    return Operators(
        rows=rows,
        held=tuple(held),
        held_bytes=sum(one.bytes for one in held),
        held_count=sum(one.count for one in held),
        peak_bytes=peak,
        reserved_bytes=reserved,
        span_s=(span[1] - span[0]) / 1e9,
    )


def is_spread(times: list[int], span: tuple[int, int]) -> bool:
    """Tell whether blocks were allocated all along `span`, as kept results are and weights are not."""
    known = sorted(time for time in times if time >= 0)
    length = span[1] - span[0]
    if len(known) < SPREAD_BLOCKS or length <= 0:
        return False
    gap = max(later - one for one, later in zip(known, known[1:]))
    return known[-1] - known[0] >= SPREAD_SHARE * length and gap <= SPREAD_GAP * length


def _rows(lines: Iterable[str]) -> Iterator[list[str]]:
    rows = cells(line for line in lines if not line.startswith("#"))
    for row in rows:
        if any(row):
            yield [name.lower() for name in row]
            break
    yield from rows


def _place(names: list[str], start: str) -> int | None:
    return next((at for at, name in enumerate(names) if name.startswith(start)), None)


def _cell(row: list[str], at: int | None) -> str:
    return row[at].strip() if at is not None and at < len(row) else ""
