"""What is known beside the series, and when the memory is used up."""

from __future__ import annotations

from ascend_tui.frozen import frozen

from .snapshot import Forecast, MemoryValues
from .trend import Shape

OF_HOST = ("rss", "workers", "pinned")


@frozen
class Facts:
    """What is known beside the series.

    `lead` is the quantity a leak shows in.  `trimmed_for` tells for how many axis units the allocator's reuse
    has been off, `returned_bytes` what that gave back; `blind` that it is off since the launch.  `unit_s` is
    the time of an axis unit, `unit_range_s` between which it swings.  `pinned_free_bytes` is free memory in
    segments that small blocks keep; `others` the number of other processes on the card and `others_bytes`
    what they hold.
    """

    lead: str
    now: MemoryValues = MemoryValues()
    peak: MemoryValues = MemoryValues()
    device: str = ""
    trimmed_for: float | None = None
    returned_bytes: int = 0
    blind: bool = False
    unit_s: float | None = None
    unit_range_s: tuple[float, float] | None = None
    host_free_bytes: int | None = None
    pinned_free_bytes: int | None = None
    others_bytes: int | None = None
    others: int | None = None
    of_file: bool = False


def forecast(name: str, grows: Shape, facts: Facts) -> Forecast | None:
    """Return when the memory is used up by what grows in `name`; None where the room is not known.

    On the device a leak eats the cache first: the middle counts what tensors need at most, the early end
    that nothing of the cache is given to them, the late one all of it.
    """
    room = _host_room(facts) if name in OF_HOST else _device_room(facts)
    if room is None or grows.slope <= 0 or grows.low <= 0:
        return None
    early, middle, late = room
    ahead = (middle / grows.slope, early / max(grows.high, grows.slope), late / grows.low)
    steps = [int(grows.end + one) for one in ahead]
    unit_s = facts.unit_s
    short, long = facts.unit_range_s or (unit_s, unit_s)
    seconds = [None if unit is None else one * unit for one, unit in zip(ahead, (unit_s, short, long))]
    return Forecast(name, *steps, *seconds)


def _host_room(facts: Facts) -> tuple[float, float, float] | None:
    free = facts.host_free_bytes
    return None if free is None else (free, free, free)


def _device_room(facts: Facts) -> tuple[float, float, float] | None:
    now, total = facts.now, facts.now.device_total_bytes
    used = now.device_used_bytes if now.device_used_bytes is not None else now.reserved_bytes
    if total is None or used is None:
        return None
    early = max(0, total - used)
    peak = facts.peak.allocated_bytes
    middle = early if peak is None else max(early, total - peak - (now.outside_bytes or 0))
    return early, middle, max(middle, early + (now.unused_bytes or 0))
