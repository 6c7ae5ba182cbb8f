"""What a probe in the training gets: the only way to torch's hooks, to the clock and to the monitor.

A probe is source text with a function `setup(api)`.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from . import shell
from .governor import median
from .hook import Hook
from .modes import is_compile_in_use, unseen
from .process import raised_by_signal
from .taps import Tap

if TYPE_CHECKING:
    from .probes import Probes


class Refused(Exception):
    """A request that cannot be carried out; the text says why and what to do."""


class Sampler:
    """A function of a probe that the shim's own thread calls `hz` times a second."""

    def __init__(
        self,
        probe: Probe,
        hz: float,
        call: Callable[[], Optional[Dict[str, Any]]],
        kind: str,
        key: Optional[str],
    ) -> None:
        self.probe = probe
        self.period_s = 1.0 / min(max(float(hz), 0.01), 20.0)
        self.call = call
        self.kind = kind
        self.key = key
        self.due_mono = 0.0


class Command:
    """A command of a probe and who holds it."""

    def __init__(
        self, name: str, start: Callable[..., Any], stop: Optional[Callable[[], Any]], hooks: Tuple[Hook, ...]
    ) -> None:
        self.name = name
        self.start = start
        self.stop = stop
        self.hooks = hooks
        self.started = False
        self.holder: Optional[Dict[str, Any]] = None
        self.connection: Any = None
        self.kept = False
        self.until_mono = 0.0
        self.orphan_mono: Optional[float] = None
        self.why = ""
        """Why it ended, from before its `stop` is called."""
        self.alone = False
        """Its probe has armed its hooks by itself, and that was told."""
        self.told_arms = 0

    @property
    def arms(self) -> int:
        """Return how often its hooks were armed."""
        return sum(one.arms for one in self.hooks)

    def phase(self) -> str:
        """Return off, arming, on or stopping, as the hooks really are."""
        armed = any(one.armed for one in self.hooks)
        if self.started and self.hooks:
            return "on" if any(one.until_step is not None and one.armed for one in self.hooks) else "arming"
        if self.started or armed:
            # A probe may arm them by itself, too.
            return "on"
        return "stopping" if any(one.live for one in self.hooks) else "off"


class Probe:
    """One loaded probe and everything it registered."""

    def __init__(self, name: str, order: int, sha: str) -> None:
        self.name = name
        self.order = order
        self.sha = sha
        self.failed: Optional[str] = None
        self.every_step: List[Callable[[int], Any]] = []
        self.now_and_then: List[Callable[[int], Any]] = []
        self.hooks: List[Hook] = []
        self.samplers: List[Sampler] = []
        self.commands: Dict[str, Command] = {}
        self.taps: List[Tap] = []
        self.ooms: List[Callable[[int, int, int, int], Any]] = []
        self.closers: List[Callable[[], Any]] = []


