"""Probes in the training: loading and removing them, and the law that each of them is held to.

Guard, lease, governor, order and removal are here and not in the probes, so that none can forget them.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from .api import Api, Command, Probe, Refused, Sampler
from .hooks import Switchboard
from .process import raised_by_signal
from .readback import Readback
from .taps import Taps

MOST_STEPS = 1000000
MOST_SECONDS = 3600.0
ALONE = "started by its probe"


class Probes:
    """All probes of this shim, in their order."""

    def __init__(
        self,
        steps: Any,
        switchboard: Switchboard,
        device: Callable[[], Any],
        emit: Callable[..., None],
        event: Callable[[Dict[str, Any]], None],
    ) -> None:
        self.steps = steps
        self.switchboard = switchboard
        self.device = device
        self.emit = emit
        self.event = event
        self.loaded: Dict[str, Probe] = {}
        self.readback = Readback()
        self.recorder = switchboard.recorder
        self.taps = Taps(steps, switchboard, self.disable)
        self.is_due = False
        # Probes that failed on the training thread; the shim's thread takes their things out.
        self._failed: Deque[Probe] = deque()
        self.every_step: Tuple[Tuple[Probe, Callable[[int], Any]], ...] = ()
        self.now_and_then: Tuple[Tuple[Probe, Callable[[int], Any]], ...] = ()

    # Loading and removal (shim thread).

    def load(self, name: str, source: str, order: int) -> Dict[str, Any]:
        """Run a probe's `setup`; one of the same text is left as it is, another one replaced."""
        sha = hashlib.sha256(source.encode()).hexdigest()
        present = self.loaded.get(name)
        if present is not None and present.sha == sha and present.failed is None:
            return {"loaded": name, "sha": sha, "again": True}
        if present is not None:
            self.unload(name)
        probe = Probe(name, order, sha)
        self.loaded[name] = probe
        space: Dict[str, Any] = {"__name__": "_ascend_tui_probe_" + name}
        try:
            exec(compile(source, "<ascend-tui-probe-%s>" % name, "exec"), space)
            space["setup"](Api(probe, self))
        except (Exception, SystemExit) as error:
            self.disable(probe, "setup", error)
            self._clear_failed()
            raise Refused("the probe %s did not start: %s" % (name, said(error))) from None
        self.refresh()
        return {"loaded": name, "sha": sha, "again": False}

    def unload(self, name: str) -> None:
        """Stop a probe's commands and forget all that it registered."""
        probe = self.loaded.pop(name, None)
        if probe is not None:
            self._silence(probe)

    def disable(self, probe: Optional[Probe], where: str, error: BaseException) -> None:
        """Switch a probe off after its fault and report it; from any thread.

        From here on nothing of it is called; what it registered is taken out by the shim's thread.
        """
        if probe is not None:
            if probe.failed is not None:
                return
            probe.failed = "%s: %s" % (where, said(error))
            for hook in probe.hooks:
                hook.retire()
            # Whose it is does not matter: nobody may be left who would end it.
            self.recorder.expire()
            self._failed.append(probe)
        text = "%s: %s" % (where, told(error))
        self.event(
            {"event": "probe", "plugin": probe.name if probe else "", "phase": "failed", "reason": text}
        )

    def _clear_failed(self) -> None:
        while self._failed:
            self._silence(self._failed.popleft())

    def _silence(self, probe: Probe) -> None:
        for hook in probe.hooks:
            hook.retire()
        self.recorder.expire()
        for command in list(probe.commands.values()):
            if command.started or command.alone:
                command.started = command.alone = False
                self._tell(probe, command, "its probe is off")
        probe.every_step, probe.now_and_then, probe.samplers, probe.ooms = [], [], [], []
        probe.taps = []
        closers, probe.closers = probe.closers, []
        for close in closers:
            try:
                close()
            except (Exception, SystemExit) as error:
                reason = "close: " + said(error)
                self.event({"event": "probe", "plugin": probe.name, "phase": "failed", "reason": reason})
        self.refresh()

    def refresh(self) -> None:
        """Rebuild the tuples that the training thread walks; a swap, never a change in place."""
        ordered = sorted(self.loaded.values(), key=lambda one: (one.order, one.name))
        self.every_step = tuple((one, call) for one in ordered for call in one.every_step)
        self.now_and_then = tuple((one, call) for one in ordered for call in one.now_and_then)
        live = [hook for one in ordered for hook in one.hooks]
        # A silenced probe's hooks stay listed until a boundary has switched them off.
        gone = [hook for hook in self.switchboard.hooks if hook not in live and hook.live]
        self.switchboard.hooks = live + gone
        self.serve_taps()

    def serve_taps(self) -> None:
        """Listen where the probes want it now."""
        self.taps.serve([tap for one in list(self.loaded.values()) for tap in one.taps])

    # The training thread.

    def wants_boundary(self) -> bool:
        """Tell whether the next boundary has something for `at_boundary`."""
        return self.is_due or bool(self.every_step) or self.readback.waits

    def at_boundary(self) -> None:
        """Call what the probes want called after a step."""
        step = self.steps.step
        self.readback.poll()
        for probe, call in self.every_step:
            self._guarded(probe, call, step)
        if self.is_due:
            self.is_due = False
            for probe, call in self.now_and_then:
                self._guarded(probe, call, step)

    def _guarded(self, probe: Probe, call: Callable[..., Any], *args: int, where: str = "step hook") -> None:
        if probe.failed is not None:
            return
        try:
            call(*args)
        except Exception as error:
            if raised_by_signal(error):
                raise
            self.disable(probe, where, error)

    def at_oom(self, index: int, requested: int, total: int, free: int) -> None:
        """Tell the probes of an allocation that failed; on the thread that asked for it."""
        for probe in list(self.loaded.values()):
            for call in list(probe.ooms):
                self._guarded(probe, call, index, requested, total, free, where="oom observer")

    def wants_ooms(self) -> bool:
        """Tell whether a probe wants to hear of an allocation that failed."""
        return any(probe.ooms for probe in list(self.loaded.values()))

    # The shim's thread, between requests.

    def tick(self, now: float) -> None:
        """Take the samples that are due and end what is past its lease."""
        self.is_due = bool(self.now_and_then)
        self._clear_failed()
        self.serve_taps()
        for probe in list(self.loaded.values()):
            for sampler in list(probe.samplers):
                if now >= sampler.due_mono and probe.failed is None:
                    sampler.due_mono = max(sampler.due_mono + sampler.period_s, now + sampler.period_s / 2)
                    self._sample(probe, sampler)
            for command in list(probe.commands.values()):
                self._watch(probe, command, now)

    def _sample(self, probe: Probe, sampler: Sampler) -> None:
        try:
            data = sampler.call()
            if data:
                self.emit(probe.name, sampler.kind, data, sampler.key)
        except (Exception, SystemExit) as error:
            self.disable(probe, "sampler", error)

    def _watch(self, probe: Probe, command: Command, now: float) -> None:
        refused = [one.refused for one in command.hooks if one.refused]
        if not command.started:
            self._watch_alone(probe, command, refused)
        elif refused:
            self.end(probe, command, "refused: " + str(refused[0]))
        elif now > command.until_mono or (command.hooks and not any(one.armed for one in command.hooks)):
            idle = command.hooks and all(one.until_step is None for one in command.hooks)
            self.end(probe, command, "lease over before a step ended" if idle else "lease over")
        elif command.orphan_mono is not None and now > command.orphan_mono:
            self.end(probe, command, "its monitor is gone")

    def _watch_alone(self, probe: Probe, command: Command, refused: List[str]) -> None:
        """Tell of hooks that the probe arms by itself, as of those that somebody starts."""
        if command.arms != command.told_arms:
            command.told_arms = command.arms
            if not command.alone:
                command.alone = True
                self._tell(probe, command, ALONE)
        if command.alone and not any(one.armed for one in command.hooks):
            command.alone = False
            self._tell(probe, command, "refused: " + str(refused[0]) if refused else "lease over")

    # Commands (shim thread).

    def find(self, plugin: str, name: str) -> Tuple[Probe, Command]:
        """Return a command.  Raises Refused with what there is."""
        probe = self.loaded.get(plugin)
        if probe is None:
            raise Refused("no probe %r is loaded" % plugin)
        if probe.failed is not None:
            raise Refused("the probe %s is off after a fault: %s" % (plugin, probe.failed))
        command = probe.commands.get(name)
        if command is None:
            raise Refused(
                "%s has no command %r; it has: %s"
                % (plugin, name, ", ".join(sorted(probe.commands)) or "none")
            )
        return probe, command

    def start(
        self,
        plugin: str,
        name: str,
        arguments: Dict[str, Any],
        steps: int,
        seconds: float,
        holder: Dict[str, Any],
        connection: Any,
        kept: bool,
    ) -> Dict[str, Any]:
        """Start a command for `holder`.  Raises Refused when somebody else holds it."""
        probe, command = self.find(plugin, name)
        if command.started and command.connection is not connection:
            raise Refused("%s.%s is held by %s" % (plugin, name, describe(command.holder)))
        steps = min(max(1, int(steps)), MOST_STEPS)
        seconds = min(max(0.1, float(seconds)), MOST_SECONDS)
        try:
            result = command.start(arguments, steps, seconds)
        except Refused:
            raise
        except (Exception, SystemExit) as error:
            self.disable(probe, "command %s" % name, error)
            self._clear_failed()
            raise Refused("%s.%s failed: %s" % (plugin, name, said(error))) from None
        command.started, command.alone, command.told_arms = True, False, command.arms
        command.holder, command.connection, command.kept = holder, connection, kept
        command.orphan_mono = None
        command.until_mono = time.monotonic() + seconds
        self._tell(probe, command, "started")
        return {"phase": command.phase(), "steps": steps, "seconds": seconds, "result": result}

    def stop(self, plugin: str, name: str, by: str) -> Dict[str, Any]:
        """Stop a command, whoever holds it: stopping is always safe."""
        probe, command = self.find(plugin, name)
        if command.started or any(hook.armed for hook in command.hooks):
            self.end(probe, command, "stopped by " + by)
        return {"phase": command.phase()}

    def end(self, probe: Probe, command: Command, why: str) -> None:
        """End a command: disarm its hooks and call its `stop`."""
        command.started = command.alone = False
        command.why = why
        for hook in command.hooks:
            hook.disarm()
        if command.stop is not None:
            try:
                command.stop()
            except (Exception, SystemExit) as error:
                self.disable(probe, "stop of %s" % command.name, error)
        command.told_arms = command.arms
        self._tell(probe, command, why)
        command.holder = command.connection = None

    def orphan(self, connection: Any, seconds: float) -> None:
        """Let the commands of a connection that is gone end in `seconds`, unless they were to be kept."""
        for probe in list(self.loaded.values()):
            for command in list(probe.commands.values()):
                if command.started and command.connection is connection and not command.kept:
                    command.orphan_mono = time.monotonic() + seconds

    def release(self, connection: Any) -> List[str]:
        """End the commands that a connection holds; return their names."""
        ended = []
        for probe in list(self.loaded.values()):
            for command in list(probe.commands.values()):
                if command.started and command.connection is connection:
                    self.end(probe, command, "released")
                    ended.append(probe.name + "." + command.name)
        return ended

    def states(self) -> List[Dict[str, Any]]:
        """Return the commands that are not off."""
        return [
            {
                "plugin": probe.name,
                "name": command.name,
                "phase": command.phase(),
                "holder": describe(command.holder),
            }
            for probe in list(self.loaded.values())
            for command in list(probe.commands.values())
            if command.phase() != "off"
        ]

    def faults(self) -> Dict[str, str]:
        """Return the probes that are off after a fault, with the fault."""
        return {name: probe.failed for name, probe in list(self.loaded.items()) if probe.failed}

    def _tell(self, probe: Probe, command: Command, why: str) -> None:
        self.event(
            {
                "event": "command",
                "plugin": probe.name,
                "name": command.name,
                "phase": command.phase(),
                "holder": describe(command.holder),
                "reason": why,
            }
        )
        # Events are neither kept nor have a step: a record tells every monitor where the switch lies.
        phase = "started" if why in ("started", ALONE) else "ended"
        data = {"plugin": probe.name, "name": command.name, "phase": phase, "reason": why}
        self.emit("core", "command", data, None)


def describe(holder: Optional[Dict[str, Any]]) -> str:
    """Return a holder as people are told of it."""
    return (
        "%s (pid %s, uid %s)" % (holder.get("name"), holder.get("pid"), holder.get("uid")) if holder else ""
    )


def said(error: BaseException) -> str:
    """Return an exception as text; its own `__repr__` may fail."""
    try:
        return repr(error)[:500]
    except Exception:
        return type(error).__name__


def told(error: BaseException) -> str:
    """Return an exception with its traceback, cut to what one event can carry."""
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__))[-3000:]
    except Exception:
        return said(error)
