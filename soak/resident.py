"""A program of the standard library that is attached to, in any Python from 3.8 on.

It has two forked workers, threads that wait for work and threads that wait for a time, and computes the same
numbers again and again. It appends a line `round hash` to a file every few rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path

from tests.attach.victims import compute

EVERY = 10
WAIT_S = 0.2
WAITERS = 3


def wait_for_time(path: Path) -> None:
    """Wait for a fixed time again and again; write by how much the earliest and the latest missed it."""
    early = late = 0.0
    while True:
        began = time.monotonic()
        threading.Event().wait(WAIT_S)
        off = time.monotonic() - began - WAIT_S
        early, late = min(early, off), max(late, off)
        draft = path.with_suffix(".new")
        draft.write_text(f"{early * 1e3:f} {late * 1e3:f}")
        draft.rename(path)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sleep", type=float, default=0.002)
    asked = parser.parse_args()
    # As in every training: with it the shim can give its pages back.
    assert ctypes.sizeof(ctypes.c_void_p) == 8
    expected, parent, done = compute(), os.getppid(), 0
    pool = multiprocessing.get_context("fork").Pool(2)
    answers = [0.0] * WAITERS
    asking = [threading.Event() for _ in range(WAITERS)]
    told = [threading.Event() for _ in range(WAITERS)]

    def work(number: int) -> None:
        while True:
            asking[number].wait()
            asking[number].clear()
            answers[number] = compute()
            told[number].set()

    for number in range(WAITERS):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    threading.Thread(target=wait_for_time, args=(asked.folder / "waits",), daemon=True).start()
    digest = hashlib.sha256()
    with open(asked.folder / "hashes", "w", buffering=1) as out:
        while os.getppid() == parent:
            done += 1
            digest.update(repr(pool.map(hash, [done * 0.1, done * 0.7, done])).encode())
            for one in asking:
                one.set()
            for one in told:
                # A thread that does not come back is seen as a program that stands still.
                one.wait()
                one.clear()
            if compute() != expected or any(one != expected for one in answers):
                sys.exit(f"wrong arithmetic in round {done}")
            if done % EVERY == 0:
                out.write(f"{done} {digest.hexdigest()}\n")
            time.sleep(asked.sleep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
