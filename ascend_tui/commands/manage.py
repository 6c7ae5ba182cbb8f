"""Commands that speak to one shim and end: `do` and `detach`."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ascend_tui.attach import attach, has_shim, target_of, why_not
from ascend_tui.commands import OK, REFUSED, USAGE
from ascend_tui.commands.output import data, line, refuse, say
from ascend_tui.commands.ranks import expand
from ascend_tui.connection import ShimClient, ShimError, ShimGone
from ascend_tui.decode import residue_lines
from ascend_tui.frame import SCHEMA
from ascend_tui.plugin import Lease, Plugin, load, probe_text
from ascend_tui.target import RefusedError, Target

DEFAULT_LEASE = Lease(200, 60.0)


def detach(pid: int, as_data: bool) -> int:
    """Remove the shim from a process, of a launcher from its ranks, and say truthfully what stays there."""
    try:
        target = target_of(pid)
    except RefusedError as error:
        refuse(error.refusal, as_data)
        return REFUSED
    found = expand(target, "", may_ask=False)
    if target not in found and has_shim(target):
        # One that was started by `run` has a shim itself.
        found.append(target)
    return max(_detach(one, as_data) for one in found)


def _detach(target: Target, as_data: bool) -> int:
    pid = target.id.pid
    try:
        client = attach(target, name="detach", writable=True, may_inject=False).client
    except RefusedError as error:
        refuse(error.refusal, as_data)
        return REFUSED
    except ShimGone:
        refusal = why_not(target)
        if refusal is not None and refusal.code in ("other_user", "user_namespace"):
            # Whether there is one cannot be seen: its folder is its user's alone.
            refuse(refusal, as_data)
            return REFUSED
        if as_data:
            data({"schema": SCHEMA, "pid": pid, "removed": False, "residue": []})
        else:
            line(f"no shim in {pid}: nothing to remove")
        return OK
    except ShimError as error:
        return _refused(f"cannot detach from {pid}", f"{error}; nothing was changed", as_data)
    try:
        residue = client.request("detach").get("residue", [])
    except ShimError as error:
        return _refused(f"cannot detach from {pid}", f"{error}; ask again in a moment", as_data)
    finally:
        client.close()
    if as_data:
        data({"schema": SCHEMA, "pid": pid, "removed": True, "residue": residue})
    else:
        for one in residue_lines(pid, residue):
            line(one)
    return OK


def do(pid: int, name: str, words: Sequence[str], as_data: bool, wait: bool) -> int:
    """Carry out what a hotkey does, for scripts: `PLUGIN.COMMAND [start|stop] [key=value …]`.

    A command may have words of its own for the two: reuse that is started is `off`.
    """
    plugin_name, _, command = name.partition(".")
    asked = words[0] if words and "=" not in words[0] else ""
    rest = words[1:] if asked else words
    pairs = dict(word.partition("=")[::2] for word in rest)
    if not command or any("=" not in word for word in rest):
        say("say it as: ascend-tui do PID PLUGIN.COMMAND [start|stop] [key=value …]")
        return USAGE
    try:
        # What cannot be done is found out before anything is put into the training.
        plugin = None if plugin_name == "core" else _plugin(plugin_name)
        action = _action(plugin, command, asked)
        lease = _lease(plugin, command, pairs)
    except ValueError as error:
        say(f"{name} was not done: {error}")
        return USAGE
    except LookupError as error:
        return _refused(f"{name} was not done", str(error), as_data)
    try:
        client = attach(target_of(pid), name="do", writable=True).client
    except RefusedError as error:
        refuse(error.refusal, as_data)
        return REFUSED
    except ShimError as error:
        return _refused(f"cannot speak to the shim of {pid}", str(error), as_data)
    try:
        if plugin is None:
            result = _core(client, command, pairs)
        else:
            arguments = {key: value for key, value in pairs.items() if key not in ("steps", "seconds")}
            result = _command(client, plugin, command, action, arguments, lease, wait)
    except (LookupError, ShimError) as error:
        return _refused(f"{name} was not done", str(error), as_data)
    finally:
        client.close()
    if as_data:
        data({"schema": SCHEMA, "pid": pid, "command": name, "action": action, **result})
    else:
        line(f"{name}: {result.get('phase', 'done')}{_ending(result)}")
    return OK


def _refused(what: str, why: str, as_data: bool) -> int:
    if as_data:
        data({"schema": SCHEMA, "refused": {"what": what, "why": why}})
    say(f"{what}: {why}")
    return REFUSED


def _plugin(name: str) -> Plugin:
    try:
        plugin = load(name)
        probe_text(plugin)
    except LookupError:
        raise
    except Exception as error:  # noqa: BLE001 - a third party's import can raise anything
        why = f"the plugin {name} cannot be loaded: {type(error).__name__}: {error}"
        raise LookupError(why) from None
    if plugin.probe is None:
        raise LookupError(f"{plugin.name} has no probe, so nothing to start")
    return plugin


def _action(plugin: Plugin | None, command: str, word: str) -> str:
    """Return `start` or `stop` for the word that was given, if any.  Raises ValueError for an unknown one."""
    actions = {"": "start", "start": "start", "stop": "stop"}
    for one in plugin.commands if plugin else ():
        if one.name == command:
            starts, stops = one.words
            actions.update({starts: "start", stops: "stop"})
    if word not in actions:
        known = "|".join(filter(None, actions))
        raise ValueError(f"say it as: ascend-tui do PID PLUGIN.COMMAND [{known}] [key=value …]")
    return actions[word]


def _lease(plugin: Plugin | None, command: str, pairs: Mapping[str, str]) -> Lease:
    """Return the lease that is asked for, else the command's own.  Raises ValueError for what is no lease."""
    known = {one.name: one.lease for one in plugin.commands} if plugin else {}
    lease = known.get(command, DEFAULT_LEASE)
    try:
        steps, seconds = int(pairs.get("steps", lease.steps)), float(pairs.get("seconds", lease.seconds))
    except ValueError:
        raise ValueError("steps is a whole number, seconds a number") from None
    if not (steps >= 1 and 0 < seconds < math.inf):
        raise ValueError("steps and seconds are above 0")
    return Lease(steps, seconds)


