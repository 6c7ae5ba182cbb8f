"""The shim: one daemon thread inside the training that listens, samples and reports.

It holds no lock the training could wait for, starts nothing the training did not start, and gives
everything back on detach except what it names.  The laws it keeps are in CONTRIBUTING.md.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Tuple

from . import devices, pages, process, shell
from .governor import Governor, median
from .history import History
from .hooks import Switchboard
from .pending import Pending
from .probes import Probes
from .requests import Desk
from .scaler import ScalerHook
from .server import Server
from .steps import OptimizerHook, Steps, torch_module

TICK_S = 0.1
LONELY_TICK_S = 0.5
"""Nobody is connected: the history needs no more."""
BEAT_S = 1.0
KEPT_RECORDS = 4096


class Agent:
    """The live shim of this process."""

    def __init__(self, path: str, version: str, area: Optional[Tuple[int, ...]]) -> None:
        self.version = version
        self.started_wall = time.time()
        self.boot = "%x" % int(self.started_wall * 1e6)
        self.area = area
        self.facts = process.facts()
        self.history = History()
        self.governor = Governor()
        self.cell: List[Any] = [None]
        self.steps = Steps(self._at_boundary, self._step_fault, self._is_calm)
        self.switchboard = Switchboard(self.steps, self.governor, self._hook_fault)
        self.probes = Probes(self.steps, self.switchboard, lambda: self.device, self.emit, self._event)
        self.device: Any = devices.Device()
        desk = Desk(self)
        self.server = Server(path, desk.greet, desk.handle, desk.gone)
        self.optimizer_hook = OptimizerHook(self.cell)
        self.scaler_hook = ScalerHook(self.steps)
        self.notes: List[str] = []
        self.dropped = 0
        self._queue: Deque[Tuple[str, str, int, float, float, Dict[str, Any], Optional[str]]] = deque(
            maxlen=KEPT_RECORDS
        )
        self._events: Deque[Dict[str, Any]] = deque(maxlen=256)
        self._steps_failed = False
        self._unhooking: Optional[Pending] = None
        self._thread: Optional[threading.Thread] = None
        self._stop = False
        self._watches_ooms = False
        self._next_beat = 0.0
        self._next_check = 0.0
        self._next_look = 0.0
        self._thread_ns = 0
        self._thread_at = 0.0

    # Life.

    def start(self) -> None:
        """Bind the socket and start the thread.  Raises OSError when there is no safe place for it."""
        self.server.open()
        shell.watch_forks()
        shell.agent = self
        self._thread = threading.Thread(target=self._run, name="ascend-tui-shim", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Tell whether the thread still serves this very process (not a forked child)."""
        return (
            not self._stop
            and self.facts["pid"] == os.getpid()
            and self._thread is not None
            and self._thread.is_alive()
        )

    @property
    def is_stopping(self) -> bool:
        """Tell whether the shim was taken out."""
        return self._stop

    def after_fork_in_child(self) -> None:
        """Give up what belongs to the parent: the child has its hooks' cells but not our thread."""
        self._stop = True
        self.cell[0] = None
        self.steps.armed = False
        self.server.close_all(unlink=False)
        self.device.close()
        self.probes.recorder.after_fork_in_child()
        # The child may train too: what slows it goes, as far as it can where the fork happened.
        self.scaler_hook.take_out()
        self.probes.taps.stop()
        self.switchboard.forget()
        self.optimizer_hook.take_out()

    def _run(self) -> None:
        try:
            while not self._stop:
                tick_s = TICK_S if self.server.connections else LONELY_TICK_S
                self._loop(time.monotonic() + tick_s)
            self.server.close_all(unlink=True)
        except Exception as error:
            # The shim gives up rather than guess: hooks off, socket closed, the training untouched.
            self._note("the shim stopped after a fault: %r" % (error,))
            self._stop = True
            for hook in self.switchboard.hooks:
                hook.retire()
            self._close_probes()
            self._take_hooks_out()
            self.server.close_all(unlink=True)
            self.device.close()
            shell.agent = None

    def _close_probes(self) -> None:
        """Have the probes undo what would last, after a fault of the shim that may also be theirs."""
        try:
            for name in list(self.probes.loaded):
                self.probes.unload(name)
        except Exception as error:
            self._note("the probes could not be closed: %r" % (error,))

    def _loop(self, until: float) -> None:
        while not self._stop:
            left = until - time.monotonic()
            self.server.poll(max(0.0, left))
            if left <= 0:
                break
        if not self._stop:
            self._tick(time.monotonic())

    def _tick(self, now: float) -> None:
        if now >= self._next_look:
            self._next_look = now + 1.0
            self._look_for_torch()
        self._settle_steps()
        self.probes.tick(now)
        if not self._is_calm():
            self.steps.wake()
        self.switchboard.tick(now)
        self.switchboard.expire()
        if self.switchboard.is_mode_left() or self.probes.recorder.is_due():
            self._take_mode_out()
        self._send()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_S
            self._clock_thread(now)
            self.server.broadcast(self.beat())
        if now >= self._next_check:
            self._next_check = now + 5.0
            if not self.server.is_in_place():
                try:
                    self.server.open()
                except OSError as error:
                    self._note("the socket is gone and cannot be made again yet: %s" % (error,))

    # Hooks and device.

    def _look_for_torch(self) -> None:
        hook = self.optimizer_hook
        if hook.key is None and not self._steps_failed and hook.is_ready():
            self.cell[0] = self.steps.on_optimizer
            if not hook.put_in_if_empty():
                # Another global hook is there: a moment is needed in which no thread is in a step.
                for _ in range(20):
                    if hook.put_in():
                        break
                    time.sleep(0.001)
        if torch_module("torch.amp.grad_scaler", "GradScaler") is not None:
            self.scaler_hook.put_in()
        try:
            better = devices.choose(self.device)
        except Exception as error:
            self._note("the device cannot be read: %r" % (error,))
            return
        if better is not None:
            self.device.close()
            self.device = better
        # torch's list of observers has no lock: where steps end, it is the training thread that adds to it.
        if not self.steps.last_boundary_ns:
            self._watch_ooms()

    def _watch_ooms(self) -> None:
        attach = self.device.oom_observer() if self.probes.wants_ooms() else None
        if attach is not None and not self._watches_ooms:
            self._watches_ooms = True
            shell.watch_ooms(self.device.kind, attach)

    def _take_mode_out(self) -> None:
        if self._unhooking is None or self._unhooking.done:
            self._unhooking = Pending(self._end_here)
        self._unhooking.ask()

    def _end_here(self) -> bool:
        """End on this thread what only it can end; True when nothing is left of it."""
        return self.probes.recorder.end_if_due() & self.switchboard.take_out_mode()

    def _at_boundary(self) -> None:
        """Do what is due where a step ends; on the training thread, inside the guard of Steps."""
        board, probes = self.switchboard, self.probes
        if self.device.is_capturing():
            board.in_capture()
            return
        probes.recorder.end_if_due()
        spent = self.steps.in_hook_ns
        # Ahead of the readings: what a step hook gives back here is not in them any more.
        board.at_boundary(spent[-1] if spent else 0)
        if probes.wants_boundary():
            board.quiet = True
            try:
                if probes.is_due:
                    self.device.on_training_thread()
                    self._watch_ooms()
                probes.at_boundary()
            finally:
                board.quiet = False

    def _is_calm(self) -> bool:
        probes = self.probes
        return not (probes.wants_boundary() or self.switchboard.is_wanted())

    def _settle_steps(self) -> None:
        for duration_ns, hook_ns in self.steps.settle():
            self.governor.observe(duration_ns, False, hook_ns, False)

    def _step_fault(self, text: str) -> None:
        # Our own code failed on the training thread: never again in this attach.
        self.cell[0] = None
        self._steps_failed = True
        self.scaler_hook.stop()
        self.probes.taps.stop()
        self.switchboard.break_off("the steps are not seen any more after a fault of the shim")
        self._note("step hook off after a fault: " + text)

    def _hook_fault(self, probe: Any, where: str, error: Exception) -> None:
        if probe is None:
            self._note("hooks off after a fault: %s: %r" % (where, error))
        self.probes.disable(probe, where, error)

    def _note(self, text: str) -> None:
        if text not in self.notes and len(self.notes) < 50:
            self.notes.append(text)

    # Records and events.

    def emit(self, plugin: str, kind: str, data: Any, key: Optional[str]) -> None:
        """Queue one record, or what will make one later; from any thread, without waiting."""
        if len(self._queue) == KEPT_RECORDS:
            self.dropped += 1
        self._queue.append((plugin, kind, self.steps.step, time.time(), time.monotonic(), data, key))

    def _event(self, event: Dict[str, Any]) -> None:
        event["type"] = "event"
        event["wall"] = time.time()
        self._events.append(event)

    def _send(self) -> None:
        records = []
        while self._queue:
            plugin, kind, step, wall, mono, data, key = self._queue.popleft()
            try:
                if callable(data):
                    data = data()
                records.append(self.history.add(plugin, kind, step, wall, mono, data, key))
            except Exception as error:
                # Not an object that JSON can hold, or one that is changed while it is read.
                self.probes.disable(self.probes.loaded.get(plugin), "emit", error)
        self.server.broadcast_records(records)
        while self._events:
            self.server.broadcast(self._events.popleft())

    def _clock_thread(self, now: float) -> None:
        used = time.thread_time_ns()
        if self._thread_at:
            self.governor.thread_share = (used - self._thread_ns) / 1e9 / max(now - self._thread_at, 1e-3)
        self._thread_ns, self._thread_at = used, now

    def beat(self) -> Dict[str, Any]:
        """Return the pulse that every monitor gets once a second."""
        durations = [one[0] for one in list(self.steps.durations)[-50:]]
        since = (
            (time.perf_counter_ns() - self.steps.last_boundary_ns) / 1e9
            if self.steps.last_boundary_ns
            else None
        )
        return {
            "type": "beat",
            "wall": time.time(),
            "mono": time.monotonic(),
            "step": self.steps.step,
            "skipped": self.steps.skipped,
            "step_s": median([float(one) for one in durations]) / 1e9 if durations else None,
            "since_step_s": since,
            "source": self.steps.source,
            "hooked": self.optimizer_hook.key is not None,
            "cost": self.governor.cost(),
            "dropped": self.dropped,
            "commands": self.probes.states(),
            "faults": self.probes.faults(),
            "notes": list(self.notes),
            "torch": process.torch_versions(),
            "device": self.device.describe(),
        }

    # Detach.

    def detach(self) -> List[str]:
        """Take everything out and return, in words, what could not be.  On the shim's thread."""
        self.server.stop_listening(unlink=True)
        for name in list(self.probes.loaded):
            self.probes.unload(name)
        left = self._take_hooks_out()
        self.device.close()
        self._stop = True
        return left + shell.residue() + self._farewell()

    def _take_hooks_out(self) -> List[str]:
        """Take out what is in torch, and return, in words, what stays.  On the shim's thread."""
        board, hook = self.switchboard, self.optimizer_hook

        def at_the_end_of_a_step(optimizer: Any) -> None:
            # All of it can go here, the hook itself while it is the last one; the trampoline guards it.
            board.drop_module_hooks()
            if self._end_here() and hook.take_out_from_inside():
                self.cell[0] = None

        self.scaler_hook.stop()
        self.probes.readback.close()
        taps_out = self.probes.taps.stop()
        self.cell[0] = at_the_end_of_a_step
        self.probes.recorder.expire()
        modes = Pending(self._end_here)
        durations = [float(one[0]) for one in list(self.steps.durations)]
        end = time.monotonic() + min(2.0, 0.5 + 3 * (median(durations) / 1e9 if durations else 0.0))
        while True:
            modules_out = board.drop_module_hooks(from_afar=True)
            mode_out, record_out = not board.is_mode_left(), not self.probes.recorder.is_on
            if not (mode_out and record_out):
                modes.ask()
            late = time.monotonic() > end
            hook_out = ((mode_out and record_out) or late) and hook.take_out()
            if late or (modules_out and mode_out and record_out and hook_out):
                break
            time.sleep(0.002)
        self.cell[0] = None
        left = []
        if not modules_out:
            left.append("module hooks that pass through and go at the next call of a module")
        if not mode_out:
            left.append("a dispatch mode that passes through, until the main thread runs Python again")
        if not record_out:
            left.append("torch's record of operators, until the main thread runs Python")
        if not hook_out:
            left.append(
                "an optimizer hook that does nothing (2 us per step; no safe moment came to remove it)"
            )
        if not taps_out:
            left.append("a torch.autograd.backward that passes through (somebody wrapped it again)")
        if not self.scaler_hook.take_out():
            left.append("a GradScaler.update wrapper that passes through (somebody wrapped it again)")
        return left

    def _farewell(self) -> List[str]:
        """Leave the socket and sys.modules; unmap the pages the injector brought, when they are idle."""
        left = []
        package = __name__.partition(".")[0]
        if package == "_ascend_tui_shim":
            for name in list(sys.modules):
                if name.startswith(package) and name != shell.__name__:
                    del sys.modules[name]
        shell.agent = None
        if self.area:
            mapped = pages.give_back(self.area)
            if mapped:
                left.append(mapped)
        return left


def begin(path: str, version: str, area: Optional[Tuple[int, ...]]) -> None:
    """Start the shim, once: a second injection only wakes the one that is there."""
    present = shell.agent
    if present is not None and present.is_alive():
        if not present.server.is_in_place():
            present._next_check = 0.0
        if area:
            pages.give_back(area)
        return
    Agent(path, version, area).start()
