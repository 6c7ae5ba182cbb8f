"""Steps whose operators are recorded: on request, and now and then by itself, so seldom that it costs little.

A step is recorded from one boundary to the next.  What that took, the pause at its end and the work on what
was recorded, sets how many steps go by until the next one.
"""

import collections
import functools
import os
import time
from typing import Any

SHARE = 0.002
"""What recording may take of the time, over all steps and all ranks: these wait for each other."""
WORK = 1.5
"""The training waits for the interpreter while a record is worked off: measured 1.2 times that work."""
LEAST_EVERY = 10
ASKED_STEPS = 10
"""Steps in which one recording may begin: one of more is for the governor a check that goes on."""
LEAST_S = 20.0
FIRST_STEPS = 3
SHAPES_EVERY = 4
"""Of so many samples one takes shapes: they cost half as much again."""
OP_US = 0.6
"""What recording adds to an operator: measured 0.47 us an event by the step time of tiny operators."""
PATIENCE = 5.0
LEAST_PATIENCE_S, MOST_PATIENCE_S = 0.5, 20.0
MOST_OPS = 400_000
"""More would need hundreds of megabytes while they are worked off."""
STEPS_KEPT = 2048
SLOW = 1.8
SLOWER_S = 0.005


def setup(api):
    """Offer the commands."""
    Hotspots(api)


