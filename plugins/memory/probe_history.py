"""History, a part of the memory probe: the allocator's own record of who allocated what is alive.

It is switched in two calls, on and off.  torch's allocator reads "record" and then calls a function
pointer, both without its lock; one call that clears both can make a thread that allocates at that moment
call a null pointer.  The first call on sets the pointer, the first call off leaves it.
"""

import time
from typing import Any

TEXT = 160
MOST_STACK = 16
LONG_S = 0.1
CALM_S = 0.05
"""Between the two calls that switch it off: no thread stands between two instructions for so long."""


def setup(api):
    """Leave the class for the command that uses it."""
    api.history_of = lambda device: History(device, api.places)


class History:
    """The allocator's history of what is alive, of one device; "state" keeps no events."""

    def __init__(self, device, places):
        core = device.torch_npu._C if device.kind == "npu" else device.torch._C
        self.switch = device.module.memory._record_memory_history
        self.is_on = getattr(core, "_%s_isHistoryEnabled" % device.kind)
        self.read = getattr(core, "_%s_memorySnapshot" % device.kind)
        self.device, self.places = device, places
        self.points, self.stacks = [], {}
        self.since = {}
        self.next_step = 0
        self.ours = False
        self.lost = None
        self.has_looked = False

    def begin(self):
        """Switch it on; return why not, or None."""
        try:
            if self.is_on():
                return "the training records a memory history itself, which is left alone"
            self.switch("state", context=None, stacks="python", max_entries=1)
            self.ours = True
            self.switch("state", context="state", stacks="python", max_entries=1)
        except (RuntimeError, TypeError, ValueError) as error:
            self.end()
            return "this allocator records no history: %s" % str(error)[:TEXT]
        return None

    def look(self, step):
        """Count what is alive, by site; on the training thread, which has the interpreter anyway."""
        if step < self.next_step or self.lost is not None:
            return
        began = time.perf_counter()
        segments = self.segments()
        if segments is None:
            return
        held: Any = {}
        since = {}
        for segment in segments:
            for block in segment["blocks"]:
                if block["state"] != "active_allocated" or segment.get("device") != self.device.index:
                    continue
                key = self.site(block.get("frames"))
                size, count = held.get(key, (0, 0))
                held[key] = (size + block["size"], count + 1)
                address = block.get("address")
                known = self.since.get(address)
                since[address] = known if known is not None and known[0] == key else (key, step)
        self.since = since
        # At the first look what the step's variables hold is partly older than the history.
        if self.has_looked:
            self.points.append((step, held))
        self.has_looked = True
        # Many blocks: fewer looks.
        self.next_step = step + 1 + int((time.perf_counter() - began) / LONG_S)

    def segments(self):
        """Return the segments, or None when the history is not ours any more."""
        if not self.is_on():
            self.ours, self.lost = False, "the training switched the memory history off"
            return None
        try:
            snapshot = self.read(None)
        except TypeError:
            snapshot = self.read()
        # We keep one event; more are of somebody who records them.
        if any(len(trace) > 1 for trace in snapshot.get("device_traces", ())):
            self.ours, self.lost = False, "the training began to record a memory history itself"
            return None
        return snapshot["segments"]

    def site(self, frames):
        """Return the place of a block's frames, and keep the stack of a new one."""
        stack = [(one["filename"], one["line"], one["name"]) for one in frames or ()]
        key = self.places.choose(stack)
        if key not in self.stacks:
            stack = [one for one in stack if "/ascend_tui/shim/" not in one[0]]
            self.stacks[key] = [one for one in stack if not one[0].startswith("<ascend-tui")][:MOST_STACK]
        return key

    def oldest(self, key):
        """Return the step at which the oldest live block of a site was seen first."""
        return min([step for at, step in self.since.values() if at == key] or [self.points[-1][0]])

    def span(self):
        """Return the steps between the first and the last look."""
        return max(1, self.points[-1][0] - self.points[0][0])

    def end(self):
        """Switch it off, unless it is somebody else's by now; takes CALM_S and two snapshots."""
        for last in (False, True):
            # In the meantime the training may have begun one of its own.
            if self.ours and self.segments() is not None:
                self.switch(None if last else "state", context=None, stacks="python", max_entries=1)
                time.sleep(0.0 if last else CALM_S)
        self.ours = False
