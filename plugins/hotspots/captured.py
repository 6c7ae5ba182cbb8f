"""What a capture in the training wrote, read in the monitor: a thread reads files, a tick takes the rows."""

from __future__ import annotations

import dataclasses
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message
from ascend_tui.target.paths import seen_from_here
from ascend_tui.text import clean

from . import files
from .snapshot import Captured, Clock, HotspotsSnapshot, ProfileResult, Row

SOURCE = "torch_npu.profiler"
OUTPUT = "ASCEND_PROFILER_OUTPUT"
TABLES = ("kernel_details.csv", "op_statistic.csv", "operator_details.csv", "trace_view.json")
"""The best first: kernels, kernels by type, operators; a trace where there is no table."""
MOST_BYTES = 1 << 30

_FAILED = Message("the capture failed: {why}")
_WORKED_OFF = Message(
    "step {step} is captured into {folder}: torch_npu's own analysis runs beside the training"
)
_READ = Message(
    "captured at step {step} into {folder}; the pause was {pause:.0f} ms, "
    "the analysis took {cpu:.1f} s of a core"
)
_OLDER = Message("captured at step {step}: older than the live sample")
_NO_DEVICE = Message(
    "the capture has no times of the device: its times are those on the host; the library says: {why}"
)


@frozen
class Read:
    """What was read: the main table, and the operators on the host where it holds kernels."""

    rows: tuple[Row, ...] = ()
    dropped: int = 0
    clock: Clock = "host"
    host_rows: tuple[Row, ...] = ()
    files: tuple[str, ...] = ()
    why: str = ""


class Captures:
    """The newest capture of one target: `present` is what the probe told, with what was read since."""

    def __init__(self) -> None:
        """Start with none."""
        self.present: Captured | None = None
        self._read = Read()
        self._waiting: tuple[Captured, int] | None = None
        self._thread: threading.Thread | None = None
        self._found: Read | None = None
        self._of: Captured | None = None

    @property
    def rows(self) -> tuple[Row, ...]:
        """Return the main table, empty while none was read."""
        return self._read.rows

    def take(self, capture: Captured, pid: int) -> None:
        """Take what the probe told of process `pid`; where it is analysed, begin to read it."""
        if capture.state == "read":
            # Only reading makes it so.
            return
        self.present = capture
        if capture.state == "analysed":
            self._waiting = (capture, pid)
            self._begin()

    def poll(self) -> bool:
        """Take what was read meanwhile; True where that changes something."""
        if self._thread is None or self._thread.is_alive():
            return False
        found, of = self._found, self._of
        self._thread = self._found = self._of = None
        self._begin()
        if of is None or of is not self.present:
            return False
        if found is None:
            found = Read(why="its tables could not be read: look at them with ascend-tui inspect")
        if found.rows:
            self._read = found
            self.present = dataclasses.replace(of, state="read", clock=found.clock)
        else:
            self.present = dataclasses.replace(of, state="failed", why=found.why or of.why)
        return True

    def _begin(self) -> None:
        if self._waiting is None or self._thread is not None:
            return
        capture, pid = self._waiting
        self._waiting, self._of = None, capture

        def read() -> None:
            self._found = read_folder(capture.folder, lambda path: seen_from_here(pid, path))

        self._thread = threading.Thread(target=read, name="captured", daemon=True)
        self._thread.start()

    def over(self, live: HotspotsSnapshot) -> HotspotsSnapshot:
        """Return a live snapshot with what was captured: its rows where they are the better ones, and notes.

        What is told of the step itself, its phases and its length, stays that of the live sample.
        """
        one, read = self.present, self._read
        if one is None:
            return live
        is_shown = one.state == "read" and self._is_better(one, live)
        told = dataclasses.replace(live, captured=one, notes=(*live.notes, *_notes(one, live.step, is_shown)))
        if not is_shown:
            return told
        if live.step is None:
            told = dataclasses.replace(told, step=one.step, step_time_us=one.step_time_us)
        beside = live.rows if read.clock == "device" and live.clock == "host" else ()
        return dataclasses.replace(
            told,
            state="live",
            reason=None,
            clock=read.clock,
            source=SOURCE,
            rows=read.rows,
            rows_dropped=read.dropped,
            host_rows=read.host_rows or beside,
        )

    @staticmethod
    def _is_better(one: Captured, live: HotspotsSnapshot) -> bool:
        """Kernels are more than times on the host, also older ones; of one kind the newer table counts."""
        if live.step is None or live.step <= one.step:
            return one.clock == "device" or live.clock == "host"
        return one.clock == "device" and live.clock == "host"


def _notes(one: Captured, live_step: int | None, is_shown: bool) -> Iterator[Message]:
    if one.state == "failed":
        yield Message.of(_FAILED.text, why=one.why)
    elif one.state in ("recorded", "analysed"):
        yield Message.of(_WORKED_OFF.text, step=one.step, folder=one.folder)
    else:
        pause_ms = one.pause_us / 1000
        yield Message.of(_READ.text, step=one.step, folder=one.folder, pause=pause_ms, cpu=one.cpu_s)
        if is_shown and live_step is not None and live_step > one.step:
            yield Message.of(_OLDER.text, step=one.step)
        if one.clock == "host":
            yield Message.of(_NO_DEVICE.text, why=one.why or "-")


def read_folder(folder: str, here: Callable[[str], Path] = Path) -> Read:
    """Return what the best tables of a capture hold; `here` says where a path of the training is for us.

    What is no plain file, or too large, is passed over: the folder may be anybody's.
    """
    found: dict[str, ProfileResult] = {}
    why: list[str] = []
    for name in TABLES:
        if name == "trace_view.json" and found:
            # It says the same again, and is the largest.
            continue
        path = here(os.path.join(folder, OUTPUT, name))
        try:
            seen = path.lstat()
            if not stat.S_ISREG(seen.st_mode) or seen.st_size > MOST_BYTES:
                why.append(f"{name}: no plain file of at most {MOST_BYTES >> 20} MiB")
                continue
            result = files.read(path)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            why.append(f"{name}: {clean(str(error))}")
            continue
        if result.rows:
            found[name] = result
    if not found:
        reason = "; ".join(why)[:300] or "there is no table in it"
        return Read(why=f"nothing of it could be read: {reason}")
    name = next(one for one in TABLES if one in found)
    best = found[name]
    operators = found.get("operator_details.csv")
    beside = operators.rows if operators is not None and operators.clock == "host" else ()
    is_of_kernels = best.clock == "device" and best is not operators
    return Read(best.rows, best.rows_dropped, best.clock, beside if is_of_kernels else (), tuple(found))
