"""What CPython cannot unregister: it stays in the process after a detach, once, and does nothing.

A fork callback can never be taken back, and a pending call is a bare address whose memory must
outlive it.  Both live here and reach the shim through `agent` and `queue`, so that a hundred
attaches leave no more than one does.
"""

from __future__ import annotations

import _thread
import atexit
import os
import sys
from collections import deque
from typing import Any, Callable, Deque, List, Set

agent: Any = None
"""The live shim of this process, or None."""
queue: Deque[Callable[[], None]] = deque()
"""Calls that wait for the main thread."""
left_by_probes: List[str] = []
"""What of a probe stays in the process, in words."""
imported: List[str] = []
"""What of the standard library was first imported by us; Python cannot forget it safely."""
_thunk: List[Any] = []
_observed: List[str] = []
"""The kinds of devices whose allocator tells us of an OOM."""
_fork_callback: List[Any] = []
_exit_function: List[Any] = []


def _after_fork_in_child() -> None:
    global agent
    queue.clear()
    parent, agent = agent, None
    if parent is not None:
        parent.after_fork_in_child()


def watch_forks() -> None:
    """Register the fork callback, once per process."""
    if not _fork_callback:
        os.register_at_fork(after_in_child=_after_fork_in_child)
        _fork_callback.append(True)


def _at_exit() -> None:
    if agent is not None:
        agent.probes.recorder.stop()


def watch_exit() -> None:
    """Register the exit function, once per process: Python never gives back the place of one."""
    if not _exit_function:
        atexit.register(_at_exit)
        _exit_function.append(True)


def _on_oom(index: int, requested: int, total: int, free: int) -> None:
    if agent is not None:
        agent.probes.at_oom(index, requested, total, free)


def watch_ooms(kind: str, attach: Callable[[Callable[..., None]], Any]) -> None:
    """Have the allocator of this kind of device call us when it is out of memory, once per process."""
    if kind not in _observed:
        _observed.append(kind)
        attach(_on_oom)


def _run_queue(_: Any) -> int:
    try:
        while queue:
            queue.popleft()()
    except KeyboardInterrupt:
        # A Ctrl-C that arrived in here would be printed and lost; hand it back to the training.
        _thread.interrupt_main()
    except Exception:
        # Each call guards itself and reports; what is left could only harm the training.
        return 0
    return 0


def ask_main_thread() -> bool:
    """Have the main thread run the queue between two bytecodes; False when that cannot be asked."""
    ctypes = sys.modules.get("ctypes")  # torch imports it; a process without it is no training
    if ctypes is None:
        return False
    if not _thunk:
        _thunk.append(ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_run_queue))
    return bool(ctypes.pythonapi.Py_AddPendingCall(_thunk[0], None) == 0)


def note_imports(before: Set[str]) -> None:
    """Remember the modules of the standard library that came while the shim was loaded.

    In a training that imports at the same time some of them are its own: named too many, never too few.
    """
    library = os.path.dirname(os.__file__)
    for name in sorted(set(sys.modules) - before):
        file = getattr(sys.modules.get(name), "__file__", None) or library
        ours = name.startswith(__name__.partition(".")[0])
        if not ours and file.startswith(library) and "site-packages" not in file and name not in imported:
            imported.append(name)


def residue() -> List[str]:
    """Name what stays here after a detach."""
    left = ["the module " + __name__ + ", an empty shell"]
    left.append("memory of ended threads, which the C library keeps for the next ones")
    if imported:
        left.append("modules of the standard library: " + ", ".join(imported))
    if _fork_callback:
        left.append("one fork callback that does nothing (CPython cannot unregister it)")
    left += left_by_probes
    if _exit_function:
        left.append("one exit function that does nothing (Python keeps its place)")
    if _observed:
        left.append("one out-of-memory observer that does nothing (torch cannot unregister it)")
    if _thunk:
        left.append("one ctypes thunk for pending calls (CPython may hold its address)")
    return left
