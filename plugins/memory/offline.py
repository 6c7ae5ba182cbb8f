"""The verdict of series that somebody wrote to a file: the same statistics, from a few rounded rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .forecast import Facts
from .snapshot import MemoryValues
from .trend import Track
from .verdict import Diagnosis, judge

LEADS = ("allocated", "active", "device_used", "reserved", "rss", "workers", "pinned", "outside")
"""The quantity a leak shows in, the best first."""
FIELDS = {
    "allocated": "allocated_bytes",
    "active": "active_bytes",
    "reserved": "reserved_bytes",
    "device_used": "device_used_bytes",
    "rss": "rss_bytes",
    "workers": "workers_rss_bytes",
    "pinned": "pinned_bytes",
    "inactive_split": "inactive_split_bytes",
}


def judge_columns(
    columns: Mapping[str, Sequence[tuple[float, float | None]]],
    *,
    total_bytes: int | None = None,
    unit_s: float | None = None,
) -> Diagnosis:
    """Return the diagnosis of one run.

    `columns` are by quantity (LEADS, and `segment` for the size of one segment), each a list of (axis value,
    bytes), with None for a blank, in order of the axis.  `total_bytes` is the size of the card and `unit_s`
    the seconds of one unit of the axis, where the file tells them.
    """
    rows = {
        ("reserved" if name == "segment" else name): [
            (at, value) for at, value in column if value is not None
        ]
        for name, column in columns.items()
    }
    tracks = {name: _track(column) for name, column in rows.items() if column}
    lead = next((name for name in LEADS if name in tracks), "allocated")
    now = {FIELDS[name]: int(column[-1][1]) for name, column in rows.items() if name in FIELDS and column}
    peak = {
        FIELDS[name]: int(max(value for _, value in column))
        for name, column in rows.items()
        if name in FIELDS and column
    }
    now.update(_widest_gap(columns))
    pinned = None
    if "segment" in columns and "reserved_bytes" in now and "allocated_bytes" in now:
        # The file is about one segment that something keeps: what is free in it cannot be given back.
        pinned = now["reserved_bytes"] - now["allocated_bytes"] if now["allocated_bytes"] else None
    facts = Facts(
        lead=lead,
        now=MemoryValues(**now, device_total_bytes=total_bytes),
        peak=MemoryValues(**peak),
        unit_s=unit_s,
        pinned_free_bytes=pinned,
        of_file=True,
    )
    return judge(tracks, facts)


def _track(column: Sequence[tuple[float, float]]) -> Track:
    track = Track()
    for at, value in column:
        track.add(at, value)
    return track


def _widest_gap(columns: Mapping[str, Sequence[tuple[float, float | None]]]) -> dict[str, int]:
    """Return reserved and allocated of the row where they are farthest apart while something is reserved."""
    segment = "segment" in columns
    reserved = dict(columns.get("segment" if segment else "reserved", ()))
    rows = [
        (held, used)
        for at, used in columns.get("allocated", ())
        if used is not None and (held := reserved.get(at)) is not None
    ]
    # A segment is judged while something lives in it.
    rows = [row for row in rows if row[1] > 0] if segment else rows
    if not rows:
        return {}
    held, used = max(rows, key=lambda row: row[0] - row[1])
    return {"reserved_bytes": int(held), "allocated_bytes": int(used)}
