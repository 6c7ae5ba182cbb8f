"""The past of a run in bounded memory, so that a monitor that comes back gets it.

Records are kept as the JSON text that goes over the socket.  Each kind of record has a ladder of
rings: the first ring holds the newest records, each further one the lowest and the highest of
every four of the ring before.  A rung is half as fine and twice as long as the one below it, and
no peak is lost on the way up.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Tuple

from ..wire import plain

RING = 256
RING_BYTES = 256 << 10
"""A ring of large records is shorter."""
MOST_RECORD_BYTES = 128 << 10
MOST_KINDS = 64
RUNGS = 18
"""18 rungs of 256 cover 256 * 2**17 samples: 38 days at 10 Hz, in about 1 MB."""


class Entry:
    """One record: its number, the value it is ranked by, and its JSON text."""

    __slots__ = ("key", "seq", "text")

    def __init__(self, seq: int, key: Optional[float], text: bytes) -> None:
        self.seq = seq
        self.key = key
        self.text = text


class Ladder:
    """The rings of one kind of record; a kind without a ranking number has only the first."""

    def __init__(self, ranked: bool) -> None:
        self.rungs: List[Deque[Entry]] = [deque() for _ in range(RUNGS if ranked else 1)]
        self._bytes = [0 for _ in self.rungs]
        self._groups: List[List[Entry]] = [[] for _ in self.rungs]

    def add(self, entry: Entry) -> None:
        """Take one record; every fourth moves two up."""
        level = 0
        climbing = [entry]
        while climbing and level < len(self.rungs):
            group = self._groups[level]
            upward: List[Entry] = []
            for one in climbing:
                self._keep(level, one)
                group.append(one)
                if len(group) == 4:
                    upward += _extremes(group)
                    del group[:]
            climbing = upward
            level += 1

    def _keep(self, level: int, entry: Entry) -> None:
        rung = self.rungs[level]
        self._bytes[level] += len(entry.text)
        rung.append(entry)
        while len(rung) > RING or (self._bytes[level] > RING_BYTES and len(rung) > 1):
            self._bytes[level] -= len(rung.popleft().text)

    def since(self, after: int) -> List[Entry]:
        """Return what is known after record number `after`, in order, each part at its finest."""
        found: List[Entry] = []
        before: Optional[int] = None
        for rung in self.rungs:
            if not rung:
                break
            part = [one for one in rung if one.seq > after and (before is None or one.seq < before)]
            found = part + found
            before = rung[0].seq if before is None else min(before, rung[0].seq)
            if before <= after:
                break
        return found


def _extremes(group: List[Entry]) -> List[Entry]:
    ranked = [one for one in group if one.key is not None] or group
    low = min(ranked, key=_rank)
    high = max(ranked, key=_rank)
    if low is high:
        high = group[-1] if low is not group[-1] else group[0]
    return [low, high] if low.seq < high.seq else [high, low]


def _rank(entry: Entry) -> float:
    return entry.key if entry.key is not None else 0.0


def _dumps(record: Dict[str, Any]) -> bytes:
    try:
        return json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError):
        return json.dumps(plain(record), allow_nan=False, separators=(",", ":")).encode()


class History:
    """Number records, keep them and hand them out.  Used by the shim's own thread only."""

    def __init__(self) -> None:
        self.last_seq = 0
        self._ladders: Dict[Tuple[str, str], Ladder] = {}

    def add(
        self,
        plugin: str,
        kind: str,
        step: int,
        wall: float,
        mono: float,
        data: Dict[str, Any],
        key: Optional[str],
    ) -> bytes:
        """Keep one record and return its JSON text.

        `key` names the number that ranks it, or several, of which the first that is there counts.

        Raises what the data raise when they are no JSON object or are changed while they are read.
        """
        if not isinstance(data, dict):
            raise TypeError("a record is an object, not %s" % type(data).__name__)
        value = next((data[name] for name in (key or "").split() if name in data), None)
        record = {
            "seq": self.last_seq + 1,
            "plugin": plugin,
            "kind": kind,
            "step": step,
            "wall": wall,
            "mono": mono,
            "data": data,
        }
        text = _dumps(record)
        if len(text) > MOST_RECORD_BYTES:
            record["data"] = {"too_large_bytes": len(text)}
            text = _dumps(record)
        self.last_seq += 1
        ladder = self._ladders.get((plugin, kind))
        if ladder is None:
            if len(self._ladders) >= MOST_KINDS:
                del self._ladders[next(iter(self._ladders))]
            ladder = self._ladders[plugin, kind] = Ladder(ranked=key is not None)
        # NaN is no rank: nothing is lower or higher.
        rank = value if isinstance(value, (int, float)) and value == value else None
        ladder.add(Entry(self.last_seq, rank, text))
        return text

    def since(self, after: int) -> List[bytes]:
        """Return the kept records after number `after`, oldest first."""
        entries: List[Entry] = []
        for ladder in self._ladders.values():
            entries += ladder.since(after)
        entries.sort(key=lambda entry: entry.seq)
        return [entry.text for entry in entries]
