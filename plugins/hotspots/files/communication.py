"""What the profiler says of collectives: `communication.json`, and `communication_matrix.json` of each link.

torch_npu writes step -> p2p or collective -> operator, msprof the operators alone; both are read, one
operator at a time.  An operator's time is waiting for the other ranks, transit, and the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ascend_tui.plugin import Message

from ..kinds import stem
from ..ranking import ranked
from ..snapshot import Link, ProfileResult, Row
from .json_stream import BrokenJson, JsonStream, number, opened

TIMES, BANDWIDTHS = "Communication Time Info", "Communication Bandwidth Info"
TRANSPORT, SIZE, TRANSIT, WAIT, ELAPSE = (
    "Transport Type",
    "Transit Size(MB)",
    "Transit Time(ms)",
    "Wait Time(ms)",
    "Elapse Time(ms)",
)
TOTAL = "Total Op Info"
DEEPEST = 6
MOST_LINKS = 64
MOST_NAMES = 10_000

_LEAVES = frozenset(
    (TIMES, BANDWIDTHS, TRANSPORT, SIZE, TRANSIT, "Op Name", "Bandwidth(GB/s)", "Large Packet Ratio")
)
_PICKED = re.compile(r"-(top|middle|bottom)\d*$")
_SUMMED = re.compile(r"-total$")
_P2P = re.compile(r"send|receive|recv", re.I)
_STEP = re.compile(r"step\d*$", re.I)

_WAITING = Message("{wait:.3f} of {whole:.3f} ms of collectives was waiting for other ranks ({share:.1f} %)")
_BOTH = Message("SDMA is the sum of the other transports inside a server, such as HCCS: do not add them")
_AT_LEAST = Message(
    "the file has the times of links only: a collective took at least as long as its slowest link"
)
_CUT = Message("the file ends too early: the {n} operators before that are counted")
_LINKS = Message("only the {n} links with the longest times are shown")


class _Sums:
    """What is added up over the operators."""

    def __init__(self) -> None:
        self.rows: dict[str, list[float]] = {}
        self.links: dict[str, list[float]] = {}
        self.waits: dict[str, list[float]] = {}
        self.pairs: dict[str, dict[str, float]] = {}
        self.calls: dict[str, int] = {}
        self.read = self.skipped = 0


def is_communication(head: str, name: str) -> bool:
    """Tell whether a text begins like one of the two files."""
    if head.lstrip()[:1] != "{":
        return False
    return (f'"{TIMES}"' in head and f'"{ELAPSE}"' in head) or (
        f'"{TRANSPORT}"' in head and f'"{TRANSIT}"' in head
    )


def read_communication(path: Path) -> ProfileResult:
    """Return the collectives of a file by name, and its transports.

    Raises OSError, and ValueError where it holds no operator.
    """
    sums, notes, matrix = _Sums(), [], False
    with opened(path) as stream:
        try:
            for where, item in _leaves(stream, ()):
                if TOTAL in where:
                    continue
                if TIMES in item or BANDWIDTHS in item:
                    _operator(sums, where, item)
                else:
                    matrix = _link(sums, where, item) or matrix
        except BrokenJson:
            notes.append(Message.of(_CUT.text, n=sums.read))
    if not sums.read:
        raise ValueError("no collective with its times in it")
    if sums.pairs and not sums.rows:
        notes.append(_AT_LEAST)
    rows, dropped = ranked(_rows(sums))
    links, more = _links(sums)
    if "SDMA" in sums.links and len(sums.links) > 1 and not matrix:
        notes.append(_BOTH)
    if more:
        notes.append(Message.of(_LINKS.text, n=MOST_LINKS))
    notes += _waited(sums)
    return ProfileResult(
        format="communication_matrix" if matrix else "communication",
        rows=rows,
        rows_dropped=dropped,
        total_time_us=sum(row.self_time_us for row in rows),
        read=sums.read,
        skipped=sums.skipped,
        links=links,
        files=(path.name,),
        notes=tuple(notes),
    )


def _leaves(stream: JsonStream, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield the objects that hold numbers, each with the names that lead to it."""
    leaf: dict[str, Any] = {}
    for key in stream.members():
        if leaf or key in _LEAVES:
            leaf[key] = stream.value()
        elif stream.peek() == "{" and len(where) < DEEPEST:
            yield from _leaves(stream, (*where, key))
        else:
            stream.value()
    if leaf:
        yield where, leaf


