"""Choose which thread to borrow and how: a pure decision over what /proc says each thread is waiting for.

`thread` makes a new thread run the shim. It needs a victim that is parked in a system call where it can
hold no allocator lock; it works while the main thread hangs. `pending` leaves the shim with the
interpreter, which runs it in the main thread between two bytecodes; it needs no idle thread, but a main
thread that runs bytecode.

Not visible from outside: whether the target has imported `threading`. Its first import in a foreign thread
makes that thread "MainThread" (Python 3.8 to 3.12), and 3.8 then fails in its shutdown. A process with one
thread may not have imported it, so `auto` takes `pending` there; a process with more threads than one is
assumed to have.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

# System calls in which a thread certainly holds no allocator lock, best victim first. TRAP: epoll_wait,
# epoll_pwait, semop and sigtimedwait are left out, because any ptrace stop makes them return EINTR, and code
# that does not expect that (rendezvous stores, collectives) fails.
CALLS_X86_64 = {
    202: "futex", 219: "restart_syscall", 230: "clock_nanosleep", 35: "nanosleep", 7: "poll", 271: "ppoll",
    23: "select", 270: "pselect6", 45: "recvfrom", 47: "recvmsg", 43: "accept", 288: "accept4", 0: "read",
    61: "wait4", 247: "waitid", 34: "pause",
}  # fmt: skip
CALLS_AARCH64 = {
    98: "futex", 128: "restart_syscall", 115: "clock_nanosleep", 101: "nanosleep", 73: "ppoll",
    72: "pselect6", 207: "recvfrom", 212: "recvmsg", 202: "accept", 242: "accept4", 63: "read",
    260: "wait4", 95: "waitid",
}  # fmt: skip
ORDER = list(CALLS_X86_64.values())
FUTEX_COMMAND_MASK = 0x7F
FUTEX_WAIT_BITSET = 9
# These do not wake the interpreter for a pending call that another thread has queued: 1 of 15 ran.
NEEDS_MAIN = ("3.9", "3.10")
# Only of a stopped main thread is it sure that it is not on its way out: see entry.Shutdown.
ONLY_MAIN = ("3.8",)
SETTLE_S = 0.005
LOOK_S = 0.05  # a main thread that did not move for so long is taken to be waiting


class Parked(NamedTuple):
    """One thread inside an idle system call; `args` are its six arguments, `sp` and `pc` where it waits."""

    tid: int
    is_main: bool
    call: str
    args: tuple[int, ...]
    sp: int
    pc: int


class Candidate(NamedTuple):
    """A thread to try; `parked` None means: wherever it is when it stops (a main thread that runs)."""

    tid: int
    is_main: bool
    parked: Parked | None


class Choice(NamedTuple):
    """The decision: method, candidates in the order to try them, and why."""

    method: str
    candidates: tuple[Candidate, ...]
    reason: str


def parse(tid: int, is_main: bool, line: str, machine: str) -> Parked | None:
    """Read one /proc/PID/task/TID/syscall line; None when the thread runs or waits in no idle call."""
    words = line.split()
    if len(words) != 9:
        return None
    call = (CALLS_X86_64 if machine == "x86_64" else CALLS_AARCH64).get(int(words[0]))
    args = tuple(int(word, 16) for word in words[1:7])
    if call is None:
        return None
    # FUTEX_WAIT (op 0) may be a waiter for a lock inside libc; only the semaphore and condition wait is idle.
    # After a stop a timed futex shows as restart_syscall, with its arguments still there.
    if call in ("futex", "restart_syscall") and args[1] & FUTEX_COMMAND_MASK != FUTEX_WAIT_BITSET:
        return None
    return Parked(tid, is_main, call, args, int(words[7], 16), int(words[8], 16))


def snapshot(pid: int) -> dict[int, Parked]:
    """Return the idle threads of a process, by thread id."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/task"):
        parked = where(pid, int(name))
        if parked is not None:
            found[parked.tid] = parked
    return found


def where(pid: int, tid: int) -> Parked | None:
    """Return where one thread is parked, None when it runs, has ended, or the kernel does not say."""
    try:
        with open(f"/proc/{pid}/task/{tid}/syscall", encoding="ascii") as file:
            return parse(tid, tid == pid, file.read(), os.uname().machine)
    except OSError:
        return None


