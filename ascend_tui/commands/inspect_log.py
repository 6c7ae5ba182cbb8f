"""What `inspect` prints of a log beside its incidents: metrics, new lines, and details of each incident."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SHOWN = 8
_BYTES = "_bytes"


def read(result: Mapping[str, Any]) -> Iterator[str]:
    """Say how much was read, which metrics were followed and which lines are new."""
    if "templates" not in result:
        return
    lines, ignored = result.get("lines") or 0, result.get("ignored") or 0
    harmless = f", {ignored:,} that look alarming are harmless" if ignored else ""
    yield f"{lines:,} lines{harmless}"
    metrics = [one for one in result.get("metrics") or () if isinstance(one, Mapping)]
    yield from (_metric(one) for one in metrics[:SHOWN])
    if len(metrics) > SHOWN:
        yield f"and {len(metrics) - SHOWN} metrics more (--json has all)"
    fresh = [one for one in result.get("templates") or () if isinstance(one, Mapping) and one.get("is_new")]
    for one in fresh[:3]:
        yield f"new since line {one.get('first_line'):,}, {one.get('count'):,} times: {one.get('example')}"


def details(item: Mapping[str, Any]) -> Iterator[str]:
    """Say where an incident was, in the field's words, and the one line that matters."""
    if item.get("attribution") == "async" and item.get("place"):
        yield f"host noticed at: {item['place']} (asynchronous: not the cause)"
    elif item.get("place"):
        yield f"at: {item['place']}"
    devices = item.get("devices")
    if devices:
        yield f"device {', '.join(map(str, devices))}"
    facts = item.get("facts")
    if isinstance(facts, list) and facts:
        yield ", ".join(
            f"{one.get('name')} {one.get('value')}"
            for one in facts
            if isinstance(one, Mapping) and not str(one.get("name")).endswith(_BYTES)
        )
    by_rank = item.get("by_rank") or ()
    for rank, doing in by_rank[:SHOWN]:
        yield f"rank {rank}: {doing}"
    if item.get("line") and item.get("text"):
        yield f"line {item['line']:,}: {item['text']}"


def _metric(one: Mapping[str, Any]) -> str:
    step = "" if one.get("step") is None else f" at step {one['step']:,}"
    low, high = one.get("low"), one.get("high")
    spread = f" ({_figure(low)} … {_figure(high)})" if low is not None and high is not None else ""
    trend = "" if one.get("trend") in (None, "steady") else f", {str(one['trend']).replace('_', ' ')}"
    return f"{one.get('name')} {_figure(one.get('value'))}{step}{spread}{trend}, {one.get('count'):,} values"


def _figure(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (int, float)) else str(value)