def _operator(sums: _Sums, where: tuple[str, ...], item: Mapping[str, Any]) -> None:
    times, bandwidths = item.get(TIMES), item.get(BANDWIDTHS)
    elapse = number(times.get(ELAPSE)) if isinstance(times, dict) else None
    if not where or not isinstance(times, dict) or elapse is None or elapse < 0:
        sums.skipped += 1
        return
    sums.read += 1
    wait, transit = number(times.get(WAIT)) or 0.0, number(times.get(TRANSIT)) or 0.0
    name = _name(where[-1])
    row = sums.rows.setdefault(name, [0, 0.0, elapse, elapse, 0.0]) if len(sums.rows) < MOST_NAMES else None
    if row is not None:
        row[0] += 1
        row[1] += elapse
        row[2], row[3] = min(row[2], elapse), max(row[3], elapse)
        row[4] += wait
    group = sums.waits.setdefault("p2p" if _P2P.search(name) else "collective", [0.0, 0.0])
    group[0] += wait
    group[1] += transit
    if isinstance(bandwidths, dict):
        for transport, found in bandwidths.items():
            if isinstance(found, dict):
                _add_link(sums, str(transport)[:64], found)


def _link(sums: _Sums, where: tuple[str, ...], item: Mapping[str, Any]) -> bool:
    """Add one link of a matrix; True when it is one that counts."""
    if len(where) < 2 or number(item.get(TRANSIT)) is None:
        sums.skipped += 1
        return False
    name, pair = where[-2].partition("@")[0], where[-1][:64]
    # torch_npu picks some operators of a kind and adds their sum: only that counts.
    if _PICKED.search(name):
        return True
    transport = str(item.get(TRANSPORT) or "unknown")[:64]
    sums.read += 1
    _add_link(sums, transport, item)
    _add_link(sums, f"{transport} {pair}", item)
    key = _name(_SUMMED.sub("", name))
    if key in sums.pairs or len(sums.pairs) < MOST_NAMES:
        of = sums.pairs.setdefault(key, {})
        if pair in of or len(of) < MOST_NAMES:
            of[pair] = of.get(pair, 0.0) + (number(item.get(TRANSIT)) or 0.0)
    if not _SUMMED.search(name):
        sums.calls[key] = sums.calls.get(key, 0) + (pair == next(iter(sums.pairs.get(key, {pair: 0.0}))))
    return True


def _add_link(sums: _Sums, name: str, found: Mapping[str, Any]) -> None:
    size, transit = number(found.get(SIZE)) or 0.0, number(found.get(TRANSIT)) or 0.0
    if (size <= 0 and transit <= 0) or (name not in sums.links and len(sums.links) >= MOST_NAMES):
        return
    link = sums.links.setdefault(name, [0.0, 0.0])
    link[0] += size
    link[1] += transit


def _rows(sums: _Sums) -> list[Row]:
    rows = [
        _row(name, count, whole * 1000, least * 1000, most * 1000, wait * 1000)
        for name, (count, whole, least, most, wait) in sums.rows.items()
    ]
    for name, pairs in sums.pairs.items():
        if name not in sums.rows:
            rows.append(_row(name, sums.calls.get(name, 0), max(pairs.values()) * 1000, None, None, None))
    return rows


def _row(
    name: str, calls: float, time_us: float, least: float | None, most: float | None, wait: float | None
) -> Row:
    return Row(
        name=name,
        kind="communication",
        self_time_us=time_us,
        share=0.0,
        cumulative_share=0.0,
        calls=int(calls),
        min_us=least,
        max_us=most,
        wait_us=wait,
        core="HCCL",
    )


def _links(sums: _Sums) -> tuple[tuple[Link, ...], int]:
    found = [
        Link(name, size_mb=size, time_ms=transit, bandwidth_gb_s=size / transit if transit > 0 else None)
        for name, (size, transit) in sums.links.items()
    ]
    # Transports first, then the pairs of ranks that took longest.
    found.sort(key=lambda one: (" " in one.name, -(one.time_ms or 0.0), one.name))
    kept = found[:MOST_LINKS]
    groups = [
        Link(name, time_ms=transit, wait_ms=wait) for name, (wait, transit) in sorted(sums.waits.items())
    ]
    return (*kept, *groups), len(found) - len(kept)


def _waited(sums: _Sums) -> list[Message]:
    wait = sum(one[0] for one in sums.waits.values())
    whole = wait + sum(one[1] for one in sums.waits.values())
    if whole <= 0:
        return []
    return [Message.of(_WAITING.text, share=100 * wait / whole, wait=wait, whole=whole)]


def _name(text: str) -> str:
    return stem(text.partition("@")[0])[:200]
