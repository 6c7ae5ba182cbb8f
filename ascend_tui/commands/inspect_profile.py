"""A profile in text: the rows with most time, the steps, the device, and what changed since a baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ascend_tui.text import clean, fit, width

SHOWN = 15
"""Rows of a table that text mode shows; --json has all."""
CHANGES = 10
NAME = 48
LEAST = 0.005
"""Of the time of a table: a change under it is not worth a line."""

Columns = Sequence[Sequence[str]]


def table(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the first rows of a profile, with what they take together."""
    rows = _objects(result.get("rows"))
    if not rows:
        return
    if not any(_number(row.get("self_time_us")) for row in rows):
        # A table of a kernel's blocks knows no time.
        yield from (f"{_name(row)}: {_units(row)}" for row in rows[:SHOWN])
        return
    clock = "device" if result.get("clock") == "device" else "host"
    many = "s" if len(rows) > 1 else ""
    yield f"{len(rows)} row{many}, {_time(result.get('total_time_us'))} of {clock} time in all"
    lines = [("operator", "kind", "time", "share", "sum", "calls", "average")]
    for row in rows[:SHOWN]:
        calls = _number(row.get("calls"))
        lines.append(
            (
                _name(row),
                str(row.get("kind", "")),
                _time(row.get("self_time_us")),
                _share(row.get("share")),
                _share(row.get("cumulative_share")),
                f"{calls:,.0f}" if calls else "-",
                _time(row.get("avg_us")) if calls else "-",
            )
        )
    yield from _columns(lines)
    dropped = _number(result.get("rows_dropped")) or 0
    if len(rows) > SHOWN or dropped:
        yield f"and {len(rows) - min(SHOWN, len(rows)) + dropped:,.0f} more (--json has {len(rows):,})"
    for row in rows[:3]:
        units = _units(row)
        if units:
            yield f"{_name(row)}: {units}"