class Api:
    """What a probe gets: the only way to torch's hooks, to the clock and to the monitor."""

    def __init__(self, probe: Probe, probes: Probes) -> None:
        self._probe = probe
        self._probes = probes

    @property
    def torch(self) -> Any:
        """The training's torch, or None while it has not imported it."""
        return sys.modules.get("torch")

    @property
    def device(self) -> Any:
        """The adapter of the device in use (devices.py)."""
        return self._probes.device()

    @property
    def step(self) -> int:
        """The number of step attempts since the attach."""
        return int(self._probes.steps.step)

    @property
    def since_step_s(self) -> Optional[float]:
        """The seconds since a step last ended, None while none has since the attach."""
        ended_ns = self._probes.steps.last_boundary_ns
        return (time.perf_counter_ns() - ended_ns) / 1e9 if ended_ns else None

    @property
    def step_s(self) -> Optional[float]:
        """The median time of the last steps, None while there are no two."""
        durations = [float(one[0]) for one in list(self._probes.steps.durations)[-50:]]
        return median(durations) / 1e9 if durations else None

    @property
    def steps_s(self) -> List[Tuple[float, bool, int]]:
        """The times of the last steps, at most 256: each with whether hooks ran in it, and its number."""
        return [(ns / 1e9, armed, step) for ns, armed, step in list(self._probes.steps.durations)]

    @property
    def last_step_s(self) -> Optional[float]:
        """The time of the step that ended last, None before the first whole one; for the training thread."""
        durations = self._probes.steps.durations
        return durations[-1][0] / 1e9 if durations else None

    def on_step(self, call: Callable[[int], Any], every: bool = False) -> None:
        """Call `call(step)` on the training thread right after a step ended.

        At most ten times a second, unless `every` asks for each step: then it must cost about a
        microsecond.
        """
        (self._probe.every_step if every else self._probe.now_and_then).append(call)
        self._probes.refresh()

    def on_module(
        self,
        after: Callable[..., Any],
        before: Optional[Callable[..., Any]] = None,
        done: Optional[Callable[[int], Any]] = None,
    ) -> Hook:
        """Return a hook, off, that calls `after(module, inputs, output)` for each module's forward.

        `before(module, inputs)` runs ahead of it and `done(step)` where a step in which it ran ends, where
        given.  What they return is ignored.
        """
        return self._add(Hook(self._probe, "module", after, before, done=done))

    def on_op(
        self,
        after: Callable[..., Any],
        before: Optional[Callable[..., Any]] = None,
        done: Optional[Callable[[int], Any]] = None,
    ) -> Hook:
        """Return a hook, off, that calls `after(func, args, kwargs, result)` for each operator."""
        return self._add(Hook(self._probe, "op", after, before, done=done))

    def on_optimizer(self, call: Callable[[Any], Any], done: Optional[Callable[[int], Any]] = None) -> Hook:
        """Return a hook, off, that calls `call(optimizer)` where one has stepped, or a GradScaler skipped it.

        The gradients are then those of this step still.  That step is `step + 1`.
        """
        return self._add(Hook(self._probe, "optimizer", call, done=done))

    def tap(self, place: str, call: Callable[..., Any]) -> Tap:
        """Return a tap, off, at the "loss" or the "scaler": see taps.py; it is on while its `on` is true."""
        tap = Tap(self._probe, place, call)
        self._probe.taps.append(tap)
        return tap

    def read_later(self, tensors: List[Any], call: Callable[[List[float]], Any]) -> None:
        """Call `call(values)` on the training thread when the values of one-element tensors are on the host.

        No waiting for the device: at a later step, on a CPU at once.  For the training thread.
        """
        probe, probes = self._probe, self._probes

        def arrived(values: List[float]) -> None:
            # On a device nobody else guards it: it runs at a boundary.
            if probe.failed is not None:
                return
            try:
                call(values)
            except Exception as error:
                if raised_by_signal(error):
                    raise
                probes.disable(probe, "read_later", error)

        probes.readback.later(tensors, arrived)

    @property
    def late(self) -> int:
        """The number of times that values were given up, because the device was too far behind."""
        return self._probes.readback.late

    @property
    def is_compiled(self) -> bool:
        """Tell whether torch.compile is used: torch then warns, into the output, of hooks on modules."""
        return is_compile_in_use() or "torch._inductor.compile_fx" in sys.modules

    @property
    def is_op_watched(self) -> bool:
        """Tell whether operators are watched by a dispatch mode in the step that runs, or begins."""
        return any(one.live and one.kind == "op" for one in self._probes.switchboard.hooks)

    @property
    def recorder(self) -> Any:
        """torch's record of the operators of a step (recorder.py); for step hooks."""
        return self._probes.recorder

    def unseen(self) -> Any:
        """Return a context in which operators are seen neither by autograd nor by the training's modes."""
        return unseen()

    def parameter_names(self) -> Dict[int, str]:
        """Return the names of parameters by their id, as far as their modules were ever seen."""
        return self._probes.switchboard.paths.parameter_names()

    def at_step(self, call: Callable[[int], Any], rest: Optional[Callable[[int], Any]] = None) -> Hook:
        """Return a hook, off, that calls `call(step)` on the training thread where a live step begins.

        `rest(step)` is called where the first step without it begins, which never comes when no step ends any
        more: what lasts must also be undone by the command's `stop` and by `on_close`.
        """
        return self._add(Hook(self._probe, "step", call, rest=rest))

    def _add(self, hook: Hook) -> Hook:
        self._probe.hooks.append(hook)
        self._probes.refresh()
        return hook

    def module_path(self, module: Any) -> str:
        """Return the module's path below the outermost module of the call."""
        return self._probes.switchboard.paths.path(module)

    def sample(
        self,
        hz: float,
        call: Callable[[], Optional[Dict[str, Any]]],
        kind: str = "sample",
        key: Optional[str] = None,
    ) -> None:
        """Emit what `call()` returns, `hz` times a second (at most 20), from the shim's own thread.

        `key` names the number whose extremes the long history keeps; of several names, set apart by
        spaces, the first that is in the record counts.
        """
        self._probe.samplers.append(Sampler(self._probe, hz, call, kind, key))

    def emit(self, kind: str, data: Any, key: Optional[str] = None) -> None:
        """Send one record; from any thread, without waiting.

        `data` may also be a function: the shim's thread calls it, so that the training's need not.
        """
        self._probes.emit(self._probe.name, kind, data, key)

    def command(
        self,
        name: str,
        start: Callable[..., Any],
        stop: Optional[Callable[[], Any]] = None,
        hooks: Tuple[Hook, ...] = (),
    ) -> Command:
        """Offer a command, and return it.

        `start(arguments, steps, seconds)` runs on the shim's thread; it arms the `hooks` that carry
        the command, which is over when they are.
        """
        command = self._probe.commands[name] = Command(name, start, stop, tuple(hooks))
        return command

    def leaves(self, what: str) -> None:
        """Name what of this probe stays in the process after a detach: a detach says so."""
        if what not in shell.left_by_probes:
            shell.left_by_probes.append(what)

    def refuse(self, why: str) -> None:
        """Refuse, in a command's `start`, what cannot be done now; the probe stays in use."""
        raise Refused(why)

    def on_oom(self, call: Callable[[int, int, int, int], Any]) -> None:
        """Call `call(index, requested, total, free)` when the allocator of npu or cuda is out of memory.

        On the thread that asked, before it gets its exception; the allocator's lock is free.  Nothing may be
        allocated on the device then.
        """
        self._probe.ooms.append(call)

    def on_close(self, call: Callable[[], Any]) -> None:
        """Call `call()` on the shim's thread when the probe is removed or disabled."""
        self._probe.closers.append(call)
