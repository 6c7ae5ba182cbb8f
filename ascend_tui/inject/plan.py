"""What an injection would do, found out without doing it."""

from __future__ import annotations

import dataclasses

from ascend_tui.frozen import frozen
from ascend_tui.inject import gdb, remote_exec
from ascend_tui.inject.api import ASKED_FOR, NOTHING_STOPS, ask_helper
from ascend_tui.inject.refusals import refusal_for
from ascend_tui.target import Refusal, RefusedError, Target, proc, socket_path

ONLY_BY_NAME = "only when asked for by name: it stops all threads"
NO_SHIM = "no shim is in it"
LOOK_S = 2.0


@frozen
class Layer:
    """One way in, and why it is open or closed; `reason` is an English message id."""

    layer: str
    possible: bool
    reason: str


@frozen
class PlannedThread:
    """The thread that would be borrowed; `waits_in` is empty when it is taken wherever it is."""

    tid: int
    name: str
    waits_in: str
    is_main: bool


@frozen
class Plan:
    """What an attach would do now.

    `chosen` is the layer, `reason` why it is that one; `layers` are all of them in the order in which they
    are looked at. `socket` is where the monitor finds the shim. `maps_bytes` is what would be mapped,
    read-write and read-execute. `warning` says what the chosen layer does to the training.
    """

    pid: int
    title: str
    python: str | None
    method: str
    chosen: str
    reason: str
    layers: tuple[Layer, ...]
    socket: str
    thread: PlannedThread | None = None
    maps_bytes: tuple[int, int] = (0, 0)
    warning: str = ""

    def as_json(self) -> dict[str, object]:
        """Return a JSON-ready dict."""
        return dataclasses.asdict(self)


def plan_reuse(target: Target, method: str) -> Plan:
    """Return the plan where a shim is there already."""
    layers = (Layer("reuse", True, "a shim is already there"),)
    return _plan(target, method, "reuse", layers[0].reason, layers)


def plan_injection(target: Target, payload: str, method: str) -> Plan | Refusal:
    """Return what `inject` would do, or the refusal it would end in; preflight is the caller's.

    Nothing is stopped and nothing is written, in the target or anywhere else.
    """
    is_new = remote_exec.is_known_to(target)
    why_not, no_gdb = remote_exec.why_not(target), gdb.why_not(target)
    first = Layer("remote_exec", not why_not, why_not or NOTHING_STOPS)
    last = Layer("gdb", not no_gdb, no_gdb or (ASKED_FOR if method == "gdb" else ONLY_BY_NAME))
    named = {"remote_exec": (first, why_not), "gdb": (last, no_gdb)}
    if method in named and named[method][1]:
        return refusal_for(target, method, named[method][1])
    by_helper = method in ("auto", "thread", "pending")
    try:
        seen = ask_helper(target, payload, method if by_helper else "auto", LOOK_S, dry_run=True)
    except RefusedError as error:
        if method == "remote_exec" or (method == "auto" and not why_not):
            closed = error.refusal.why.format(**dict(error.refusal.params))
            middle = (Layer("thread", False, closed), Layer("pending", False, closed))
            return _plan(target, method, "remote_exec", first.reason, _layers(first, *middle, last))
        return error.refusal
    layers = _layers(
        first,
        Layer("thread", seen["can_thread"], seen["thread"]),
        Layer("pending", True, seen["pending"]),
        last,
    )
    if method == "remote_exec" or (method == "auto" and not why_not):
        return _plan(target, method, "remote_exec", NOTHING_STOPS if method == "auto" else ASKED_FOR, layers)
    if method == "gdb":
        return _plan(target, method, "gdb", ASKED_FOR, layers, (gdb.MAPPED_BYTES, 0), gdb.WARNING)
    passed = f"remote_exec passed over: {why_not}; " if method == "auto" and is_new else ""
    rw, rx = seen["sizes"]
    plan = _plan(target, method, seen["method"], passed + seen["reason"], layers, (rw, rx))
    return dataclasses.replace(plan, thread=_thread(target, seen["tid"], seen["waits_in"]))


def _layers(*after_reuse: Layer) -> tuple[Layer, ...]:
    return (Layer("reuse", False, NO_SHIM), *after_reuse)


def _plan(
    target: Target,
    method: str,
    chosen: str,
    reason: str,
    layers: tuple[Layer, ...],
    maps_bytes: tuple[int, int] = (0, 0),
    warning: str = "",
) -> Plan:
    return Plan(
        pid=target.id.pid,
        title=target.title,
        python=target.python,
        method=method,
        chosen=chosen,
        reason=reason,
        layers=layers,
        socket=str(socket_path(target)),
        maps_bytes=maps_bytes,
        warning=warning,
    )


def _thread(target: Target, tid: int, waits_in: str) -> PlannedThread:
    name = (proc.read_bytes(f"/proc/{target.id.pid}/task/{tid}/comm") or b"").decode("utf-8", "replace")
    return PlannedThread(tid, name.strip(), waits_in, tid == target.id.pid)
