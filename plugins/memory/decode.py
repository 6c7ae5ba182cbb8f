"""From what probes sent to the parts of a snapshot; what does not fit is left out.

A probe speaks through a socket that others may write to, so nothing is taken on trust.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ascend_tui.plugin import Message
from ascend_tui.text import clean

from .snapshot import Block, Holders, Segment, Segments, Site, Worker

MOST_SITES = 20
MOST_SEGMENTS = 48
MOST_BLOCKS = 600
MOST_WORKERS = 64
MOST_TEXT = 500

CAUSES = {
    "graph": Message("kept with its graph: keep loss.item() or .detach() instead"),
    "list": Message("a list keeps it"),
    "hook": Message("a forward hook keeps it: remove the hook, or store .detach().cpu()"),
    "callback": Message("a callback keeps it"),
}


def number(value: Any) -> float | None:
    """Return a finite number that is not negative, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def bytes_of(data: Mapping[str, Any], field: str) -> int | None:
    """Return a field as whole bytes, else None."""
    value = number(data.get(field))
    return None if value is None else int(value)


def whole(data: Mapping[str, Any], field: str) -> int:
    """Return a field as a whole number, 0 where there is none."""
    return bytes_of(data, field) or 0


def words(value: Any) -> str:
    """Return foreign text, cut and safe to draw."""
    return clean(str(value)[:MOST_TEXT])


def objects(value: Any, most: int) -> list[Mapping[str, Any]]:
    """Return the objects of a list, at most `most`."""
    rows = value[:most] if isinstance(value, (list, tuple)) else ()
    return [one for one in rows if isinstance(one, Mapping)]


def holders(data: Mapping[str, Any]) -> Holders:
    """Return who holds what, from a `holders` record."""
    phase = data.get("phase")
    why = data.get("why")
    return Holders(
        phase=phase if phase in ("collecting", "done", "refused") else "collecting",
        how=words(data.get("how", "")),
        steps=whole(data, "steps"),
        step=whole(data, "step"),
        sites=tuple(_site(one) for one in objects(data.get("sites"), MOST_SITES)),
        others_bytes=whole(data, "others_bytes"),
        why=Message.of("{why}", why=words(why)) if why else None,
    )


def _site(data: Mapping[str, Any]) -> Site:
    file, line = words(data.get("file", "?")), whole(data, "line")
    stack = data.get("stack")
    return Site(
        name=f"{file}:{line}",
        file=file,
        line=line,
        function=words(data.get("function", "")),
        bytes_per_step=number(data.get("bytes_per_step")) or 0.0,
        live_bytes=whole(data, "live_bytes"),
        live_count=whole(data, "live_count"),
        age_steps=whole(data, "age_steps"),
        cause=CAUSES.get(str(data.get("cause"))),
        held_by=words(data.get("held_by", "")),
        stack=tuple(words(one) for one in stack[:MOST_SITES]) if isinstance(stack, list) else (),
    )


def segments(data: Mapping[str, Any]) -> Segments:
    """Return the allocator's segments, from a `segments` record."""
    left = MOST_BLOCKS
    shown = []
    for one in objects(data.get("shown"), MOST_SEGMENTS):
        raw = one.get("blocks")
        blocks = _blocks(raw[:left] if isinstance(raw, list) else [])
        left -= len(blocks)
        shown.append(
            Segment(whole(one, "total_bytes"), whole(one, "active_bytes"), whole(one, "stream"), blocks)
        )
    return Segments(
        step=whole(data, "step"),
        count=whole(data, "count"),
        reserved_bytes=whole(data, "reserved_bytes"),
        active_bytes=whole(data, "active_bytes"),
        largest_free_bytes=whole(data, "largest_free_bytes"),
        releasable_bytes=whole(data, "releasable_bytes"),
        inactive_split_bytes=whole(data, "inactive_split_bytes"),
        pinned=whole(data, "pinned"),
        pinned_bytes=whole(data, "pinned_bytes"),
        shown=tuple(shown),
    )


def _blocks(raw: Sequence[Any]) -> tuple[Block, ...]:
    found = []
    for one in raw:
        if isinstance(one, list) and len(one) == 2 and one[1] in ("active", "pending", "free"):
            size = number(one[0])
            if size is not None:
                found.append(Block(int(size), one[1]))
    return tuple(found)


def workers(data: Mapping[str, Any]) -> tuple[Worker, ...]:
    """Return the training's own processes, from a `host` record."""
    return tuple(
        Worker(whole(one, "pid"), words(one.get("name", "")), whole(one, "rss_bytes"))
        for one in objects(data.get("workers"), MOST_WORKERS)
    )
