"""What is made sure of before a thread is borrowed: one injector, no shadow stack, no shutdown of 3.8."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ascend_tui.inject.errors import InjectError
from ascend_tui.inject.memory import Mapping, Memory, find_ranges, leads_into


@contextmanager
def told_as_inject_error(pid: int) -> Iterator[None]:
    """Turn every OSError of the work on a process into an InjectError with a code."""
    try:
        yield
    except InjectError as error:
        # A process that ends meanwhile loses its memory first, which looks like many other faults.
        if has_ended(pid):
            raise InjectError("gone", str(error)) from None
        raise
    except (FileNotFoundError, ProcessLookupError) as error:
        raise InjectError("gone", str(error)) from None
    except PermissionError as error:
        raise InjectError("ptrace_refused", str(error)) from None
    except OSError as error:
        raise InjectError("gone" if has_ended(pid) else "memory", str(error)) from None


def has_ended(pid: int) -> bool:
    """Tell whether a process has given up its memory: gone, a zombie, or on the way there."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return not file.read(1)
    except OSError:
        return True


def lock(pid: int) -> int:
    """Allow one injector per process: a lock on /proc/PID leaves no file behind and ends with its holder.

    Returns the descriptor that holds it. Raises InjectError("busy") when another one is at work.
    """
    descriptor = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InjectError("busy") from None
    return descriptor


def check_shadow_stack(pid: int) -> None:
    """Raise InjectError("shadow_stack") where a `ret` into a borrowed call's way back would be a fault.

    Preflight lets such a process pass when its Python has a way in that borrows no thread.
    """
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("x86_Thread_features:") and "shstk" in line.split():
                raise InjectError("shadow_stack")


class Shutdown:
    """See Python 3.8 in the part of its end in which it is still initialized, and yet takes no pending call.

    TRAP: it wants to report that, and does so through the thread state of whoever holds the interpreter's
    lock, which is NULL where nobody does. Measured in an atexit handler: SIGSEGV. From outside this state
    shows only as a way back into Py_FinalizeEx on the main thread's stack; where a compiler has inlined that
    function, it does not show.
    """

    def __init__(self, memory: Memory, maps: list[Mapping], python: str | None) -> None:
        self._memory = memory
        self._function = (0, 0)
        self._stack = next(((one.start, one.end) for one in maps if one.path == "[stack]"), (0, 0))
        if python == "3.8":
            self._function = find_ranges(memory, maps, ["Py_FinalizeEx"]).get("Py_FinalizeEx", (0, 0))

    def check(self, sp: int | None = None) -> None:
        """Raise InjectError("ending") in that state; `sp` of a stopped main thread makes the answer final."""
        low, high = self._stack
        # Without sp also what lies below it is read: nothing is left there by a function called once.
        if self._function[1] and leads_into(self._memory, (low if sp is None else sp, high), self._function):
            raise InjectError("ending")
