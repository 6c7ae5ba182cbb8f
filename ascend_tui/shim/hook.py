"""One callback of a probe at torch's hooks: when it is wanted, how often, and until when."""

from __future__ import annotations

from time import monotonic
from typing import Any, Callable, Optional

BURST_STEPS = 10
"""A check of at most so many steps is what the user asked for and is not thinned."""


class Hook:
    """A probe's callback for modules, ops or steps: off until armed, off again by its lease.

    Of the kinds "module" and "op" `after` and `before` run around each call in a live step, of "optimizer"
    `after(optimizer)` where one stepped or a GradScaler kept it from it; `done(step)` runs at the boundary
    where a live step ends.  Of the kind "step" `after(step)` runs once at the boundary where a live step
    begins, so that what it costs is in the time of that step, and `rest(step)` where the first step without
    it begins.
    """

    def __init__(
        self,
        probe: Any,
        kind: str,
        after: Callable[..., Any],
        before: Optional[Callable[..., Any]] = None,
        rest: Optional[Callable[[int], Any]] = None,
        done: Optional[Callable[[int], Any]] = None,
    ) -> None:
        self.probe = probe
        self.kind = kind
        self.after = after
        self.before = before
        self.rest = rest
        self.done = done
        self.armed = False
        self.arms = 0
        """How often it was armed: whoever was not there is told by it."""
        self.live = False
        self.every = 1
        self.pace = 1
        """It runs in every so many-th step: `every`, thinned by the governor."""
        self.steps = 0
        self.until_step: Optional[int] = None
        self.until_mono = 0.0
        self.refused: Optional[str] = None
        self.retired = False

    @property
    def is_governed(self) -> bool:
        """Tell whether the governor may leave out steps of it."""
        return self.steps > BURST_STEPS

    def arm(self, steps: int, seconds: float, every: int = 1) -> None:
        """Ask to run in every `every`-th step, for at most `steps` steps and `seconds` seconds.

        Of more than `BURST_STEPS` steps the governor leaves out as many as the budget asks for.
        """
        if self.retired:
            return
        self.every = max(1, int(every))
        self.steps = max(1, int(steps))
        # Steps count from the boundary that arms it; a training that stands still is held by the clock.
        self.until_step = None
        self.until_mono = monotonic() + float(seconds)
        self.refused = None
        self.arms += 1
        self.armed = True

    def disarm(self) -> None:
        """Ask to stop; the hook is unregistered at the next boundary and passes through until then."""
        self.armed = False

    def refuse(self, why: str) -> None:
        """Stop for a reason that the command then ends with."""
        self.refused = why
        self.armed = False

    def retire(self) -> None:
        """Stop for good: the probe is gone or off."""
        self.retired = True
        self.armed = False