class Hotspots:
    """The two commands, and the pulse."""

    def __init__(self, api):
        self.api = api
        self.automatic = Recording(self, shapes=False)
        self.asked = Recording(self, shapes=True)
        self.on = False
        # Each rank of this machine may be attached to, and a pause of one is a pause of all.
        self.share = SHARE / ranks_here()
        self.every = 0
        self.samples = 0
        self.next_step = 0
        self.due_mono = 0.0
        self.pause_us = self.cost_us = 0.0
        self.why = ""
        self.durations: collections.deque[Any] = collections.deque(maxlen=STEPS_KEPT)
        self.waiting: Any = None
        """A recorded step whose kernels may run still."""
        self.forced = 0
        """Asked for by `every=`, whatever it costs."""
        self._idle_looks = 0
        self._seen_step = 0
        self._collections = 0
        self._found_syncs = False
        api.command("sample", self.start, self.stop)
        api.command("profile", self.now, self.asked.stop, hooks=(self.asked.hook, self.asked.modules))
        api.sample(2.0, self.pulse, kind="pulse")
        api.on_close(self.close)

    # Commands (shim thread).

    def start(self, arguments, steps, seconds):
        """Record a step now and then, from a few steps on; `every=1` records each, whatever that costs."""
        self._refuse_what_cannot_be()
        if not self.on:
            self.next_step = self.api.step + FIRST_STEPS
            self.due_mono = 0.0
        self.on = True
        self.forced = max(0, int(arguments.get("every", 0)))
        if self.forced:
            self.automatic.arm(seconds, steps, self.forced, lasting=True)
        return {"every": self.forced or self.every}

    def stop(self):
        """Record none any more by itself."""
        self.on = False
        self.automatic.stop()

    def now(self, arguments, steps, seconds):
        """Record the next step with shapes, and look for what waits for the device in the one after it."""
        self._refuse_what_cannot_be()
        # Another recording may be on its way: then it is the first step after it.
        self.asked.arm(seconds, ASKED_STEPS)
        return {"step": self.api.step + 2}

    def _refuse_what_cannot_be(self):
        if self.api.torch is None:
            self.api.refuse("torch is not loaded")

    def close(self):
        """Let go of what is recorded; what is on ends at the next boundary."""
        self.on = False
        self.waiting = None
        self.automatic.marks = self.asked.marks = ()

    def pulse(self):
        """Begin a sample that is due, and tell of the steps since the last pulse."""
        now = time.monotonic()
        self._look_at_steps()
        api = self.api
        waiting = self.waiting
        if waiting is not None and waiting[0].is_over() and not waiting[0].is_told:
            # It is told on this thread, later: until then no other one may begin.
            waiting[0].is_told = True
            api.emit("sample", waiting[1])
        self._drop_kernels()
        api.sites.again()
        is_due = not self.forced and api.step >= self.next_step and now >= self.due_mono
        if self.on and is_due and api.step and api.torch is not None and not self._is_busy():
            self.next_step = api.step + max(self.every, LEAST_EVERY)
            self.automatic.shapes = self.samples % SHAPES_EVERY == 1
            self.automatic.arm(60.0, ASKED_STEPS)
        stats = steps_told(self.durations)
        stats["gc"] = self._collected()
        return {
            "on": self.on,
            "every": self.forced or self.every if self.on else 0,
            "samples": self.samples,
            "next": self.next_step if self.on else None,
            "pause_us": round(self.pause_us, 1),
            "cost_us": round(self.cost_us, 1),
            "why": self.automatic.why or self.asked.why,
            "sites": self.api.sites.state(),
            "kernels": self.api.kernels.why,
            "device": getattr(self.api.device, "kind", ""),
            "steps": stats,
        }

    def _drop_kernels(self):
        """Switch the monitor of kernels off where the record ended without a sample."""
        is_idle = self.api.kernels.is_on and self.waiting is None and not self.api.recorder.is_on
        # Once may be the moment between the two.
        self._idle_looks = self._idle_looks + 1 if is_idle else 0
        if self._idle_looks > 1:
            self.api.kernels.finish()

    def _is_busy(self):
        busy = self.automatic.hook.armed or self.asked.hook.armed
        return busy or self.waiting is not None or self.api.recorder.is_on

    def _look_at_steps(self):
        """Keep the times of the steps since the last look; those in which checks of ours ran are left out."""
        wall, seen = time.time(), self._seen_step
        for duration, armed, step in self.api.steps_s:
            if step > seen:
                self._seen_step = max(self._seen_step, step)
                if not armed and duration > 0:
                    self.durations.append((step, duration, wall))

    def _collected(self):
        """Return how often Python's garbage collector went through everything since the last pulse."""
        import gc

        total = gc.get_stats()[-1]["collections"]
        new, self._collections = total - self._collections, total
        return new if new < total else 0

    # What a recording tells (shim thread).

    def arrived(self, one, sums, kernels, worked_us):
        """Keep what it cost, and set when the next one is due."""
        step_us = (self.api.step_s or 0.0) * 1e6 or sums.window_us
        self.samples += 1
        self.pause_us = one.pause_us
        self.cost_us = one.pause_us + worked_us * WORK + sums.events * OP_US
        self.every = max(LEAST_EVERY, int(self.cost_us / (self.share * step_us)) + 1)
        self.next_step = one.step + (self.forced or self.every)
        self.due_mono = time.monotonic() + LEAST_S
        rows, count, self_us = sums.rows()
        syncs = sum(row["calls"] for row in rows if row["name"] in SYNCS)
        if one.asked:
            self.api.sites.arm()
        elif syncs and not self._found_syncs and not self.forced:
            self._found_syncs = True
            self.api.sites.arm()
            # That step is slower: it goes on the same account.
            self.next_step += int(sums.events * 10.0 / (self.share * step_us))
        return {
            "step": one.step,
            "asked": one.asked,
            "shapes": one.shapes,
            "delay_us": round(one.delay_us, 1),
            "window_us": round(sums.window_us, 1),
            "outside_us": round(max(sums.window_us - sums.top_us, 0.0), 1),
            "ops": sums.events,
            "count": count,
            "self_us": self_us,
            "rows": rows,
            "phases": {name: round(took, 1) for name, took in sums.phases().items()},
            "kernels": kernels,
            "device": getattr(self.api.device, "kind", ""),
            "pause_us": round(one.pause_us, 1),
            "cost_us": round(self.cost_us, 1),
            "every": self.every,
        }


SYNCS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::_unique2", "aten::equal")


Taken = collections.namedtuple("Taken", "step asked shapes pause_us delay_us")
"""One recorded step; `delay_us` is what the training's thread waited for a processor in it."""


