"""What we cost the training, and how far checks must be thinned to stay in the budget.

Shown is the larger of two figures: the time inside our hooks, which misses what a hook costs torch
itself, and the difference of armed and unarmed steps, which is blind below the noise of the steps.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, List, Optional, Tuple

BUDGET = 0.03
MOST_THINNING = 1024
KEPT = 64
NEEDED = 5
FRESH_STEPS = 32
"""After so many armed steps in a row one is left plain: what they are compared with must not grow old."""


def median(values: List[float]) -> float:
    """Return the median of a list that is not empty."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def notch(values: List[float]) -> float:
    """Return the half width of the median's interval, 1.57 * IQR / sqrt(n) (McGill et al., 1978)."""
    ordered = sorted(values)
    count = len(ordered)
    spread = ordered[(count * 3) // 4] - ordered[count // 4]
    return float(1.57 * spread / count**0.5)


class Governor:
    """Watch armed and unarmed steps; say the cost and the thinning.  Called at step boundaries."""

    def __init__(self, budget: float = BUDGET) -> None:
        self.budget = budget
        self.thinning = 1
        self.thread_share = 0.0
        self._armed: Deque[float] = deque(maxlen=KEPT)
        self._unarmed: Deque[float] = deque(maxlen=KEPT)
        self._armed_hook: Deque[float] = deque(maxlen=KEPT)
        self._hook: Deque[float] = deque(maxlen=KEPT)
        self._recent: Deque[bool] = deque(maxlen=KEPT)
        self._armed_in_a_row = 0

    def observe(self, duration_ns: float, armed: bool, hook_ns: float, governed: bool) -> None:
        """Take one finished step: how long, whether checks ran in it, and our time in its hooks."""
        self._recent.append(armed)
        self._armed_in_a_row = self._armed_in_a_row + 1 if armed else 0
        if not armed:
            self._unarmed.append(duration_ns)
            self._hook.append(hook_ns)
            return
        self._armed.append(duration_ns)
        self._armed_hook.append(hook_ns)
        if governed:
            self._thin()

    def wants_plain_step(self) -> bool:
        """Tell whether the next step should run without checks, as the one to compare with."""
        enough = FRESH_STEPS if len(self._unarmed) >= NEEDED else 1
        return self._armed_in_a_row >= enough

    def rest(self) -> None:
        """Forget the thinning and the armed steps: nothing is armed any more."""
        self.thinning = 1
        self._armed.clear()
        self._armed_hook.clear()

    def _per_armed_step(self) -> Optional[float]:
        """Return what one armed step costs beyond an unarmed one, as a share of it."""
        if not self._armed:
            return None
        # Without an unarmed step to compare with, our own hook time is taken out of the armed ones.
        plain = median(list(self._unarmed)) if self._unarmed else 0.0
        hook = median(list(self._armed_hook))
        if plain <= 0:
            plain = max(median(list(self._armed)) - hook, 1.0)
        share = hook / plain
        difference = self._difference()
        if difference is not None and difference[1] > 0:
            share = max(share, difference[0])
        return share

    def _difference(self) -> Optional[Tuple[float, float, float]]:
        if len(self._armed) < NEEDED or len(self._unarmed) < NEEDED:
            return None
        armed, unarmed = list(self._armed), list(self._unarmed)
        base = median(unarmed)
        if base <= 0:
            return None
        middle = median(armed) - base
        width = notch(armed) + notch(unarmed)
        return middle / base, (middle - width) / base, (middle + width) / base

    def _thin(self) -> None:
        share = self._per_armed_step()
        if share is None:
            return
        if share / self.thinning > self.budget:
            self.thinning = min(self.thinning * 2, MOST_THINNING)
        elif self.thinning > 1 and share / (self.thinning / 2) < self.budget / 2:
            self.thinning //= 2

    def cost(self) -> Dict[str, Any]:
        """Return the cost as it is shown: shares of the step time, None where it is unknown."""
        steps = list(self._unarmed) or list(self._armed)
        if not steps:
            return {"share": None, "low": None, "high": None, "hook_us": None, "thinning": self.thinning}
        base = median(steps)
        hook = median(list(self._hook) or list(self._armed_hook))
        share = (hook / base if base > 0 else 0.0) + self.thread_share
        low = high = share
        armed_part = self._recent.count(True) / len(self._recent)
        if armed_part:
            per_step = self._per_armed_step()
            if per_step is not None:
                share = max(share, per_step * armed_part + self.thread_share)
            difference = self._difference()
            if difference is not None:
                low = min(share, max(0.0, difference[1] * armed_part))
                high = max(share, difference[2] * armed_part)
            else:
                low, high = share, share
        return {
            "share": share,
            "low": low,
            "high": high,
            "hook_us": hook / 1000.0,
            "thinning": self.thinning,
        }
