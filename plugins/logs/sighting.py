"""The parts that the digest is made of: a line as the rules see it, and what a rule says of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Callable, Union

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Attribution, Category, Message, Scalar, Severity

CONTEXT, GENERIC, SPECIFIC, REASON = 0, 1, 2, 3
"""How much a sighting knows: a line that goes with an incident; a wrapper (`error code is 507011`, an
exception without more); a named fault; the very reason (an errorStr, the numbers of an OOM)."""


@frozen
class Line:
    """One line, cleaned: `text` without escapes, `body` behind what loggers and launchers put before it.

    `level` is debug, info, warning, error or fatal where the line names one in its logger's place, else "".
    `stream` tells apart who writes: lines of one rank, worker or process belong together.
    """

    text: str
    body: str
    number: int = 0
    source: int = 0
    rank: int | None = None
    stream: str = ""
    pid: int | None = None
    device: int | None = None
    wall_s: float | None = None
    level: str = ""
    logger: str = ""
    """plog module (RUNTIME, HCCL …), Python logger or source file, where the line names it."""
    repeated: int = 1
    """What "[repeated 6x across cluster]" and its like say, else 1."""


@frozen
class Sighting:
    """What one line tells: see snapshot.Incident for the words.

    Sightings of one stream that come together and fit (by category) are one incident; its headline is that of
    the one that knows most, `knows`.  `key` is equal for what is the same fault, whatever its numbers.
    """

    category: Category
    severity: Severity
    headline: Message
    knows: int = SPECIFIC
    key: str = ""
    attribution: Attribution = "exact"
    code: str = ""
    reason: Message | None = None
    evidence: tuple[Message, ...] = ()
    advice: tuple[Message, ...] = ()
    facts: tuple[tuple[str, Scalar], ...] = ()
    step: int | None = None
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    device: int | None = None
    count: int = 1
    doing: str = ""
    """What this rank was doing, for `by_rank`."""
    alone: bool = False
    """It never joins another incident: a metric, a hint."""


class Harmless:
    """Says of a line that it looks alarming and is known to be nothing."""

    __slots__ = ()


HARMLESS = Harmless()
Found = Union[Sighting, Harmless, None]
Rule = Callable[[Line], "Found | Iterable[Sighting]"]