def steps(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the steps of a step trace."""
    found = _objects(result.get("steps"))
    if not found:
        return
    split = any(step.get("computing_share") is not None for step in found)
    heads = ("computing", "communication", "free") if split else ()
    lines: list[Sequence[str]] = [("step", "time", *heads)]
    for step in found[:SHOWN]:
        parts = [
            f"{_time(step.get(f'{key}_us'))} {_share(step.get(f'{key}_share'))}"
            for key in ("computing", "communication_not_overlapped", "free")
        ]
        lines.append((str(step.get("name", "")), _time(step.get("total_us")), *(parts if split else ())))
    yield from _columns(lines)
    if split:
        yield "communication is what no computing hides; free is neither"
    if len(found) > SHOWN:
        yield f"and {len(found) - SHOWN:,} more (--json has all)"


def phases(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of the steps in one line."""
    found = _objects(result.get("phases"))
    if found:
        parts = [f"{one.get('name')} {_time(one.get('time_us'))} {_share(one.get('share'))}" for one in found]
        yield "steps: " + ", ".join(parts)


def device(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield how the device spent its time."""
    use = result.get("device")
    if not isinstance(use, Mapping):
        return
    talk = _number(use.get("communication_us"))
    yield (
        f"device: busy {_time(use.get('busy_us'))}, idle {_time(use.get('idle_us'))}"
        f" ({_share(use.get('idle_share'))}), longest idle {_time(use.get('longest_idle_us'))}"
        + (f", communication {_time(talk)}" if talk else "")
    )


def links(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the transports of a communication profile."""
    found = _objects(result.get("links"))
    for one in found[:SHOWN]:
        parts = []
        for key, words in (
            ("size_mb", "{:,.1f} MB"),
            ("time_ms", "transit {:,.3f} ms"),
            ("bandwidth_gb_s", "{:,.2f} GB/s"),
            ("wait_ms", "waiting {:,.3f} ms"),
        ):
            value = _number(one.get(key))
            if value is not None:
                parts.append(words.format(value))
        yield f"{one.get('name')}: {', '.join(parts)}"
    if len(found) > SHOWN:
        yield f"and {len(found) - SHOWN} more links (--json has all)"


def changes(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the rows whose calls became slower or faster, those first that it costs or saves most."""
    if not result.get("baseline"):
        return
    whole = _number(result.get("total_time_us")) or 0.0
    rows = _objects(result.get("rows"))
    changed = [(row, cost) for row in rows if (cost := _cost(row)) is not None]
    changed.sort(key=lambda one: -abs(one[1]))
    told = [one for one in changed if abs(one[1]) >= LEAST * whole]
    if rows:
        yield f"changes against {result['baseline']}:" if told else _NONE
    for row, cost in told[:CHANGES]:
        change, calls = row["change"], _number(row.get("calls")) or 0.0
        yield (
            f"  {_name(row)} {100 * (float(change['avg_ratio']) - 1):+.0f} %"
            f" (avg {_brief(change['baseline_avg_us'])} -> {_brief(row.get('avg_us'))} us,"
            f" {calls:,.0f} calls, {'+' if cost > 0 else '-'}{_time(abs(cost))})"
        )
    new = [row for row in rows if row.get("change") is None and _number(row.get("self_time_us"))]
    for word, found in (("new", new), ("gone", _objects(result.get("gone")))):
        for row in found[:CHANGES]:
            time_us = _number(row.get("self_time_us")) or 0.0
            if time_us >= LEAST * whole:
                yield f"  {word}: {_name(row)} {_time(time_us)}, {_number(row.get('calls')) or 0:,.0f} calls"


_NONE = "no operator changed by more than 0.5 % of all time"


def _cost(row: Mapping[str, Any]) -> float | None:
    """Return what the change of one call makes for all calls of now, whatever number the baseline had."""
    change, calls, now = row.get("change"), _number(row.get("calls")), _number(row.get("avg_us"))
    if not isinstance(change, Mapping) or not calls or now is None:
        return None
    before, ratio = _number(change.get("baseline_avg_us")), _number(change.get("avg_ratio"))
    return None if before is None or ratio is None else (now - before) * calls


def _units(row: Mapping[str, Any]) -> str:
    units = row.get("units")
    if not isinstance(units, Mapping):
        return ""
    parts = [
        f"{key.partition('_')[0]} {_share(value)}"
        for key in ("cube_ratio", "vector_ratio", "scalar_ratio", "mte1_ratio", "mte2_ratio", "mte3_ratio")
        if (value := _number(units.get(key))) is not None
    ]
    bound = units.get("bound")
    return ", ".join(parts) + (f": bound by {bound}" if bound and parts else "")


def _columns(lines: Columns) -> Iterator[str]:
    """Yield lines in columns, the first to the left and the others to the right."""
    cells = [[clean(cell) for cell in line] for line in lines]
    widths = [max(width(line[at]) for line in cells) for at in range(len(cells[0]))]
    for line in cells:
        first = line[0] + " " * (widths[0] - width(line[0]))
        yield "  ".join(
            [first, *(" " * (room - width(cell)) + cell for cell, room in zip(line[1:], widths[1:]))]
        )


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _name(row: Mapping[str, Any]) -> str:
    level = f" ({row['level']})" if row.get("level") else ""
    return fit(clean(str(row.get("name", ""))), NAME) + level


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _share(value: object) -> str:
    number = _number(value)
    return "-" if number is None else f"{100 * number:.1f} %"


def _time(value: object) -> str:
    number = _number(value)
    if number is None:
        return "-"
    for limit, unit in ((1e6, "s"), (1e3, "ms")):
        if number >= limit:
            return f"{number / limit:,.2f} {unit}"
    return f"{number:,.1f} us"


def _brief(value: object) -> str:
    number = _number(value)
    return "-" if number is None else f"{number:,.1f}"
