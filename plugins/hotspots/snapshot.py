"""What the hotspots plugin knows, live or from a profile: the collector makes it, the pane draws it.

Times of a live table are those of one step, unless a field says otherwise; of a profile, of the whole file.
"""

from __future__ import annotations

from typing import Literal

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Attribution, Category, Message, Severity

Kind = Literal["compute", "movement", "communication", "synchronisation", "host", "other"]
"""What an operator does with its time; see kinds.py."""

Clock = Literal["host", "device"]
"""Where a time was taken: `host` is the time inside the call, which on a device is not that of the kernel."""

PhaseName = Literal["data", "forward", "backward", "optimizer", "other"]
Bound = Literal["", "cube", "vector", "scalar", "mte1", "mte2", "mte3", "fixpipe", "latency"]


@frozen
class Use:
    """One set of shapes that an operator was called with."""

    shapes: str
    dtypes: str = ""
    calls: int = 0
    self_time_us: float = 0.0


@frozen
class Place:
    """One module that an operator ran in; `path` is empty for what ran in no module."""

    path: str
    phase: PhaseName = "forward"
    calls: int = 0
    self_time_us: float = 0.0


@frozen
class Site:
    """One line of the training that leads to a call; `stack` is a whole stack where a profile has it."""

    file: str = ""
    line: int = 0
    function: str = ""
    calls: float = 0.0
    time_us: float = 0.0
    stack: str = ""


@frozen
class Units:
    """How busy the units of the AI Core were: shares 0 to 1, weighted by time; None where not measured.

    `memory_bound` is mte2 over the larger of cube and vector, as msprof defines it.  `bound` is the unit that
    limits, empty where the numbers do not tell.
    """

    cube_ratio: float | None = None
    vector_ratio: float | None = None
    scalar_ratio: float | None = None
    mte1_ratio: float | None = None
    mte2_ratio: float | None = None
    mte3_ratio: float | None = None
    fixpipe_ratio: float | None = None
    icache_miss_rate: float | None = None
    cube_utilization: float | None = None
    memory_bound: float | None = None
    block_num: float | None = None
    bound: Bound = ""


@frozen
class Change:
    """An operator beside its baseline: average times of one call, and of a whole step or profile."""

    baseline_avg_us: float
    baseline_time_us: float
    avg_ratio: float
    time_ratio: float
    since_step: int | None = None
    sure: bool = True
    """Whether no sample of the one side is among those of the other: else it may be noise."""


@frozen
class Row:
    """One operator: `self_time_us` without, `total_time_us` with what it called; shares are of all self time.

    `core` is what it ran on in the profile's own word (AI_CORE, AI_VECTOR_CORE, AI_CPU …), `level` the layer
    of the API where a table has several (acl, runtime, node).  `wait_us` is the time between the end of the
    task before and its start, summed.  `trend` is the self time of the newest samples, oldest first.
    """

    name: str
    kind: Kind
    self_time_us: float
    share: float
    cumulative_share: float
    calls: int
    total_time_us: float | None = None
    avg_us: float = 0.0
    min_us: float | None = None
    max_us: float | None = None
    wait_us: float | None = None
    clock: Clock = "device"
    core: str = ""
    level: str = ""
    uses: tuple[Use, ...] = ()
    shapes_seen: int | None = None
    """How many sets of shapes it was called with, also those not in `uses`; None where none were taken."""
    places: tuple[Place, ...] = ()
    sites: tuple[Site, ...] = ()
    units: Units | None = None
    change: Change | None = None
    trend: tuple[float, ...] = ()


@frozen
class Phase:
    """One part of a step."""

    name: PhaseName
    time_us: float
    share: float


@frozen
class DeviceUse:
    """How the device spent a step; shares are 0 to 1 of its time.

    `host_bound_share` is the part in which the device was idle and the host neither waited for data nor for
    the device: it could not feed it fast enough.  None where it cannot be told.
    """

    busy_us: float
    idle_us: float
    idle_share: float
    communication_us: float = 0.0
    host_bound_share: float | None = None
    kernels: int = 0
    longest_idle_us: float = 0.0
    short_waits: int = 0
    """Idle gaps under 0.1 ms that a synchronising call ended."""


@frozen
class Sync:
    """One call that makes the host wait for the device, and where it is made; times are of one step."""

    op: str
    calls: float
    time_us: float
    site: Site | None = None


@frozen
class Outlier:
    """A step that took much longer than the others, and what happened at that time."""

    step: int
    wall_s: float
    duration_s: float
    ratio: float
    """Its time over the median."""
    cause: Message | None = None


@frozen
class Jitter:
    """How even the steps are: over the newest `steps` of them, steps with costly checks of ours left out."""

    steps: int
    p50_s: float
    p99_s: float
    outliers: tuple[Outlier, ...] = ()


