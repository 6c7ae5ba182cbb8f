"""op_statistic_*.csv and communication_statistic_*.csv: operators that were added up by the profiler."""

from __future__ import annotations

from pathlib import Path

from ascend_tui.plugin import Message

from ..snapshot import ProfileResult
from .columns import count, number, time_us, word
from .groups import NAME, Groups
from .reader import Reader, head_of

WHOLE = 0.98
"""Of the ratios, what they add up to at least where no row is missing: they are rounded."""


def is_statistic(head: str, name: str) -> bool:
    """Tell whether a text begins like op_statistic_*.csv."""
    return head_of(head).has("op type", "count", "total time")


def read_statistic(path: Path) -> ProfileResult:
    """Return the operators by type.  Raises OSError."""
    reader = Reader(path)
    header = reader.header
    type_at, core_at, count_at = header.at("op type"), header.at("core type"), header.at("count")
    total_at, ratio_at = header.at("total time"), header.at("ratio")
    min_at, max_at = header.at("min time"), header.at("max time")
    apart = [at for at in (header.at("device id"), header.at("model name")) if at >= 0]
    groups = Groups()
    tables: dict[tuple[str, ...], list[float]] = {}

    def time(cells: list[str], at: int) -> float | None:
        return time_us(cells[at], header.scales[at]) if at >= 0 else None

    def take(cells: list[str]) -> bool:
        name, us, calls = word(cells[type_at])[:NAME], time(cells, total_at), count(cells[count_at])
        if not name or us is None or calls is None:
            return False
        group = groups.of(name)
        group.add(us, calls, word(cells[core_at])[:NAME] if core_at >= 0 else "")
        group.spread(time(cells, min_at), time(cells, max_at))
        key = tuple(cells[at][:NAME] for at in apart)
        sums = tables.setdefault(key if len(tables) < 1000 else (), [0.0, 0.0, 0.0, 0.0])
        ratio = number(cells[ratio_at]) if ratio_at >= 0 else None
        sums[0] += us
        if ratio is not None and 0 < ratio <= 100:
            sums[1] += us
            sums[2] += ratio / 100
        sums[3] += ratio is None
        return True

    reader.rows(take)
    listed = sum(sums[0] for sums in tables.values())
    whole = sum(_whole_us(*sums) for sums in tables.values())
    notes = []
    if whole > listed > 0:
        notes.append(
            Message.of(
                "By their own column Ratio the rows make up {share} %: others are missing, and shares are of "
                "all {time_us} us",
                share=round(100 * listed / whole, 1),
                time_us=round(whole, 1),
            )
        )
    elif ratio_at < 0 and listed > 0:
        notes.append(
            Message.of("There is no column Ratio: shares are of the {count} rows here", count=reader.read)
        )
    return groups.result("op_statistic", reader, notes, total_us=whole)


def _whole_us(listed_us: float, with_ratio_us: float, ratios: float, without: float) -> float:
    """Return the time of a profile of which a part is listed, told by the ratios of that part."""
    if ratios <= 0 or without or ratios >= WHOLE:
        return listed_us
    return max(listed_us, with_ratio_us / ratios)
