"""Reuse off: memory that nothing holds goes back where a step ends, so that only what is held can still grow.

The means is the device's (shim/reuse.py): `empty_cache` on NPU and CUDA, `malloc_trim` on the CPU, and with
the argument `means=allocator` CUDA's own switch, where the card has room for it.  Over budget the governor
leaves out steps: `left` holds the readings right after the means and no others, so that at any pace they form
the curve without reuse.
"""

from collections import deque
from functools import partial
from time import perf_counter_ns
from typing import Any, Deque

KEPT = 64
NEEDED = 5
"""So many steps of both kinds make a ratio."""
OTHERS = "other processes on this card may take the memory given back"


def setup(api):
    """Offer the command `reuse`: started, reuse is off."""
    switch = Switch(api)
    api.sample(1, switch.sample, kind="reuse")
    api.on_close(partial(switch.restore, "its probe is off"))


class Switch:
    """Whether reuse is off, by what means, and what that costs."""

    def __init__(self, api):
        self.api = api
        self.hook = api.at_step(self.act, self.rest)
        self.command = api.command("reuse", self.start, self.stop, hooks=(self.hook,))
        self.means: Any = None
        self.is_off = False
        self.forget()

    def forget(self):
        """Begin the figures anew."""
        self.acted = False
        self.returned = 0
        self.call_ns: Deque[int] = deque(maxlen=KEPT)
        self.off_s: Deque[float] = deque(maxlen=KEPT)
        self.left: Deque[Any] = deque(maxlen=KEPT)
        self.plain_s: Any = []

    # The shim's thread.

    def start(self, arguments, steps, seconds):
        """Switch reuse off from the next boundary on.  A start while it is off prolongs the lease."""
        device, means = self.api.device, self.means
        if means is None or means.device is not device:
            try:
                means = device.means(str(arguments.get("means", "")))
            except (LookupError, OSError) as error:
                self.api.refuse("reuse cannot be switched off here: %s" % (error,))
            self.forget()
            self.means = means
        self.hook.arm(steps, seconds)
        return {"how": means.how, "says": "" if device.kind == "cpu" else OTHERS}

    def stop(self):
        """Give reuse back, and say why."""
        self.restore(self.hook.refused or self.command.why)

    def restore(self, why):
        """Undo what lasts, and say that reuse is on; also when it never was off."""
        means, self.means = self.means, None
        if means is None:
            return
        means.restore()
        self.is_off = self.acted = False
        self.api.emit("reuse", self.record("on", means.how, why))

    def sample(self):
        """Return the state once a second while reuse is off."""
        means = self.means
        return self.record("off", means.how, "") if self.is_off and means is not None else None

    def record(self, state, how, why):
        """Return the state and its cost; `left` are [step, bytes] since the last record."""
        plain = [seconds for seconds, armed, _ in self.api.steps_s if not armed]
        if len(plain) >= NEEDED:
            self.plain_s = plain
        left = [self.left.popleft() for _ in range(len(self.left))]
        calls = list(self.call_ns)
        return {
            "state": state,
            "how": how,
            "cost_us": median(calls) / 1e3 if calls else None,
            "slower": slower(list(self.off_s), self.plain_s, calls),
            "returned_bytes": self.returned,
            "every": self.hook.pace,
            "left": left,
            "why": why,
        }

    # The training thread, where a step begins.

    def act(self, step):
        """Give back what nothing holds."""
        means = self.means
        if means is None:
            return
        if means.device is not self.api.device:
            self.hook.refuse("the training has begun to use another device; ask again for that one")
            return
        self.end_of_step()
        began = perf_counter_ns()
        before = means.reading()
        means.act()
        after = means.reading()
        self.call_ns.append(perf_counter_ns() - began)
        self.returned += max(0, before - after)
        self.left.append((step, after))
        self.acted = True
        if not self.hook.armed:
            # Stopped meanwhile on the shim's thread, which may have restored before we switched.
            means.restore()
        elif not self.is_off:
            self.is_off = True
            self.api.emit("reuse", partial(self.record, "off", means.how, ""))

    def rest(self, step):
        """Begin a step with reuse: the lease is over, or the governor wants one to compare."""
        self.end_of_step()
        means = self.means
        if means is not None:
            means.restore()

    def end_of_step(self):
        """Keep the time of the step that ended, when it was one without reuse."""
        if self.acted:
            self.acted = False
            self.off_s.append(self.api.last_step_s or 0.0)


def slower(off_s, on_s, calls_ns):
    """Return how many times longer a step without reuse takes, or None while that is unknown.

    What the calls took is certain.  The difference of the steps counts only where it is more than their
    noise: two medians whose intervals (McGill et al., 1978) lie apart.
    """
    if len(on_s) < NEEDED or not calls_ns:
        return None
    on = median(on_s)
    if on <= 0:
        return None
    ratio = 1.0 + median(calls_ns) / 1e9 / on
    if len(off_s) >= NEEDED and median(off_s) - notch(off_s) > on + notch(on_s):
        ratio = max(ratio, median(off_s) / on)
    return ratio


def notch(values):
    """Return the half width of the median's interval, 1.57 * IQR / sqrt(n)."""
    ordered = sorted(values)
    count = len(ordered)
    return 1.57 * (ordered[(count * 3) // 4] - ordered[count // 4]) / count**0.5


def median(values):
    """Return the median of a list that is not empty."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