@frozen
class Finding:
    """One thing worth knowing, with the numbers that say so and what can be done; `rule` names it."""

    rule: str
    headline: Message
    severity: Severity = "info"
    category: Category = "other"
    evidence: tuple[Message, ...] = ()
    advice: tuple[Message, ...] = ()
    ops: tuple[str, ...] = ()
    """Names of the rows that it is about, for their detail screens."""
    step: int | None = None
    ranks: tuple[int, ...] = ()
    count: int = 1
    attribution: Attribution = "likely"


@frozen
class Sampling:
    """When steps are looked at, and what that costs: `every` is 0 while none is."""

    on: bool = False
    every: int = 0
    samples: int = 0
    next_step: int | None = None
    pause_us: float = 0.0
    """What the last sample held the training up by, outside its step."""
    amortised_share: float | None = None
    why: Message | None = None
    """Why no step can be looked at."""


@frozen
class Captured:
    """One step that torch_npu.profiler has recorded on request.

    `recorded` is not analysed yet, `analysed` not read yet, `failed` has its reason in `why`.  `folder` is
    named as the training sees it; `cpu_s` is what the analysis took, in a process of its own.
    """

    state: Literal["recorded", "analysed", "read", "failed"]
    step: int = 0
    folder: str = ""
    files: tuple[str, ...] = ()
    clock: Clock = "host"
    pause_us: float = 0.0
    """What it held the training up by, at both ends of the step."""
    step_time_us: float = 0.0
    analysis_s: float = 0.0
    cpu_s: float = 0.0
    why: str = ""


@frozen
class HotspotsSnapshot:
    """Everything the pane and `--json` show of one target.

    `rows` is the main table: kernels where they could be timed (`clock` device), else operators on the host;
    `host_rows` are the operators on the host where `rows` are kernels.  `outside_us` is the time of the step
    in no operator at all: Python, waiting for data.  `missing` says what cannot be had, and how to get it.
    """

    state: Literal["waiting", "live", "degraded"] = "waiting"
    reason: Message | None = None
    clock: Clock = "host"
    source: str = ""
    """Who took the times: torch's recorder, msPTI."""
    runs_on: str = ""
    """The kind of device that the training uses: npu, cuda, cpu."""
    step: int | None = None
    wall_s: float = 0.0
    step_time_us: float = 0.0
    outside_us: float = 0.0
    delay_us: float = 0.0
    """What the training's thread waited for a processor in that step: it is in the times of all else."""
    rows: tuple[Row, ...] = ()
    rows_dropped: int = 0
    """Operators too small for the table; their time is in the shares."""
    host_rows: tuple[Row, ...] = ()
    phases: tuple[Phase, ...] = ()
    """On the average of the newest `phases_of` samples: steps differ in what they wait for."""
    phases_of: int = 1
    device: DeviceUse | None = None
    syncs: tuple[Sync, ...] = ()
    syncs_known: bool = False
    """Whether the lines of synchronising calls were looked for."""
    jitter: Jitter | None = None
    findings: tuple[Finding, ...] = ()
    sampling: Sampling = Sampling()
    baseline_step: int | None = None
    captured: Captured | None = None
    missing: tuple[Message, ...] = ()
    notes: tuple[Message, ...] = ()

    def evidence(self) -> dict[str, object]:
        """Return what an export writes as files of its own."""
        # Not at the top: export.py knows these classes.
        from .export import files_of

        return {"hotspots": self.rows, **files_of(self)} if self.rows else {}


@frozen
class StepTrace:
    """One row of a step trace: a step of a device, or of a rank of the job; shares are 0 to 1 of the step."""

    name: str
    step: str = ""
    rank: int | None = None
    device_id: str = ""
    total_us: float = 0.0
    computing_us: float | None = None
    communication_us: float | None = None
    communication_not_overlapped_us: float | None = None
    overlapped_us: float | None = None
    free_us: float | None = None
    bubble_us: float | None = None
    preparing_us: float | None = None
    computing_share: float | None = None
    communication_not_overlapped_share: float | None = None
    free_share: float | None = None


@frozen
class Link:
    """One kind of transport of a communication profile: what went over it and how fast."""

    name: str
    size_mb: float | None = None
    time_ms: float | None = None
    bandwidth_gb_s: float | None = None
    wait_ms: float | None = None


@frozen
class ProfileResult:
    """What a profile tells: `inspect` prints it as the result of kind profile.

    `format` is the table's name (op_summary, kernel_details …).  `read` rows were understood, `skipped` not,
    `notes` say why.  `steps` holds what a step trace has, one a step and rank; the maximum over ranks is not
    among them.
    """

    format: str
    rows: tuple[Row, ...] = ()
    rows_dropped: int = 0
    total_time_us: float = 0.0
    clock: Clock = "device"
    read: int = 0
    skipped: int = 0
    steps: tuple[StepTrace, ...] = ()
    links: tuple[Link, ...] = ()
    device: DeviceUse | None = None
    phases: tuple[Phase, ...] = ()
    findings: tuple[Finding, ...] = ()
    files: tuple[str, ...] = ()
    baseline: str = ""
    """The file it is compared with: the rows then have their `change`."""
    gone: tuple[Row, ...] = ()
    """Rows of the baseline that are not here any more."""
    notes: tuple[Message, ...] = ()
