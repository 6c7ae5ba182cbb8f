"""Programs that the checks attach to. Run as `python targets.py KIND …`; the standard library only."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

LIBRARY = "/job/registers.so"
# RAN is where the payloads of all checks count.
STOP, TURNS, WRONG, RETURNS, SIGNALS, WRONG_BEFORE, RAN, GUARDED, WHICH = range(9)
TURNS_PER_CALL = 1000
WAIT_S = 0.3
PR_SET_PTRACER = 0x59616D61
PROT_BTI = 0x10


def spin(kind: str, path: str, timer_s: str) -> None:
    """Hold known values in every register for ever; between two calls the interpreter runs pending calls."""
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 4096)
    shared = memoryview(memory).cast("Q")
    # The payload runs in __main__: this is how it reaches the counters.
    globals()["shared"] = shared
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    library = ctypes.CDLL(LIBRARY)
    shared[GUARDED] = guard(library)
    loop = getattr(library, f"spin_{kind}")
    loop.argtypes, loop.restype = [ctypes.c_void_p, ctypes.c_long], ctypes.c_long
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    if float(timer_s):

        def count(*_: object) -> None:
            shared[SIGNALS] += 1

        signal.signal(signal.SIGALRM, count)
        signal.setitimer(signal.ITIMER_REAL, float(timer_s), float(timer_s))
    parent = os.getppid()
    while os.getppid() == parent:
        shared[WRONG_BEFORE] += loop(at, TURNS_PER_CALL)
        shared[RETURNS] += 1


def guard(library: ctypes.CDLL) -> bool:
    """Have the processor check each branch into the loops; returns whether it can."""
    first, end = (
        ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in ("spin_neon", "spin_end")
    )
    start = first & -mmap.PAGESIZE
    guarded = mmap.PROT_READ | mmap.PROT_EXEC | PROT_BTI
    return ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), ctypes.c_size_t(end - start), guarded) == 0


def _socket_timeout() -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(WAIT_S)
    try:
        ours.recv(1)
    except socket.timeout:
        ours.close()
        theirs.close()


def _epoll() -> None:
    with select.epoll() as waiter:
        waiter.poll(WAIT_S)


def _c_poll() -> None:
    result = ctypes.CDLL(None, use_errno=True).poll(None, 0, int(WAIT_S * 1e3))
    assert result == 0, ctypes.get_errno()


def _c_select() -> None:
    left = (ctypes.c_long * 2)(0, int(WAIT_S * 1e6))
    result = ctypes.CDLL(None, use_errno=True).select(0, None, None, None, left)
    assert result == 0, ctypes.get_errno()


def _c_usleep() -> None:
    result = ctypes.CDLL(None, use_errno=True).usleep(int(WAIT_S * 1e6))
    assert result == 0, ctypes.get_errno()


# Each waits WAIT_S; those of C see an interruption that Python would hide.
WAITS: dict[str, Callable[[], object]] = {
    "Event.wait": lambda: threading.Event().wait(WAIT_S),
    "lock.acquire": lambda: HELD.acquire(timeout=WAIT_S),
    "time.sleep": lambda: time.sleep(WAIT_S),
    "socket": _socket_timeout,
    "select": lambda: select.select([], [], [], WAIT_S),
    "poll": lambda: select.poll().poll(WAIT_S * 1e3),
    "epoll": _epoll,
    "C poll": _c_poll,
    "C select": _c_select,
    "C usleep": _c_usleep,
}
HELD = threading.Lock()


def wait(kind: str, path: str) -> None:
    """Let two threads wait again and again until PATH.stop exists; write how late they woke to PATH."""
    HELD.acquire()
    late: list[float] = []
    wrong: list[str] = []

    def again() -> None:
        while not os.path.exists(path + ".stop"):
            began = time.monotonic()
            try:
                WAITS[kind]()
            except BaseException as error:
                wrong.append(repr(error))
            late.append(time.monotonic() - began - WAIT_S)

    threads = [threading.Thread(target=again) for _ in range(2)]
    for thread in threads:
        thread.start()
    Path(path + ".started").touch()
    for thread in threads:
        thread.join()
    Path(path).write_text(json.dumps({"late": sorted(late), "wrong": wrong}))


def permit(uid: str) -> None:
    """Become a user without rights; let anybody trace us once a line is read."""
    os.setuid(int(uid))
    # Else a change of user leaves us untraceable for everybody but root.
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.readline()
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(2**64 - 1), 0, 0, 0)
    print("permitted", flush=True)
    time.sleep(600)


def step(path: str) -> None:
    """Compute in steps, with a thread that waits; what a training is without torch."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    parent, steps = os.getppid(), 0
    # Open all the time: what is open is compared before and after.
    with open(path, "w", encoding="ascii") as file:
        while os.getppid() == parent:
            sum(i * 0.5 for i in range(2000))
            steps += 1
            file.seek(0)
            print(steps, file=file, flush=True)
            time.sleep(0.02)


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    {"spin": spin, "wait": wait, "permit": permit, "step": step}[kind](*rest)
