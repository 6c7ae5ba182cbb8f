"""What the memory plugin knows at one moment: the collector makes it, the pane draws it."""

from __future__ import annotations

import dataclasses
from typing import Literal

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message
from ascend_tui.series import Curve

VerdictKind = Literal[
    "steady",
    "leak",
    "cache",
    "fragmentation",
    "buffer_growth",
    "external",
    "host_leak",
    "capacity",
    "undecided",
]


@frozen
class MemoryValues:
    """One reading in bytes; None is "this device cannot tell".

    `device_used_bytes` counts everybody on the card and is of the last step, because only the training's
    own thread may ask the driver; `rss_bytes` is the host memory of the process.
    """

    allocated_bytes: int | None = None
    active_bytes: int | None = None
    reserved_bytes: int | None = None
    device_used_bytes: int | None = None
    device_total_bytes: int | None = None
    rss_bytes: int | None = None


@frozen
class Verdict:
    """The diagnosis in the words of the house; `confidence` is 0 to 1."""

    kind: VerdictKind
    confidence: float
    since_step: int | None
    reason: Message


@frozen
class MemorySnapshot:
    """The memory of one target.

    `time_curves` are over seconds of the target's monotonic clock since the first sample,
    `step_curves` over steps.  Slopes are of `lead`, the quantity that a leak shows in on this
    device: `allocated` on npu and cuda, `rss` on cpu, and `device_used` where the allocator works
    without its cache (`reuse` off) and therefore counts nothing.
    """

    state: Literal["waiting", "live", "degraded"]
    device: str
    lead: str
    current: MemoryValues
    peak: MemoryValues
    slope_bytes_per_step: float | None
    slope_bytes_per_s: float | None
    samples: int
    verdict: Verdict
    reason: Message | None = None
    reuse: Literal["on", "off", "none"] = "on"
    time_curves: tuple[Curve, ...] = dataclasses.field(default=(), metadata={"json": False})
    step_curves: tuple[Curve, ...] = dataclasses.field(default=(), metadata={"json": False})
