"""`python -m soak.states [STATE ...] [--method M ...] [--json]`: what each layer does when main is in X."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ascend_tui.attach import attach
from ascend_tui.connection import ShimError
from ascend_tui.inject.api import METHODS
from ascend_tui.target import RefusedError, read_target
from bench.target import busy, table
from soak.blocked import STATES
from soak.living import HarmError, Living, environment, until

SECONDS = 2.5
"""How long a state lasts: less than an attach waits for its shim, so that a late one is seen."""
START_S = 120.0
TITLES = {
    "bytecode": "runs bytecode",
    "malloc": "allocates in a loop",
    "torch_ops": "computes in torch",
    "sleep": "time.sleep",
    "alone": "time.sleep, no other thread",
    "recv": "socket recv",
    "lock": "lock.acquire with a timeout",
    "native": "native call without the GIL",
    "select": "select",
    "poll": "poll",
    "epoll": "epoll",
    "loader": "DataLoader, workers stuck",
    "gil": "native call that holds the GIL",
    "uninterruptible": "state D (vfork)",
    "stopped": "stopped by SIGSTOP",
    "traced": "traced by another process",
    "zombie": "zombie",
}
TRACER = (
    "import ctypes, sys, time; ptrace = ctypes.CDLL(None, use_errno=True).ptrace; "
    "code = ptrace(0x4206, int(sys.argv[1]), None, None); print(code, flush=True); time.sleep(600)"
)


@dataclass
class Cell:
    """What one method did in one state. `late_ms` is by how much the state lasted longer than asked for."""

    state: str
    method: str
    did: str = ""
    by: str = ""
    hello_ms: float | None = None
    stop_ms: float | None = None
    late_ms: float | None = None
    harm: str = ""

    def text(self) -> str:
        """Return it for a table."""
        harm = f"HARMED: {self.harm}" if self.harm else ""
        by = f"by {self.by}" if self.by and self.by != self.method else ""
        late = "" if self.late_ms is None else f"{self.late_ms:+.1f}"
        return ", ".join(filter(None, (harm, self.did, by, late)))


def try_one(state: str, method: str) -> Cell:
    """Bring a fresh target into `state` and attach by `method`; "none" attaches not at all."""
    cell = Cell(state, method)
    inner = state if state in STATES else "bytecode"
    command = [sys.executable, "-m", "soak.blocked", inner, "FOLDER", str(SECONDS)]
    with Living(command, environment("cpu")) as target:
        try:
            if not until(lambda: _exists(target, "began") or target.process.poll() is not None, START_S):
                raise HarmError("the target did not start")
            target.must_live()
            time.sleep(0.15)
            with _brought_into(state, target):
                if method != "none":
                    _attach(cell, target)
            if state != "zombie":
                _must_go_on(cell, target)
        except HarmError as error:
            cell.harm = str(error)
    return cell


@contextmanager
def _brought_into(state: str, target: Living) -> Iterator[None]:
    """Do what a process cannot do to itself, and undo it."""
    tracer = None
    if state == "stopped":
        os.kill(target.pid, signal.SIGSTOP)
        until(lambda: read_target(target.pid).state == "T", 5.0)
    elif state == "zombie":
        os.kill(target.pid, signal.SIGKILL)
        until(lambda: _state(target.pid) == "Z", 5.0)
    elif state == "traced":
        words = [sys.executable, "-c", TRACER, str(target.pid)]
        tracer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert tracer.stdout is not None
        if tracer.stdout.readline().strip() != "0":
            raise HarmError("this machine does not allow tracing")
    try:
        yield
    finally:
        if state == "stopped":
            os.kill(target.pid, signal.SIGCONT)
        if tracer is not None:
            tracer.kill()
            tracer.wait()


def _attach(cell: Cell, target: Living) -> None:
    try:
        attached = attach(target.target, name="soak", writable=True, method=cell.method)
    except RefusedError as error:
        cell.did = f"refused: {error.refusal.code}"
        return
    except ShimError as error:
        cell.did = f"{type(error).__name__}: {error}"
        return
    now = time.monotonic()
    cell.by, cell.hello_ms = attached.method, round(attached.hello_ms, 1)
    cell.stop_ms = round(max(attached.stops_ms, default=0.0), 2)
    # The state is over a moment before its end is on the disk.
    time.sleep(0.05)
    is_over = _exists(target, "ended") and _times(target)[1] <= now
    cell.did = "when it returns" if is_over and not _is_running(cell.state) else f"{attached.hello_ms:.0f} ms"
    try:
        attached.client.request("detach")
    except ShimError as error:
        raise HarmError(f"the detach failed: {error}") from None
    finally:
        attached.client.close()


def _is_running(state: str) -> bool:
    return state in ("bytecode", "malloc", "torch_ops")


def _must_go_on(cell: Cell, target: Living) -> None:
    until(lambda: _exists(target, "ended") or target.process.poll() is not None, SECONDS + 20.0)
    target.must_live()
    if not _exists(target, "ended"):
        raise HarmError("the state does not end")
    began, ended = _times(target)
    cell.late_ms = round((ended - began - SECONDS) * 1e3, 1)
    if cell.late_ms < -1.0:
        raise HarmError(f"a wait ended {-cell.late_ms:.1f} ms early")
    count = _count(target)
    if not until(lambda: _count(target) > count + 2 or target.process.poll() is not None, 10.0):
        raise HarmError("the target stands still")
    target.must_live()


def _exists(target: Living, name: str) -> bool:
    return (target.folder / name).exists()


def _times(target: Living) -> tuple[float, float]:
    began, ended = (target.folder / "ended").read_text().split()
    return float(began), float(ended)


def _count(target: Living) -> int:
    with suppress(OSError, ValueError):
        return int((target.folder / "count").read_text())
    return 0


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.states", description=__doc__)
    parser.add_argument("states", nargs="*", metavar="STATE", help=", ".join(TITLES))
    parser.add_argument("--method", action="append", choices=METHODS, help="all")
    parser.add_argument("--json", action="store_true", help="one JSON object per line instead of the table")
    asked = parser.parse_args()
    unknown = set(asked.states) - set(TITLES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(TITLES)}")
    methods = asked.method or list(METHODS)
    cells: list[Cell] = []
    rows = []
    for state, title in TITLES.items():
        if asked.states and state not in asked.states:
            continue
        sys.stderr.write(f"{title}\n")
        row = [try_one(state, method) for method in ("none", *methods)]
        cells += row
        rows.append([title, *[cell.text() or "-" for cell in row]])
    if asked.json:
        for cell in cells:
            sys.stdout.write(json.dumps(asdict(cell)) + "\n")
    else:
        title = f"main thread in X for {SECONDS} s: when the shim answers, and how much longer X lasted (ms)"
        table(f"{title}; {busy()}", ["main thread", "no attach", *methods], rows)
    return 1 if any(cell.harm for cell in cells) else 0


if __name__ == "__main__":
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    sys.exit(main())
