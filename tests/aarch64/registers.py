"""Every register of a running main thread, checked by itself in a loop without system calls (registers.S)."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from ascend_tui.inject import frames_aarch64, helper
from ascend_tui.inject.errors import InjectError
from tests.aarch64 import targets
from tests.aarch64.injecting import in_child, inject, inject_and_die_at, prepare, request, until
from tests.aarch64.targets import GUARDED, RAN, RETURNS, SIGNALS, TURNS, WHICH, WRONG, WRONG_BEFORE

BOUNDARIES = 44


class Spinner:
    """A process that checks its own registers; use as a context manager."""

    def __init__(self, kind: str, timer_s: float = 0.0) -> None:
        path = Path(mkdtemp(), "shared")
        path.write_bytes(bytes(4096))
        with path.open("r+b") as file:
            self.shared = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")
        command = [sys.executable, targets.__file__, "spin", kind, str(path), str(timer_s)]
        self.process = subprocess.Popen(command)
        self.pid = self.process.pid

    def __enter__(self) -> Spinner:
        assert until(lambda: self.shared[RETURNS] > 0 or self.process.poll() is not None)
        self.check()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def check(self) -> None:
        """Assert that it lives, goes on, and has seen no other value."""
        before = self.shared[TURNS]
        moves = until(lambda: self.shared[TURNS] > before + 5)
        assert self.process.poll() is None, f"it died: {self.process.returncode}"
        assert moves, "it stands still"
        assert not self.wrong(), f"{self.wrong()} registers were wrong, the last was {self.shared[WHICH]}"

    def wrong(self) -> int:
        """Return how many registers held another value: in the calls that ended, and in the present one."""
        return self.shared[WRONG_BEFORE] + self.shared[WRONG]


def has_sve() -> bool:
    """Tell whether this processor has vectors of scalable length."""
    return " sve " in Path("/proc/cpuinfo").read_text()


def kinds() -> tuple[str, ...]:
    """Return the loops that this processor can run."""
    return ("neon", "sve") if has_sve() else ("neon",)


def attaches(kind: str, timer_s: float, count: int) -> tuple[int, str]:
    """Borrow the main thread in the middle of its loop."""
    full = 0
    with Spinner(kind, timer_s) as target:
        for _ in range(count):
            try:
                inject(target.pid, "main")
            except InjectError as error:
                # Main runs no bytecode for a while, so the interpreter's queue of 32 fills up.
                if error.code != "call_failed":
                    raise
                full += 1
            target.check()
        target.check()
        turns, ran, signals = target.shared[TURNS], target.shared[RAN], target.shared[SIGNALS]
    more = f", {signals} signals handled" if timer_s else ""
    return count, f"{turns} turns, no difference; {ran} payloads ran, {full} met a full queue{more}"


def alone(kind: str, count: int) -> tuple[int, str]:
    """Let it run untouched: what is wrong here is the kernel's or the emulator's fault, not ours."""
    with Spinner(kind) as target:
        time.sleep(count / 10)
        target.check()
        turns, guarded = target.shared[TURNS], target.shared[GUARDED]
    return 0, f"{turns} turns, no difference; {'guarded' if guarded else 'unguarded'} branches"


def deaths(kind: str, count: int) -> tuple[int, str]:
    """Kill the injector at each boundary while main holds its values."""
    killed, rounds = 0, max(1, count // 100)
    with Spinner(kind) as target:
        for at in [*range(BOUNDARIES)] * rounds:
            status, said = inject_and_die_at(target.pid, "main", at)
            assert os.WIFSIGNALED(status) or status == 0, f"at {at}: {status} {said}"
            killed += os.WIFSIGNALED(status)
            try:
                target.check()
            except AssertionError as error:
                raise AssertionError(f"killed at {at} after {killed}: {error}") from error
        turns = target.shared[TURNS]
    assert killed > BOUNDARIES * rounds // 2
    return killed, f"{turns} turns, no difference"


def control(kind: str, count: int) -> tuple[int, str]:
    """Leave the vector state out of the frame: the loop must see that, else it proves nothing."""

    def work() -> None:
        prepare("main")
        if kind == "sve":
            frames_aarch64._sve_record = lambda raw: b""  # type: ignore[assignment]
        else:
            whole = frames_aarch64.Aarch64.vector_state

            def blank(self: frames_aarch64.Aarch64, read_note: frames_aarch64.ReadNote) -> bytes:
                records = whole(self, read_note)
                return records[:16] + bytes(512) + records[528:]

            frames_aarch64.Aarch64.vector_state = blank  # type: ignore[method-assign]
        helper.perform(request(target.pid, "main"))

    with Spinner(kind) as target:
        in_child(work)
        seen = until(lambda: target.wrong() > 0, 5.0)
        wrong = target.wrong()
    assert seen, "the loop sees no lost register"
    return 1, f"a frame without its vectors is seen: {wrong} wrong"


def _named(kind: str) -> dict[str, Callable[[int], tuple[int, str]]]:
    return {
        f"{kind} registers, untouched": partial(alone, kind),
        f"{kind} registers, attach": partial(attaches, kind, 0.0),
        f"{kind} registers, under signals": partial(attaches, kind, 0.005),
        f"{kind} registers, death": partial(deaths, kind),
        f"{kind} registers, control": partial(control, kind),
    }


CHECKS = {name: check for kind in kinds() for name, check in _named(kind).items()}