def _ending(result: Mapping[str, Any]) -> str:
    if "steps" not in result:
        return ""
    return f"; its lease ends after {result['steps']} steps or {result['seconds']:.0f} s{_says(result)}"


def _says(result: Mapping[str, Any]) -> str:
    """Return the sentence that a probe gave with its answer (`says`), to go behind another one."""
    told = result.get("result")
    says = told.get("says") if isinstance(told, Mapping) else None
    return f"; {says}" if says else ""


def _core(client: ShimClient, command: str, pairs: Mapping[str, str]) -> dict[str, Any]:
    if command != "mark":
        raise LookupError("core has one command: mark")
    return client.request("mark", label=pairs.get("label", ""), sign=pairs.get("sign", "m"))


def _command(
    client: ShimClient,
    plugin: Plugin,
    command: str,
    action: str,
    arguments: Mapping[str, str],
    lease: Lease,
    wait: bool,
) -> dict[str, Any]:
    client.request("probe", plugin=plugin.name, source=probe_text(plugin), order=plugin.order)
    result = client.request(
        "command",
        plugin=plugin.name,
        name=command,
        action=action,
        arguments=arguments,
        lease={"steps": lease.steps, "seconds": lease.seconds},
        # Nobody stays to hold it: the lease alone ends it.
        keep=True,
    )
    if action == "start" and wait:
        # The shim may have cut the lease.
        seconds = float(result.get("seconds", lease.seconds))
        says = _says(result)
        say(f"{plugin.name}.{command} runs{says}; waiting for its lease (at most {seconds:.0f} s)")
        result["ended"] = _wait(client, plugin.name, command, seconds + 10.0)
        result["phase"] = "off"
    return result


def _wait(client: ShimClient, plugin: str, command: str, seconds: float) -> str:
    """Return why the command ended.  Raises ShimError when it could not do its work."""
    end = time.monotonic() + seconds
    started = False
    while time.monotonic() < end:
        for frame in client.receive():
            named = (frame.get("event"), frame.get("plugin"), frame.get("name"))
            if named != ("command", plugin, command):
                continue
            reason = str(frame.get("reason"))
            if reason == "started":
                # Before it comes the end of what somebody else had started.
                started = True
            elif started:
                if reason.startswith("refused") or reason == "its probe is off":
                    raise ShimError(reason)
                return reason
        time.sleep(0.05)
    raise ShimError("its end was not heard of; see: ascend-tui attach")
