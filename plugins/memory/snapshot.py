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
    own thread may ask the driver; `inactive_split_bytes` are free parts of segments that are in use, which
    no `empty_cache` can give back; `rss_bytes` is the host memory of the process, `workers_rss_bytes` that of
    the processes it started, together; `pinned_bytes` is page-locked host memory of torch's own allocator.
    `outside_bytes` is what is used on the card outside torch's allocator, by others and by the driver: the
    difference of two numbers of one and the same reading.
    """

    allocated_bytes: int | None = None
    active_bytes: int | None = None
    reserved_bytes: int | None = None
    device_used_bytes: int | None = None
    device_total_bytes: int | None = None
    rss_bytes: int | None = None
    inactive_split_bytes: int | None = None
    workers_rss_bytes: int | None = None
    pinned_bytes: int | None = None
    outside_bytes: int | None = None

    @property
    def unused_bytes(self) -> int | None:
        """Return what torch has reserved and no tensor holds: cache and fragmentation."""
        if self.reserved_bytes is None or self.allocated_bytes is None:
            return None
        return max(0, self.reserved_bytes - self.allocated_bytes)


@frozen
class Verdict:
    """The diagnosis in the words of the house.

    `confidence` is 0 to 1; `since_step` is where it began; `settles` says what would make it surer.
    """

    kind: VerdictKind
    confidence: float
    since_step: int | None
    reason: Message
    settles: Message | None = None


@frozen
class Slope:
    """How a quantity grows: bytes per step with an interval that holds the true one nine times in ten."""

    quantity: str
    bytes_per_step: float
    low: float
    high: float


@frozen
class Forecast:
    """When the memory of `quantity` is used up if it goes on like this; each with its range.

    `seconds` are from now.  A high end of None is "perhaps never".
    """

    quantity: str
    step: int
    step_low: int
    step_high: int | None
    seconds: float | None
    seconds_low: float | None
    seconds_high: float | None


@frozen
class Revision:
    """A verdict that had to be changed: what it was, what it is since which step."""

    was: VerdictKind
    now: VerdictKind
    step: int | None


@frozen
class Site:
    """A line of the training that allocates what is kept.

    `age_steps` is the age of its oldest live block.  `cause` names a typical fault where the evidence is
    there, and `held_by` is what refers to its newest block, as far as that was found; `stack` is the Python
    stack, innermost first, each "file:line function".
    """

    name: str
    file: str
    line: int
    function: str
    bytes_per_step: float
    live_bytes: int
    live_count: int
    age_steps: int
    cause: Message | None = None
    stack: tuple[str, ...] = ()
    held_by: str = ""


@frozen
class Holders:
    """Who holds what was allocated in `steps` steps and is still alive, the fastest growing site first.

    `how` is "allocator history" or "weak references"; `step` is the last step looked at.
    `phase` is "collecting" while the steps are not all there yet.
    """

    phase: Literal["collecting", "done", "refused"]
    how: str
    steps: int
    step: int
    sites: tuple[Site, ...] = ()
    others_bytes: int = 0
    why: Message | None = None


@frozen
class Block:
    """A part of a segment: how large, and `active`, `pending` (freed, a stream still uses it) or `free`."""

    bytes: int
    state: Literal["active", "pending", "free"]


@frozen
class Segment:
    """One piece of device memory that the allocator got from the driver, with its blocks in order."""

    total_bytes: int
    active_bytes: int
    stream: int
    blocks: tuple[Block, ...]


@frozen
class Segments:
    """The allocator's segments as they were at `step`.

    `releasable_bytes` are whole free segments, which `empty_cache` gives back; `inactive_split_bytes` are
    free parts of segments that something still uses; `pinned` counts the segments that are less than a tenth
    in use and still cannot be given back, `pinned_bytes` their free memory.  `shown` holds the largest
    segments; `count` is how many there are.
    """

    step: int
    count: int
    reserved_bytes: int
    active_bytes: int
    largest_free_bytes: int
    releasable_bytes: int
    inactive_split_bytes: int
    pinned: int
    pinned_bytes: int
    shown: tuple[Segment, ...] = ()


@frozen
class Worker:
    """A process that the training started: its resident memory."""

    pid: int
    name: str
    rss_bytes: int


@frozen
class Reuse:
    """Whether the allocator reuses its blocks, how that was switched, and what it costs.

    `how` is the means in the words of its device; `cost_us` is the median time of it at a step boundary;
    `slower` is the ratio of step times, off to on, None while unknown.  `since_step` is when it was switched.
    `at_launch` tells that it was switched by the environment, for good.  With `every` n only each n-th step
    begins without reuse, because more would cost more than the budget.
    """

    state: Literal["on", "off", "none"]
    how: str = ""
    cost_us: float | None = None
    slower: float | None = None
    since_step: int | None = None
    at_launch: bool = False
    every: int = 1


@frozen
class Ours:
    """What the verdict leaves out: `quantity` has grown by `bytes` while a command of ours ran, until `step`.

    The command is "plugin.name".  What lies there is used again by the next check, or by the training.
    """

    quantity: str
    bytes: int
    command: str
    step: int


@frozen
class Card:
    """The card of this target as `npu-smi` tells it; None is "not told".

    `own_bytes` is what the target's process holds, `others_bytes` what other visible processes do,
    `unseen_bytes` what is in use beside all of them.
    """

    name: str
    health: str
    temp_c: float | None
    used_bytes: int | None
    total_bytes: int | None
    own_bytes: int | None
    others_bytes: int | None
    others: int | None
    unseen_bytes: int | None


@frozen
class Oom:
    """The moment of an out-of-memory error, explained by its own numbers.

    `kind` is `capacity`, `fragmentation`, `external`, `leak` or `undecided`; `advice` contradicts the text of
    the error where that is wrong.
    """

    step: int | None
    kind: VerdictKind
    requested_bytes: int | None
    total_bytes: int | None
    free_bytes: int | None
    allocated_bytes: int | None
    reserved_bytes: int | None
    outside_bytes: int | None
    reason: Message
    advice: Message | None = None


@frozen
class MemorySnapshot:
    """The memory of one target.

    `time_curves` are over seconds of the target's monotonic clock since the first sample,
    `step_curves` over steps.  Slopes are of `lead`, the quantity that a leak shows in on this
    device: `allocated` on npu and cuda, `rss` on cpu, and `device_used` where the allocator works
    without its cache and therefore counts nothing.
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
    reuse: Reuse = Reuse("on")
    slope: Slope | None = None
    forecast: Forecast | None = None
    revision: Revision | None = None
    holders: Holders | None = None
    segments: Segments | None = None
    workers: tuple[Worker, ...] = ()
    oom: Oom | None = None
    card: Card | None = None
    ours: Ours | None = None
    time_curves: tuple[Curve, ...] = dataclasses.field(default=(), metadata={"json": False})
    step_curves: tuple[Curve, ...] = dataclasses.field(default=(), metadata={"json": False})
