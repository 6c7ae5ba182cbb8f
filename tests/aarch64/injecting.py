"""Injections done and killed in child processes, so that what a check changes in the injector ends with it.

As in tests/attach/test_inject_kill.py, without pytest, which the emulated machine does not have.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import victims
from victims import Victim

from ascend_tui.inject import choose, helper, stage
from ascend_tui.inject.errors import InjectError
from ascend_tui.inject.request import Request
from ascend_tui.target import read_target

# "main" is `pending` forced on the running main thread; else an idle thread would queue the call.
MODES = ("thread", "pending", "main")
NEVER = 1 << 30
PATIENCE_S = 60.0
COUNTS = "shared[6] += 1  # @AREA@"
# Counts, then frees its memory like the shim does: hundreds of attaches must not fill the target. Only long
# after both words are set: the borrowed thread has then still to leave, and the injector to read them.
COUNTS_AND_FREES = """
import ctypes, threading, time
shared[6] += 1
def _free(rw, rw_size, rx, rx_size):
    while [ctypes.c_uint32.from_address(rw + at).value for at in (4, 44)] != [1, 1]:
        time.sleep(0.01)
    time.sleep(2.0)
    munmap = ctypes.CDLL(None).munmap
    munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    assert munmap(rw, rw_size) == 0 and munmap(rx, rx_size) == 0
threading.Thread(target=_free, args=@AREA@, daemon=True).start()
"""


def until(done: Callable[[], object], timeout_s: float = PATIENCE_S) -> bool:
    """Poll a condition; returns whether it came true."""
    return _until(done, timeout_s)


# The victims' own patience is that for a real processor.
_until, victims.until = victims.until, until


@contextmanager
def victim(busy: bool = True) -> Iterator[Victim]:
    """Start a process that checks its own results."""
    with Victim(Path(mkdtemp()), busy, sys.executable) as running:
        yield running


def request(pid: int, mode: str, payload: str = COUNTS) -> Request:
    """Ask for an injection by `mode`; "main" needs `prepare` in the same process."""
    target = read_target(pid)
    method = "pending" if mode == "main" else mode
    return Request(pid, target.id.start_ticks, target.python, method, payload.encode(), 20.0)


def prepare(mode: str) -> None:
    """Make this process, a child that will end soon, inject by `mode`."""
    if mode != "main":
        return

    def choose_main(method: str, pid: int, *rest: object) -> choose.Choice:
        return choose.Choice(method, (choose.Candidate(pid, True, None),), "forced on the main thread")

    choose.choose = choose_main  # type: ignore[assignment]


def in_child(work: Callable[[], object]) -> tuple[int, object]:
    """Run in a forked child; returns the wait status and what it returned (exit status 9: it raised)."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        try:
            answer = work()
        except InjectError as error:
            os.write(write_end, json.dumps(f"{error.code}: {error.detail}").encode())
            os._exit(8)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(9)
        os.write(write_end, json.dumps(answer).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as file:
        text = file.read()
    return os.waitpid(child, 0)[1], json.loads(text) if text else None


def inject(pid: int, mode: str, payload: str = COUNTS) -> dict[str, object]:
    """Inject in a child and return the report; raises InjectError as the injector did."""

    def work() -> object:
        prepare(mode)
        return helper.perform(request(pid, mode, payload))._asdict()

    status, answer = in_child(work)
    if isinstance(answer, str):
        code, _, detail = answer.partition(": ")
        raise InjectError(code, detail)
    assert status == 0, status
    assert isinstance(answer, dict)
    return answer


class Boundaries:
    """Counts boundaries and kills at one of them; a wait that is polled many times counts once."""

    def __init__(self, kill_at: int) -> None:
        self.kill_at = kill_at
        self.names: list[str] = []
        self.waiting: set[str] = set()

    def __call__(self, name: str) -> None:
        """Note one boundary."""
        if "wait" in name:
            if name in self.waiting:
                return
            self.waiting.add(name)
        else:
            self.waiting.clear()
        self.names.append(name)
        if len(self.names) > self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def inject_and_die_at(pid: int, mode: str, kill_at: int) -> tuple[int, object]:
    """Inject in a child that kills itself at one boundary; returns its wait status and the boundaries."""

    def work() -> object:
        prepare(mode)
        stage.hook = boundaries = Boundaries(kill_at)
        helper.perform(request(pid, mode))
        return boundaries.names

    return in_child(work)