def main_waits(pid: int, look_s: float = LOOK_S) -> bool:
    """Tell whether the main thread stays in one system call, and so runs no Python.

    The place alone is not enough: a loop that sleeps is always found at the same place. So its count of
    context switches must stand still too. False where the kernel does not say.
    """
    first = pulse(pid)
    end = time.monotonic() + look_s
    while first and time.monotonic() < end:
        time.sleep(SETTLE_S)
        if pulse(pid) != first:
            return False
    return bool(first)


def pulse(pid: int) -> tuple[str, ...]:
    """Return the main thread's system call and its context switches; nothing while it runs.

    As long as this stays the same, it runs no Python.
    """
    try:
        with open(f"/proc/{pid}/task/{pid}/syscall", encoding="ascii") as file:
            call = file.read()
        with open(f"/proc/{pid}/task/{pid}/status", encoding="utf-8", errors="replace") as file:
            switches = [line for line in file if "ctxt_switches" in line]
    except OSError:
        return ()
    return (call, *switches) if len(call.split()) == 9 else ()


def waits_in(pid: int, tid: int) -> str:
    """Name the system call a thread is in; empty while it runs or where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/task/{tid}/syscall", encoding="ascii") as file:
            number = file.read().split()[0]
    except (OSError, IndexError):
        return ""
    calls = CALLS_X86_64 if os.uname().machine == "x86_64" else CALLS_AARCH64
    return calls.get(int(number), f"system call {number}") if number.isdigit() else ""


def inner_tid(pid: int, tid: int) -> int:
    """Return what a thread is called in its own pid namespace; the same number where there is no other."""
    try:
        with open(f"/proc/{pid}/task/{tid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("NSpid:"):
                    return int(line.split()[-1])
    except OSError:
        return tid
    return tid


def idle(before: dict[int, Parked], after: dict[int, Parked]) -> list[Parked]:
    """Return the threads that stayed in one and the same wait, best victim first, the main thread last."""
    stayed = [parked for tid, parked in after.items() if before.get(tid) == parked]
    return sorted(stayed, key=lambda parked: (parked.is_main, ORDER.index(parked.call), parked.tid))


def choose(
    method: str,
    pid: int,
    python: str | None,
    thread_count: int,
    idle_threads: list[Parked],
    can_thread: bool,
    spare_main: bool = False,
) -> Choice:
    """Decide how to inject; `can_thread` says whether pthread_create was found.

    `spare_main` keeps `thread` from taking a waiting main thread although nobody else is idle right now.
    A choice without candidates means: nobody is idle at this moment; look again.
    """
    others = [Candidate(p.tid, False, p) for p in idle_threads if not p.is_main]
    main = next((p for p in idle_threads if p.is_main), None)
    if method == "auto":
        if can_thread and thread_count > 1 and others:
            return Choice("thread", tuple(others), "an idle thread other than the main one exists")
        if not can_thread:
            why = "the C library's pthread_create was not found"
        elif thread_count == 1:
            why = "the process has one thread, so `threading` may not be imported yet"
        else:
            why = "no thread other than the main one is idle"
        return Choice("pending", _for_pending(pid, python, others, main), why)
    if method == "thread":
        if others or main is None or spare_main or not can_thread:
            return Choice("thread", tuple(others) if can_thread else (), "asked for")
        return Choice("thread", (Candidate(pid, True, main),), "asked for; only the main thread is idle")
    return Choice("pending", _for_pending(pid, python, others, main), "asked for")


def _for_pending(
    pid: int, python: str | None, others: list[Candidate], main: Parked | None
) -> tuple[Candidate, ...]:
    """Order the threads that may queue a pending call.

    A main thread in a wait is the last choice: a signal that arrives while it is stopped goes to another
    thread, and the wait is then not interrupted. A running main thread has no such window.
    """
    anywhere = Candidate(pid, True, None)
    if python in ONLY_MAIN:
        return (anywhere,)
    if main is None or python in NEEDS_MAIN:
        return (anywhere, anywhere, anywhere, *others)
    return (*others, anywhere)
