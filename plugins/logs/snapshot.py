"""What the logs plugin shows: incidents, metrics, lines by their template, and where all of it was read."""

from __future__ import annotations

import dataclasses
from typing import Literal

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Attribution, Category, Message, Scalar, Severity

SourceKind = Literal["stdout", "stderr", "plog", "device_log", "launcher", "open_file", "glob", "tee", "file"]
SourceState = Literal["reading", "waiting", "ended", "deleted", "unreadable", "nothing"]
"""`waiting`: not there yet; `nothing`: nothing can be read here, `why` says what would help."""
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error", "fatal")
Key = tuple[str, str]
_KINDS: dict[Category, str] = {
    "device": "device",
    "memory_access": "device",
    "communication": "peers",
    "timeout": "peers",
}
MetricTrend = Literal["steady", "not_finite", "missing", "spike", "collapsing", "zero"]


@frozen
class Fact:
    """One named detail of an incident, in the field's word: chip, die, core, kernel, stream, operator."""

    name: str
    value: Scalar


@frozen
class Raw:
    """One line as it was written, made safe, with its number in its source; `is_key`: it is the reason."""

    number: int
    text: str
    source: int = 0
    is_key: bool = False


@frozen
class Incident:
    """One thing that happened, however many lines and ranks told it.

    `headline` is the reason, never the wrapper; `text` the one line that matters.  `step` is that of the
    first time where it is known.  `count` is how often it happened, not how many lines tell it.  Times are
    Unix seconds, those of the lines where they have any (`is_clock_known`), else when they were read.
    """

    severity: Severity
    category: Category
    headline: Message
    step: int | None = None
    ranks: tuple[int, ...] = ()
    count: int = 1
    attribution: Attribution = "exact"
    key: str = ""
    code: str = ""
    reason: Message | None = None
    evidence: tuple[Message, ...] = ()
    advice: tuple[Message, ...] = ()
    facts: tuple[Fact, ...] = ()
    place: str = ""
    """The frame of the program's own that the log names: file:line in function."""
    first_wall_s: float | None = None
    last_wall_s: float | None = None
    last_step: int | None = None
    is_clock_known: bool = False
    source: int = 0
    line: int = 0
    text: str = ""
    context: tuple[Raw, ...] = dataclasses.field(default=(), metadata={"json": False})
    """The lines around; in files of an export, not in each line of `--json`."""
    by_rank: tuple[tuple[int, str], ...] = ()
    """What each rank was doing, where that differs or says who was first."""
    devices: tuple[int, ...] = ()
    knows: int = dataclasses.field(default=2, metadata={"json": False})
    """How much its headline knows, as in sighting.py."""


def kind_of(category: Category) -> str:
    """Return what categories are of one kind: a device's fault and its access to memory, peers that wait."""
    return _KINDS.get(category, category)


def key_of(one: Incident) -> Key:
    """Return what two incidents that are one have in common."""
    return kind_of(one.category), one.key or one.headline.render()


@frozen
class Metric:
    """A number that the log prints again and again: loss, grad_norm, loss_scale, learning_rate, throughput …

    `name` is the field's word where the printed one (`printed`) is known under another.
    """

    name: str
    printed: str
    value: float
    step: int | None
    trend: MetricTrend = "steady"
    count: int = 0
    low: float | None = None
    high: float | None = None
    last_wall_s: float | None = None
    unit: str = ""
    points: tuple[tuple[float, float], ...] = dataclasses.field(default=(), metadata={"json": False})
    """(step, value) of the whole run, thinned."""


@frozen
class Template:
    """Lines that differ in numbers, names of files and addresses only, with `<*>` in their place."""

    text: str
    count: int
    example: str
    first_line: int
    last_line: int
    source: int = 0
    level: str = ""
    is_new: bool = False
    """Seen for the first time long after the beginning."""


@frozen
class Source:
    """Where lines come from; `read_bytes` of `size_bytes` are digested, `behind_bytes` wait.

    `skipped_bytes` at its beginning were left out, because only the last megabytes are digested at first.
    """

    kind: SourceKind
    name: str
    state: SourceState = "reading"
    why: Message | None = None
    rank: int | None = None
    read_bytes: int = 0
    size_bytes: int | None = None
    behind_bytes: int = 0
    skipped_bytes: int = 0
    lines: int = 0


@frozen
class Digest:
    """All that the lines so far tell, in bounded memory.

    `ignored` counts lines that look alarming and are known to be harmless.
    """

    incidents: tuple[Incident, ...] = ()
    metrics: tuple[Metric, ...] = ()
    templates: tuple[Template, ...] = dataclasses.field(default=(), metadata={"json": False})
    lines: int = 0
    bytes: int = 0
    ignored: int = 0
    dropped_incidents: int = 0
    notes: tuple[Message, ...] = ()


@frozen
class LogsSnapshot:
    """One target's digest at one tick.

    `behind_s` is how old the oldest line is that was not digested yet, 0 where none waits.
    """

    state: Literal["waiting", "live", "degraded"] = "waiting"
    reason: Message | None = None
    digest: Digest = Digest()
    sources: tuple[Source, ...] = ()
    behind_s: float = 0.0
    lines_per_s: float = 0.0
    is_teed: bool = False

    def evidence(self) -> dict[str, object]:
        """Return what an export writes as files of its own."""
        # Not at the top: export.py knows these classes.
        from .export import files_of

        return dict(files_of(self))


@frozen
class LogResult:
    """What `inspect` says of a log."""

    incidents: tuple[Incident, ...]
    metrics: tuple[Metric, ...] = ()
    templates: tuple[Template, ...] = ()
    lines: int = 0
    ignored: int = 0
    notes: tuple[Message, ...] = ()
