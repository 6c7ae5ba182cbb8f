"""api_statistic_*.csv: calls of the host by layer.  A call of one layer is also counted by those below it.

Layers are therefore never added: the one with the most time is the table, the others are told of in a note.
"""

from __future__ import annotations

from pathlib import Path

from ascend_tui.plugin import Message
from ascend_tui.text import clean

from ..snapshot import ProfileResult
from .columns import count, time_us, word
from .groups import NAME, Groups
from .reader import Reader, head_of

MOST_LEVELS = 32


def is_api(head: str, name: str) -> bool:
    """Tell whether a text begins like api_statistic_*.csv."""
    header = head_of(head)
    return header.has("api name", "time") and header.at("count", "level") >= 0


def read_api(path: Path) -> ProfileResult:
    """Return the calls of one layer.  Raises OSError."""
    reader = Reader(path)
    header = reader.header
    name_at, level_at, time_at = header.at("api name"), header.at("level"), header.at("time")
    count_at, min_at, max_at = header.at("count"), header.at("min"), header.at("max")
    levels: dict[str, Groups] = {}

    def time(cells: list[str], at: int) -> float | None:
        return time_us(cells[at], header.scales[at]) if at >= 0 else None

    def take(cells: list[str]) -> bool:
        name, us = word(cells[name_at])[:NAME], time(cells, time_at)
        calls = count(cells[count_at]) if count_at >= 0 else 0
        if not name or us is None or calls is None:
            return False
        level = word(cells[level_at])[:NAME].lower() if level_at >= 0 else ""
        if level not in levels and len(levels) >= MOST_LEVELS:
            return False
        group = levels.setdefault(level, Groups()).of(name)
        group.add(us, calls, "")
        group.spread(time(cells, min_at), time(cells, max_at))
        return True

    reader.rows(take)
    sums = {level: sum(one.us for one in groups.by_name.values()) for level, groups in levels.items()}
    chosen = max(sums, key=lambda one: sums[one], default="")
    notes = []
    for level in sorted(sums, key=lambda one: -sums[one]):
        if level != chosen:
            groups = levels[level].by_name
            most = max(groups, key=lambda one: groups[one].us)
            notes.append(
                Message.of(
                    "Not added: the layer {level}, {time_us} us in {count} APIs, most of it {name} with "
                    "{most_us} us; a call of one layer counts again in those below it, so the table is the "
                    "layer {chosen} alone",
                    level=clean(level or "N/A"),
                    time_us=round(sums[level], 3),
                    count=len(groups),
                    name=clean(most),
                    most_us=round(groups[most].us, 3),
                    chosen=clean(chosen or "N/A"),
                )
            )
    return levels.get(chosen, Groups()).result("api_statistic", reader, notes, "host", level=chosen)
