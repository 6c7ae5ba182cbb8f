"""The pages that an injector brought: given back when nobody can be in them any more.

TRAP: two threads have been there, and each may have been held up at its last instruction for as long as the
machine is busy. Unmapped under one of them, the training dies (seen, by holding it there on purpose), so a
moment of patience is no answer: each is asked for by what the kernel says of it.
"""

from __future__ import annotations

import _thread
import os
import struct
import sys
import time
from typing import Optional, Tuple

PATIENCE_S = 2.0
SEEN_S = 0.05
"""The injector still looks at the word that says that its call is done."""
_WORDS = struct.Struct("<4xI28xI4xI")
"""The first words of the pages: done at 4, the borrowed thread as we call it at 36, returned at 44."""


def give_back(area: Tuple[int, ...]) -> str:
    """Unmap the two mappings; return what is left, in words, or nothing.

    `area` is both addresses and sizes, and last the thread in which our text was run.
    """
    start, size, code_start, code_size, caller = area
    ctypes = sys.modules.get("ctypes")
    left = "%d KiB of mapped pages" % ((size + code_size) // 1024)
    if ctypes is None or not _is_there(_thread.get_native_id()):
        # Where /proc does not show this very thread it is that of others, or none.
        return left
    end = time.monotonic() + PATIENCE_S
    switches = -1
    while True:
        done, borrowed, returned = _WORDS.unpack(ctypes.string_at(start, _WORDS.size))
        if done == 1 and returned == 1 and _has_left(caller):
            # The one that ran our text has been through its borrowed call before.
            if borrowed in (0, caller) or _is_outside(borrowed, start, start + size):
                break
            # Where it is cannot be told while it runs; that it has waited since then tells as much.
            now = _switches(borrowed)
            if -1 < switches < now:
                break
            switches = now if switches < 0 else switches
        if time.monotonic() > end:
            return left
        time.sleep(0.01)
    time.sleep(SEEN_S)
    munmap = ctypes.CDLL(None).munmap
    munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    failed = [munmap(start, size) != 0, munmap(code_start, code_size) != 0]
    return left if any(failed) else ""


def _has_left(caller: int) -> bool:
    """Tell whether the thread that ran our text is out of the code in these pages.

    A thread of our own ends behind it. The main thread leaves it before it lets go of the interpreter, and
    whoever runs this has the interpreter.
    """
    return caller == os.getpid() or not _is_there(caller)


def _is_outside(thread: int, low: int, high: int) -> bool:
    """Tell whether a thread is known to be somewhere else: it has ended, or it waits with another stack."""
    words = _of_thread(thread, "syscall")
    if words is None:
        return not _is_there(thread)
    # Number and arguments, or -1; then stack pointer and instruction; one word while it runs.
    parts = words.split()
    return len(parts) > 2 and not low <= int(parts[-2], 16) < high


def _switches(thread: int) -> int:
    """Return how often a thread has gone to wait, -1 where the kernel does not say."""
    for line in (_of_thread(thread, "status") or "").splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    return -1


def _is_there(thread: int) -> bool:
    return os.path.exists("/proc/self/task/%d" % thread)


def _of_thread(thread: int, name: str) -> Optional[str]:
    try:
        with open("/proc/self/task/%d/%s" % (thread, name)) as file:
            return file.read()
    except OSError:
        return None
