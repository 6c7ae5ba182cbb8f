"""Why a shim that was handed over says nothing: what /proc shows of the time spent waiting for it."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import NamedTuple

from ascend_tui.inject import area as areas
from ascend_tui.inject import choose
from ascend_tui.inject.api import Injection
from ascend_tui.inject.memory import Memory
from ascend_tui.target import Refusal, Target, proc

BUSY_SHARE = 0.5
IDLE_SHARE = 0.1  # a thread that asks for the interpreter's lock wakes 200 times a second
ON_MAIN = ("pending", "remote_exec", "gdb")

ITSELF = "The shim starts by itself as soon as Python runs again; attach again then. "
SENTENCES = {
    "begun": "the shim has begun to start in it, and has not answered within {seconds} s",
    "main computes": (
        "its main thread has run no Python code for {seconds} s: it computes in native code ({cpu_s} s of "
        "processor time)"
    ),
    "main waits": (
        "its main thread has run no Python code for {seconds} s: it waits in a native call ({call})"
    ),
    "main silent": "its main thread has run no Python code for {seconds} s",
    "lock computes": (
        "native code holds the interpreter's lock: no Python code of it has run for {seconds} s, while "
        "thread {tid} ({name}) computed ({cpu_s} s of processor time)"
    ),
    "lock sleeps": (
        "no Python code of it has run for {seconds} s while its threads slept (the main thread in {call}): a "
        "native call keeps the interpreter's lock while it waits, or the program is ending"
    ),
    "lock silent": "no Python code of it has run for {seconds} s: native code holds the interpreter's lock",
    "see": ITSELF + "Where it is now: `py-spy dump --nonblocking --pid {pid}`",
    "see by hand": (
        ITSELF
        + "Where it is now: `pip install py-spy`, then `py-spy dump --nonblocking --pid {pid}`; or, of "
        "the kernel, /proc/{pid}/stack as root"
    ),
    "otherwise": (
        "It starts by itself when that call returns. Where `threading` is imported (torch does it), "
        "`--method thread` does not wait for that"
    ),
}


class Spent(NamedTuple):
    """What a thread did: seconds on a processor, and seconds on one or waiting for one.

    The second tells work from waiting also on a machine that has too few processors.
    """

    cpu_s: float
    runnable_s: float

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.cpu_s - other.cpu_s, self.runnable_s - other.runnable_s)


_START = Spent(0.0, 0.0)


class Watch:
    """The threads of a process from the moment of the handover on."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._before = _spent(target.id.pid)

    def refusal(self, done: Injection, seconds: float) -> Refusal:
        """Say what is known of the `seconds` since then, and how to see more."""
        reason, values = self._why(done, seconds)
        next_step = SENTENCES["see" if shutil.which("py-spy") else "see by hand"]
        if reason == "main waits" and done.method == "pending":
            next_step = SENTENCES["otherwise"]
        values.update(pid=self._target.id.pid, seconds=round(seconds), method=done.method)
        what = "the shim in {pid}, handed over by {method}, did not answer"
        return Refusal("silent", what, SENTENCES[reason], next_step, tuple(values.items()))

    def _why(self, done: Injection, seconds: float) -> tuple[str, dict[str, object]]:
        pid = self._target.id.pid
        if _has_begun(pid, done):
            return "begun", {}
        spent = {tid: now - self._before.get(tid, _START) for tid, now in _spent(pid).items()}
        call = choose.waits_in(pid, pid) or "?"
        on_main = done.method in ON_MAIN
        if pid not in spent:
            return ("main silent" if on_main else "lock silent"), {}
        if on_main:
            main = spent[pid]
            if main.runnable_s > BUSY_SHARE * seconds:
                return "main computes", {"cpu_s": round(main.cpu_s, 1)}
            if main.runnable_s < IDLE_SHARE * seconds:
                return "main waits", {"call": call}
            return "main silent", {}
        busy = {tid: one for tid, one in spent.items() if one.runnable_s > BUSY_SHARE * seconds}
        if busy:
            # What computes without the lock is among them too, so the main thread comes first; but where
            # cores are short, one that only asks for the lock seems busy: it gets little of them.
            most = max(busy, key=lambda tid: busy[tid].cpu_s)
            tid = pid if pid in busy and busy[pid].cpu_s > busy[most].cpu_s / 2 else most
            return "lock computes", {"tid": tid, "name": _name(pid, tid), "cpu_s": round(busy[tid].cpu_s, 1)}
        if sum(one.runnable_s for one in spent.values()) < IDLE_SHARE * seconds:
            return "lock sleeps", {"call": call}
        return "lock silent", {}


def _has_begun(pid: int, done: Injection) -> bool:
    """Tell whether the payload is known to have run to its end; the shim's own thread goes on from there."""
    if done.method in ("remote_exec", "gdb"):
        return True
    if done.area is None:
        return False
    with suppress(OSError):
        memory = Memory(pid)
        try:
            return bool(areas.read_header(memory, done.area[0]).ran)
        finally:
            memory.close()
    return False


def _spent(pid: int) -> dict[int, Spent]:
    """Return what each thread did since its start; nothing where the kernel keeps no account (all zero)."""
    found = {}
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/task"):
            words = (proc.read_bytes(f"/proc/{pid}/task/{name}/schedstat") or b"").split()
            if len(words) > 1 and int(words[0]):
                found[int(name)] = Spent(int(words[0]) / 1e9, (int(words[0]) + int(words[1])) / 1e9)
    return found


def _name(pid: int, tid: int) -> str:
    return (proc.read_bytes(f"/proc/{pid}/task/{tid}/comm") or b"").decode("utf-8", "replace").strip()
