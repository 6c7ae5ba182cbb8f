"""Tables with a row for each task of a device: op_summary, kernel_details, task_time.

The columns differ by version, chip and options; a task without its own time is no row.  Tasks are grouped by
the type of their operator, and where that is N/A by their name without its running number.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ascend_tui.plugin import Message
from ascend_tui.text import clean

from ..kinds import stem
from ..snapshot import ProfileResult
from .columns import Header, nanoseconds, number, time_us, word
from .groups import NAME, Group, Groups
from .reader import BLOCK, LARGE_BLOCK, Fast, Reader, head_of
from .units import Columns, Sums
from .usage import Busy

LARGE = 4 << 20
"""Bytes of a table from which on it pays to load polars, where that is installed."""

MOST_KNOWN = 1 << 14
"""Types and cores whose operators are remembered by their raw text."""

_NAMES = ("op name", "name", "kernel name")
_TYPES = ("op type", "type")
_CORES = ("task type", "accelerator core", "kernel type", "core type")
_TIMES = ("task duration", "duration", "task time")
_WAITS = ("task wait time", "wait time")
_STARTS = ("task start time", "start time", "task start")
_BLOCKS = ("block num", "block dim")


def is_op_summary(head: str, name: str) -> bool:
    """Tell whether a text begins like op_summary_*.csv; msopprof's table of one operator does not."""
    header = head_of(head)
    return (
        header.has("op name", "task duration")
        and not header.has("rated freq")
        and header.at("task start time", "task type", "stream id", "task id") >= 0
    )


def is_kernel_details(head: str, name: str) -> bool:
    """Tell whether a text begins like kernel_details.csv."""
    header = head_of(head)
    return header.has("name", "duration") and header.at("accelerator core", "wait time") >= 0


def is_task_time(head: str, name: str) -> bool:
    """Tell whether a text begins like task_time_*.csv."""
    header = head_of(head)
    return header.has("kernel name", "task time") or header.has("kernel name", "kernel type", "task start")


def read_op_summary(path: Path) -> ProfileResult:
    """Return the operators of an op_summary_*.csv.  Raises OSError."""
    return _read(path, "op_summary")


def read_kernel_details(path: Path) -> ProfileResult:
    """Return the operators of a kernel_details.csv.  Raises OSError."""
    return _read(path, "kernel_details")


def read_task_time(path: Path) -> ProfileResult:
    """Return the kernels of a task_time_*.csv.  Raises OSError."""
    return _read(path, "task_time")


class Places:
    """Where the columns of a table of tasks are; -1 for one that it has not."""

    def __init__(self, header: Header) -> None:
        """Find them by their names."""
        self.width = len(header)
        self.name, self.type = header.at(*_NAMES), header.at(*_TYPES)
        self.core, self.time = header.at(*_CORES), header.at(*_TIMES)
        self.wait, self.start, self.block = header.at(*_WAITS), header.at(*_STARTS), header.at(*_BLOCKS)
        self.stop = header.at("task stop", "stop time", "task stop time")
        self.shapes, self.dtypes = header.at("input shapes"), header.at("input data types")
        self.wide = tuple(at for at, name in enumerate(header.names) if name.endswith("shapes"))
        """Columns whose cells may hold commas."""
        self.step, self.device = header.at("step id"), header.at("device id")
        self.time_scale = header.scales[self.time] if self.time >= 0 else 1.0
        self.wait_scale = header.scales[self.wait] if self.wait >= 0 else 1.0
        self.start_scale = header.scales[self.start] if self.start >= 0 else 1.0
        self.columns = Columns(header)


