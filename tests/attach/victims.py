"""Processes to inject into, and a window into what they are doing. Run as `python victims.py KIND …`."""

from __future__ import annotations

import gc
import hashlib
import itertools
import mmap
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

MAIN, ERRORS, REQUEST, ACK, RAN = 0, 1, 2, 3, 6
THREADS = 3
EPOCH = 500


def compute() -> float:
    """Do some float and integer work whose result never changes."""
    total = 0.0
    for i in range(200):
        total += (i * 0.5) * (i ^ 3) / 7.0
    return total


def checked_loop(path: str, busy: bool) -> None:
    """Count checked results in shared memory; three threads wait, and compute when asked."""
    with open(path, "r+b") as file:
        shared = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")
    # The payload runs in __main__: this is how it reaches the counters.
    globals()["shared"] = shared
    expected = compute()
    events = [threading.Event() for _ in range(THREADS)]
    sys.setswitchinterval(0.0002)

    def wait(number: int) -> None:
        while True:
            events[number].wait()
            events[number].clear()
            shared[ERRORS] += compute() != expected
            shared[ACK + number] = shared[REQUEST]

    for number in range(THREADS):
        threading.Thread(target=wait, args=(number,), daemon=True).start()
    parent, seen = os.getppid(), 0
    while os.getppid() == parent:
        shared[ERRORS] += compute() != expected
        shared[MAIN] += 1
        if shared[REQUEST] != seen:
            seen = shared[REQUEST]
            for event in events:
                event.set()
        if not busy:
            time.sleep(0.0005)


def forked_workers(path: str, rounds: str) -> None:
    """Sum what two forked workers compute, then write the hash of all results to `path`."""
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as pool:
        digest = hashlib.sha256()
        for step in range(int(rounds)):
            digest.update(repr(pool.map(hash, [step * 0.1, step * 0.7, step])).encode())
            digest.update(repr(compute()).encode())
            time.sleep(0.001)
    Path(path).write_text(digest.hexdigest())


def train(path: str, steps: str, device: str = "cpu") -> None:
    """Train a small network with two fork workers; write its steps and a hash of what it learned to `path`.

    It ends after so many steps; after 0 it ends soon after there is a file `path`.enough.
    """
    gc.disable()
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(7)
    # One computing thread, because two on shared cores mostly spin for each other; and one that waits.
    torch.set_num_threads(1)
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    data = TensorDataset(torch.randn(64 * EPOCH, 64), torch.randn(64 * EPOCH, 1))
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(256, 1)
    )
    if device != "cpu":
        torch.npu.set_compile_mode(jit_compile=False)
    net = net.to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    # What was imported until now is no garbage, and to look for some takes a fifth of the start.
    gc.freeze()
    gc.unfreeze()
    gc.enable()
    digest = hashlib.sha256()
    loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=2, multiprocessing_context="fork")
    step, parent = 0, os.getppid()
    for features, label in itertools.chain.from_iterable(itertools.repeat(loader)):
        loss = ((net(features.to(device)) - label.to(device)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        digest.update(loss.detach().cpu().numpy().tobytes())
        step += 1
        if step == 6:
            Path(path + ".started").touch()
        if step == int(steps) or (step % 20 == 0 and os.path.exists(path + ".enough")):
            break
        if os.getppid() != parent:
            return
    for parameter in net.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    Path(path).write_text(f"{step} {digest.hexdigest()}")
    # To leave sooner.
    gc.freeze()


class Victim:
    """A `checked_loop` process; use as a context manager."""

    def __init__(self, directory: Path, busy: bool = True, python: str = sys.executable) -> None:
        path = directory / f"shared-{time.monotonic_ns()}"
        path.write_bytes(bytes(4096))
        with open(path, "r+b") as file:
            self.shared = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")
        kind = "busy" if busy else "calm"
        self.process = subprocess.Popen([python, __file__, kind, str(path)])
        self.pid = self.process.pid

    def __enter__(self) -> Victim:
        assert until(lambda: self.shared[MAIN] > 5), "the victim did not start"
        self.check()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def check(self) -> None:
        """Assert that the process lives, computes right, and that its waiting threads wake and compute."""
        before = self.shared[MAIN]
        self.shared[REQUEST] += 1
        wanted = self.shared[REQUEST]
        acks = range(ACK, ACK + THREADS)
        woke = until(lambda: all(self.shared[i] == wanted for i in acks))
        assert self.process.poll() is None, f"the victim died: {self.process.returncode}"
        assert woke, [self.shared[i] for i in acks]
        assert until(lambda: self.shared[MAIN] > before), "the main thread stands still"
        assert self.shared[ERRORS] == 0


def until(done: object, timeout_s: float = 10.0) -> bool:
    """Poll a condition; returns whether it came true."""
    assert callable(done)
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if done():
            return True
        time.sleep(0.0005)
    return bool(done())


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind in ("busy", "calm"):
        checked_loop(rest[0], kind == "busy")
    elif kind == "forked":
        forked_workers(*rest)
    else:
        train(*rest)