class Recording:
    """One step from boundary to boundary: its operators, its modules, on a device its kernels."""

    def __init__(self, owner, shapes):
        self.owner = owner
        self.api = owner.api
        self.shapes = shapes
        self.hook = self.api.at_step(self.begin, self.end)
        self.modules = self.api.on_module(self.leave, self.enter)
        self.marks: Any = ()
        self.pause_us = 0.0
        self._delay_ns = 0
        self.step = 0
        self.why = ""
        self.is_lasting = False
        """Whether it goes on after one step."""
        self._began_ns = 0

    def arm(self, seconds, steps=1, every=1, lasting=False):
        """Record the next step, or every so many-th."""
        self.is_lasting = lasting
        # First the modules: without the hook of the step nothing comes of them.
        if not self.api.is_compiled:
            self.modules.arm(steps, seconds, every)
        self.hook.arm(steps, seconds, every)

    def stop(self):
        """Begin none any more; one that runs ends where its step does."""
        self.hook.disarm()
        self.modules.disarm()
        if self._began_ns:
            self.api.recorder.expire()

    # On the training thread.

    def begin(self, step):
        """Begin to record, unless that cannot be."""
        began = time.perf_counter_ns()
        if self._began_ns:
            self.end(step)
        api = self.api
        # Under a dispatch mode, ours or another probe's, each operator would be recorded twice.
        if api.recorder.is_on or api.is_op_watched or self.owner.waiting is not None:
            return
        step_s = api.step_s or 1.0
        patience_s = min(max(step_s * PATIENCE, LEAST_PATIENCE_S), MOST_PATIENCE_S)
        self.why = api.recorder.start(self.shapes, patience_s) or ""
        if self.why:
            if not self.is_lasting:
                self.hook.refuse(self.why)
            return
        api.kernels.begin()
        self.marks, self.step = [], step + 1
        self._delay_ns = _run_delay_ns()
        self._began_ns = time.time_ns()
        if not self.is_lasting:
            # Live until the step ends; the modules stay armed for so long.
            self.hook.disarm()
        self.pause_us = (time.perf_counter_ns() - began) / 1e3

    def enter(self, module, inputs):
        """Note that a module begins."""
        if self._began_ns and not self.api.recorder.end_if_due():
            self.marks.append((time.time_ns(), self.api.module_path(module)))

    def leave(self, module, inputs, output):
        """Note that a module ends."""
        if self._began_ns:
            self.marks.append((time.time_ns(), None))

    def end(self, step):
        """Take what was recorded, to be worked off elsewhere."""
        began, ended_ns = time.perf_counter_ns(), time.time_ns()
        since_ns, self._began_ns = self._began_ns, 0
        threads = self.api.recorder.stop()
        if not self.is_lasting:
            self.modules.disarm()
        marks, self.marks = self.marks, ()
        if not since_ns:
            return
        if threads is None:
            self.why = (
                "the training's own profiler began, or the step did not end in time: nothing is known of it"
            )
            return
        window = self.api.kernels.end(since_ns, ended_ns)
        delay_us = max(_run_delay_ns() - self._delay_ns, 0) / 1e3
        pause_us = self.pause_us + (time.perf_counter_ns() - began) / 1e3
        # The next one may begin before this one is worked off.
        one = Taken(self.step, self is self.owner.asked, self.shapes, pause_us, delay_us)
        taken = functools.partial(self._told, one, threads, marks, since_ns, ended_ns, window)
        if window is None:
            # A function runs on the shim's thread.
            self.api.emit("sample", taken)
        else:
            self.owner.waiting = (window, taken)

    def _told(self, one, threads, marks, began_ns, ended_ns, window):
        began_ns_of_thread = time.thread_time_ns()
        if sum(map(len, threads)) > 2 * MOST_OPS:
            threads = [one[: 2 * MOST_OPS] for one in threads[:1]]
        sums = self.api.sums(threads, marks, began_ns, ended_ns, one.shapes)
        try:
            kernels = window.told(sums.data_spans()) if window is not None else None
        finally:
            if window is not None:
                self.owner.waiting = None
        worked_us = (time.thread_time_ns() - began_ns_of_thread) / 1e3
        return self.owner.arrived(one, sums, kernels, worked_us)


def ranks_here():
    """Return how many ranks of the job its launcher has started on this machine, as far as it says so."""
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "WORLD_SIZE"):
        said = os.environ.get(name, "")
        if said.isdigit():
            return min(max(int(said), 1), 16)
    return 1


def _run_delay_ns():
    """Return what this thread has waited for a processor so far, 0 where the kernel keeps no account."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def steps_told(durations):
    """Return what is told of the times of steps: percentiles, and which were much slower than the others."""
    kept = list(durations)
    if len(kept) < 2:
        return {"n": len(kept)}
    times = sorted(one[1] for one in kept)
    median = times[len(times) // 2]
    slow = [one for one in kept if one[1] > max(median * SLOW, median + SLOWER_S)]
    return {
        "n": len(kept),
        "p50": median,
        "p99": times[min(int(len(times) * 0.99), len(times) - 1)],
        "slow": [[step, wall, duration] for step, duration, wall in slow[-16:]],
    }