class Tasks:
    """Add up the tasks of a table, row by row or, of large files, many rows at once."""

    def __init__(self, places: Places) -> None:
        """Start with none."""
        self.places = places
        self.groups = Groups(places.columns)
        self.busy = Busy()
        self._known: dict[tuple[str, str], tuple[Group | None, str]] = {}
        self.unnamed: dict[str, list[float]] = {}
        self.steps: dict[str, None] = {}
        self.devices: dict[str, None] = {}

    def take(self, cells: list[str]) -> bool:
        """Take one row; tell whether it could be understood."""
        at = self.places
        us = time_us(cells[at.time], at.time_scale) if at.time >= 0 else None
        if us is None:
            return False
        if at.device >= 0 and cells[at.device] not in self.devices and len(self.devices) < NAME:
            self.devices[cells[at.device]] = None
        if at.step >= 0 and cells[at.step] not in self.steps and len(self.steps) < 1_000_000:
            self.steps[cells[at.step]] = None
        key = (cells[at.type] if at.type >= 0 else "", cells[at.core] if at.core >= 0 else "")
        known = self._known.get(key)
        if known is None:
            known = self._know(key, cells[at.name] if at.name >= 0 else "")
        group, core = known
        if group is None:
            self.lose(core, us, 1)
            return True
        group.add(us, 1, core)
        group.spread(us, us)
        wait = time_us(cells[at.wait], at.wait_scale) if at.wait >= 0 else None
        if wait is not None:
            group.waits += 1
            group.wait_us += wait
        blocks = number(cells[at.block]) if at.block >= 0 else None
        if blocks is not None and blocks > 0:
            group.blocks_time += us
            group.blocks_us += blocks * us
        if at.shapes >= 0:
            self.use(group, cells[at.shapes], cells[at.dtypes] if at.dtypes >= 0 else "", us)
        if at.start >= 0:
            start = nanoseconds(cells[at.start], at.start_scale)
            if start is not None:
                self.busy.add(start, start + round(us * 1000), cells[at.device] if at.device >= 0 else "")
        if group.sums is not None and at.columns:
            self._measure(group.sums, cells, us)
        return True

    def _know(self, key: tuple[str, str], name: str) -> tuple[Group | None, str]:
        kind, core = word(key[0]), word(key[1])[:NAME]
        found = (self.group(kind, word(name)), core)
        if kind:
            # Without a type it is the name that counts, and names differ in every row.
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = found
        return found

    def group(self, kind: str, name: str) -> Group | None:
        """Return the sums of an operator; None where the row names none."""
        return self.groups.of(kind[:NAME] or stem(name[:NAME])) if kind or name else None

    def lose(self, core: str, us: float, calls: int) -> None:
        """Take tasks that have no name: they are no operators."""
        sums = self.unnamed.setdefault(core if len(self.unnamed) < NAME else "", [0, 0.0])
        sums[0] += calls
        sums[1] += us

    def use(self, group: Group, shapes: str, dtypes: str, us: float, calls: int = 1) -> None:
        """Take the shapes of a row; a column that is N/A or blank tells of none."""
        known, types = word(shapes), word(dtypes)
        if known or (types and types != "UNDEFINED"):
            group.use(known, types, us, calls)

    def _measure(self, sums: Sums, cells: list[str], us: float) -> None:
        columns = self.places.columns
        spent = [number(cells[at]) if at >= 0 else us for at in columns.weights]
        for core, weight in enumerate(spent):
            if weight:
                sums.cores[core] += weight
        for place, core, at, is_time in columns.plain:
            weight = spent[core]
            # What a core did not run for is not read: half of the cells of most tasks.
            value = number(cells[at]) if weight else None
            if weight and value is not None:
                sums.busy[place] += value if is_time else value * weight
                sums.weights[place] += weight
        if columns.utilization >= 0 and (columns.weights[0] < 0 or spent[0]):
            value = number(cells[columns.utilization])
            if value is not None:
                sums.use += value * columns.utilization_scale * us
                sums.use_weight += us

    def notes(self) -> list[Message]:
        """Return what a person has to know of these sums."""
        at, notes = self.places, []
        if self.unnamed:
            kinds = sorted(self.unnamed, key=lambda one: -self.unnamed[one][1])
            notes.append(
                Message.of(
                    "{count} tasks without a name are no operators ({kinds}): left out, {time_us} us",
                    count=sum(int(one[0]) for one in self.unnamed.values()),
                    kinds=clean(", ".join(one or "N/A" for one in kinds[:4])),
                    time_us=round(sum(one[1] for one in self.unnamed.values()), 3),
                )
            )
        steps = [one.strip() for one in self.steps if word(one)]
        if len(steps) > 1:
            notes.append(Message.of("The times are those of {count} steps together", count=len(steps)))
        devices = [one.strip() for one in self.devices if word(one)]
        if len(devices) > 1:
            notes.append(Message.of("The times of {count} devices are added up", count=len(devices)))
        if at.time < 0:
            notes.append(Message.of("There is no column with the time of a task"))
        elif not at.columns:
            notes.append(
                Message.of("The file has no metrics of the AI Core: what limits an operator is not known")
            )
        return notes


def _fast(tasks: Tasks) -> Fast | None:
    try:
        from .fast import Blocks
    except ImportError:
        return None
    return Blocks(tasks).take


def _read(path: Path, kind: str) -> ProfileResult:
    large = path.stat().st_size >= LARGE
    reader = Reader(path, LARGE_BLOCK if large else BLOCK)
    tasks = Tasks(Places(reader.header))
    reader.rows(tasks.take, _fast(tasks) if large and reader.plain else None)
    result = tasks.groups.result(kind, reader, tasks.notes())
    talk_us = sum(row.self_time_us for row in result.rows if row.kind == "communication")
    return dataclasses.replace(result, device=tasks.busy.result(talk_us))
