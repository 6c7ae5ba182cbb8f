"""A program whose main thread is in one certain state for some seconds, and that then goes on.

`python -m soak.blocked STATE FOLDER SECONDS`. It writes the times at which the state began and ended to
FOLDER, and counts from then on.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Block = Callable[[], object]


def later(seconds: float, act: Callable[[], object]) -> None:
    """Have a forked child act when the time is over: nothing in this process may move meanwhile."""
    if os.fork() == 0:
        time.sleep(seconds)
        act()
        os._exit(0)


def repeat(seconds: float, work: Callable[[], object]) -> None:
    """Work until the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        work()


def bytecode(seconds: float, folder: Path) -> Block:
    return lambda: repeat(seconds, lambda: sum(range(100)))


def malloc(seconds: float, folder: Path) -> Block:
    # Above 512 bytes each object is one call of malloc, and up to 128 KiB none of mmap.
    return lambda: repeat(seconds, lambda: [bytearray(size) for size in range(600, 90_000, 700)])


def torch_ops(seconds: float, folder: Path) -> Block:
    import torch

    torch.set_num_threads(1)
    left = torch.randn(300, 300)
    return lambda: repeat(seconds, lambda: left @ left)


def sleep(seconds: float, folder: Path) -> Block:
    return lambda: time.sleep(seconds)


def recv(seconds: float, folder: Path) -> Block:
    here, there = socket.socketpair()

    def block() -> None:
        later(seconds, lambda: there.send(b"."))
        here.recv(1)

    return block


def lock(seconds: float, folder: Path) -> Block:
    held = threading.Lock()
    held.acquire()
    return lambda: held.acquire(timeout=seconds)


def native(seconds: float, folder: Path) -> Block:
    usleep = ctypes.CDLL(None).usleep
    return lambda: usleep(int(seconds * 1e6))


def gil(seconds: float, folder: Path) -> Block:
    # Called through PyDLL it keeps the lock of the interpreter.
    usleep = ctypes.PyDLL(None).usleep
    return lambda: usleep(int(seconds * 1e6))


def selecting(seconds: float, folder: Path) -> Block:
    return lambda: select.select([], [], [], seconds)


def polling(seconds: float, folder: Path) -> Block:
    waiter = select.poll()
    return lambda: waiter.poll(seconds * 1e3)


def epolling(seconds: float, folder: Path) -> Block:
    waiter = select.epoll()
    return lambda: waiter.poll(seconds)


class Stuck:
    """A data set whose rows come when the time is over."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds)
        return index


def loader(seconds: float, folder: Path) -> Block:
    from torch.utils.data import DataLoader

    rows = DataLoader(Stuck(seconds), num_workers=2, multiprocessing_context="fork")
    waiting: list[Any] = []

    def block() -> None:
        waiting.append(iter(rows))
        # Kept: its end would wait for what the workers have begun meanwhile.
        next(waiting[0])

    return block


def uninterruptible(seconds: float, folder: Path) -> Block:
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    first = (os.POSIX_SPAWN_OPEN, 3, str(fifo), os.O_RDONLY, 0)

    def block() -> None:
        later(seconds, lambda: os.open(fifo, os.O_WRONLY))
        # The child opens the fifo before it runs its program; the parent is in state D until then.
        child = os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=[first])
        os.waitpid(child, 0)

    return block


STATES = {
    "bytecode": bytecode,
    "malloc": malloc,
    "torch_ops": torch_ops,
    "sleep": sleep,
    "alone": sleep,
    "recv": recv,
    "lock": lock,
    "native": native,
    "select": selecting,
    "poll": polling,
    "epoll": epolling,
    "loader": loader,
    "gil": gil,
    "uninterruptible": uninterruptible,
}


def main() -> int:
    state, folder, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    block, parent = STATES[state](seconds, folder), os.getppid()
    if state != "alone":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    time.sleep(0.05)
    began = time.monotonic()
    (folder / "began").write_text(repr(began))
    block()
    ended = time.monotonic()
    (folder / "ended.new").write_text(f"{began} {ended}")
    (folder / "ended.new").rename(folder / "ended")
    count = 0
    while os.getppid() == parent:
        count += 1
        (folder / "count").write_text(str(count))
        time.sleep(0.005)
    return 0


if __name__ == "__main__":
    sys.exit(main())
