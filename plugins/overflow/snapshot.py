"""What the overflow plugin knows at one moment: the collector makes it, the pane draws it."""

from __future__ import annotations

from typing import Literal

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Attribution, Category, Message, Severity

Kind = Literal[
    "nan",
    "inf",
    "near_limit",
    "huge",
    "underflow",
    "saturated",
    "loss",
    "gradient",
    "parameter",
    "masked_row",
    "scale_search",
    "scale_collapse",
    "divergence",
    "told",
]
"""What an incident is about.

`loss`, `gradient` and `parameter` are seen where no bad output of a module or operator was; `huge` is
finite and beyond what a healthy value is; `saturated` was clamped by a chip that knows no Inf;
`told` is what another plugin read in the training's log.
"""

Part = Literal["output", "input", "loss", "gradient", "parameter"]
Phase = Literal["forward", "backward", "optimizer"]
LevelName = Literal["loss", "gradients", "modules", "ops"]


@frozen
class Output:
    """The statistics of one tensor, in the order in which the step made them.

    `path` is the module as the user wrote it, `op` the operator (`aten::addmm`) or empty where only modules
    were watched.  `low` and `high` are NaN where any value is.  `sources` are the indices of the outputs that
    its inputs came from, None where that was not watched.  `intended` is an infinity that the training wrote
    on purpose (a mask).  `position` is the index of the first bad value.
    """

    index: int
    path: str
    part: Part = "output"
    module_type: str = ""
    op: str = ""
    phase: Phase = "forward"
    dtype: str = ""
    shape: tuple[int, ...] = ()
    low: float = 0.0
    high: float = 0.0
    near_share: float | None = None
    zero_share: float | None = None
    bad_count: int | None = None
    position: tuple[int, ...] | None = None
    sources: tuple[int, ...] | None = None
    intended: bool = False

    @property
    def abs_max(self) -> float:
        """Return the largest absolute value, NaN where any value is."""
        return self.high if self.high != self.high else max(abs(self.low), abs(self.high))


@frozen
class Point:
    """The largest absolute value of one output at one step."""

    step: int
    abs_max: float


@frozen
class Line:
    """One line of the training's Python stack."""

    file: str
    line: int
    function: str


@frozen
class Incident:
    """One line of the stream, repeats folded: what is bad, where it was first seen, and what it came from.

    `first_seen` is where a bad value appeared first in the order of execution, `source` what likely made it
    so, which is often some outputs earlier; `attribution` is how exactly that is known and `source_reason` by
    what.  `window` are the outputs before, up to and a few after `first_seen`; `climb` is the largest
    absolute value of `source` over the steps.  `keep_fp32` is code that keeps the source out of half
    precision.
    """

    kind: Kind
    severity: Severity
    headline: Message
    step: int
    category: Category = "numeric"
    ranks: tuple[int, ...] = ()
    count: int = 1
    attribution: Attribution = "likely"
    first_step: int = 0
    wall_s: float = 0.0
    level: LevelName = "loss"
    first_seen: Output | None = None
    source: Output | None = None
    source_reason: Message | None = None
    window: tuple[Output, ...] = ()
    climb: tuple[Point, ...] = ()
    stack: tuple[Line, ...] = ()
    evidence: tuple[Message, ...] = ()
    """Why we think so, one sentence each."""
    advice: tuple[Message, ...] = ()
    keep_fp32: str = ""


@frozen
class Level:
    """One level of watching: whether it is on, in every how many-th step, or why it cannot be."""

    name: LevelName
    on: bool = False
    every: int = 1
    why: Message | None = None


@frozen
class OverflowSnapshot:
    """Everything the pane and `--json` show of one target.

    `incidents` are oldest first; `dropped` older ones were let go.  `steps_watched` counts steps whose
    gradients were looked at.  `saturates` tells that the chip clamps instead of making Inf, None where it is
    not known.  `hottest` are the outputs nearest to their type's limit.  `unseen` says, in words, what the
    watching could not see.
    """

    state: Literal["waiting", "live", "degraded"] = "waiting"
    incidents: tuple[Incident, ...] = ()
    dropped: int = 0
    levels: tuple[Level, ...] = ()
    steps_watched: int = 0
    loss: float | None = None
    grad_norm: float | None = None
    scale: float | None = None
    skipped: int = 0
    saturates: bool | None = None
    hottest: tuple[Output, ...] = ()
    unseen: tuple[Message, ...] = ()
    notes: tuple[Message, ...] = ()

    def evidence(self) -> dict[str, Incident]:
        """Return what an export writes as files of its own: each incident that is more than information."""
        grave = [one for one in self.incidents if one.severity != "info"]
        return {f"overflow-step{one.step}-{one.kind}": one for one in grave}
