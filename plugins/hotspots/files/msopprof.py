"""Folders of msopprof (`msprof op`): one kernel in OpBasicInfo.csv, its blocks in the tables beside it.

A block has a row for each of its cores: what a core cannot do is N/A there and takes no part in the mean.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ascend_tui.plugin import Message

from ..kinds import kind_of
from ..ranking import ranked
from ..snapshot import Bound, ProfileResult, Row, Units
from .columns import Header
from .csv_rows import amount, header_of, walk
from .units import BUSY, SURELY

MOST_KERNELS = 1000
SIBLINGS = (
    "PipeUtilization",
    "ArithmeticUtilization",
    "L2Cache",
    "Memory",
    "MemoryL0",
    "MemoryUB",
    "ResourceConflictRatio",
)
_BASIC = "OpBasicInfo"
_DURATION = "task duration"
_STAMP = re.compile(r"(?:[_-]\d+)+$|\d{6,}$")
"""A time in a name; the digit of MemoryL0 is none."""

_UNITS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cube_ratio", ("aic cube ratio", "aic mac ratio", "cube ratio", "mac ratio")),
    ("vector_ratio", ("aiv vec ratio", "aic vec ratio", "vec ratio")),
    ("scalar_ratio", ("aic scalar ratio", "aiv scalar ratio", "scalar ratio")),
    ("mte1_ratio", ("aic mte1 ratio", "aiv mte1 ratio", "mte1 ratio")),
    ("mte2_ratio", ("aic mte2 ratio", "aiv mte2 ratio", "mte2 ratio")),
    ("mte3_ratio", ("aic mte3 ratio", "aiv mte3 ratio", "mte3 ratio")),
    ("fixpipe_ratio", ("aic fixpipe ratio", "fixpipe ratio")),
    ("icache_miss_rate", ("aic icache miss rate", "aiv icache miss rate", "icache miss rate")),
)
_BOUNDS: tuple[tuple[str, Bound], ...] = (
    ("cube_ratio", "cube"),
    ("vector_ratio", "vector"),
    ("scalar_ratio", "scalar"),
    ("mte1_ratio", "mte1"),
    ("mte2_ratio", "mte2"),
    ("mte3_ratio", "mte3"),
    ("fixpipe_ratio", "fixpipe"),
)

_ALONE = Message(
    "only a table of its blocks: its name and its time are in the OpBasicInfo.csv that is missing"
)
_BESIDE = Message("read together with {name}, which has the result")
_NO_BLOCKS = Message("no PipeUtilization.csv is beside it: which unit limits the kernel is not known")
_SEVERAL = Message("the file holds {n} kernels: whose blocks the tables beside it tell of is not known")
_FREQUENCY = Message("it ran at {current:g} MHz, rated {rated:g} MHz: its times are longer by that")


def is_msopprof(head: str, name: str) -> bool:
    """Tell whether a text begins like OpBasicInfo.csv or one of the tables of blocks."""
    return _is_basic(header_of(head)) or _is_blocks(header_of(head))


def read_msopprof(path: Path) -> ProfileResult:
    """Return the kernel of a folder, by its OpBasicInfo.csv; of a table alone what its blocks say.

    Raises OSError, and ValueError where nothing in it can be read.
    """
    header = header_of(_head(path))
    return _basic(path) if _is_basic(header) else _blocks(path)


def _is_basic(header: Header) -> bool:
    return (
        header.has("op name", _DURATION)
        and header.at("current freq", "rated freq", "pid") >= 0
        and header.at("task start time", "stream id", "task id") < 0
    )


def _is_blocks(header: Header) -> bool:
    return header.names[:1] == ("block id",) and any(
        name.startswith(("aic ", "aiv ", "ai ", "ub ")) for name in header.names[1:]
    )


def _basic(path: Path) -> ProfileResult:
    kernels: list[Row] = []
    notes: list[Message] = []
    scale = header_of(_head(path)).scales[header_of(_head(path)).at(_DURATION)]

    def take(row: Mapping[str, str]) -> bool:
        time, name = amount(row, _DURATION), row.get("op name", "")
        if time is None or time < 0 or not name or len(kernels) >= MOST_KERNELS:
            return False
        kernels.append(_kernel(name, row.get("op type", ""), time * scale, _block_num(row)))
        current, rated = amount(row, "current freq"), amount(row, "rated freq")
        if current is not None and rated is not None and 0 < current < rated:
            notes.append(Message.of(_FREQUENCY.text, current=current, rated=rated))
        return True

    reader = walk(path, take)
    if not kernels:
        raise ValueError("no kernel with its time in it")
    files = [path.name]
    beside = _beside(path)
    pipes = beside.get("PipeUtilization")
    if len(kernels) == 1:
        if pipes is None:
            notes.append(_NO_BLOCKS)
        else:
            units = units_of(pipes, kernels[0].units)
            kernels = [dataclasses.replace(kernels[0], units=units)]
        files += [found.name for found in beside.values()]
    elif beside:
        notes.append(Message.of(_SEVERAL.text, n=len(kernels)))
    found, dropped = ranked(_merged(kernels))
    return ProfileResult(
        format="msopprof",
        rows=found,
        rows_dropped=dropped,
        total_time_us=sum(one.self_time_us for one in kernels),
        read=len(kernels),
        skipped=reader.skipped,
        files=tuple(files),
        notes=(*dict.fromkeys(notes), *reader.notes()),
    )


def _kernel(name: str, core: str, time_us: float, blocks: float | None) -> Row:
    return Row(
        name=name[:400],
        # "mix", "vector" and "cube" are what it runs on; any kernel of msopprof's runs on the AI Core.
        kind=kind_of(name, "AI_CORE"),
        self_time_us=time_us,
        share=0.0,
        cumulative_share=0.0,
        calls=1,
        min_us=time_us,
        max_us=time_us,
        core=core[:64],
        units=None if blocks is None else Units(block_num=blocks),
    )


def _block_num(row: Mapping[str, str]) -> float | None:
    return amount(row, "block dim", "block num")


def _merged(kernels: list[Row]) -> Iterator[Row]:
    """Yield one row for all launches of a kernel."""
    found: dict[tuple[str, str], list[Row]] = {}
    for one in kernels:
        found.setdefault((one.name, one.core), []).append(one)
    for same in found.values():
        times = [one.self_time_us for one in same]
        yield dataclasses.replace(
            same[0], self_time_us=sum(times), calls=len(same), min_us=min(times), max_us=max(times)
        )


def _blocks(path: Path) -> ProfileResult:
    count = walk(path, bool).read
    if not count:
        raise ValueError("no block in it")
    basic = _beside(path).get(_BASIC)
    if basic is not None:
        words = Message.of(_BESIDE.text, name=basic.name)
        return ProfileResult(format="msopprof", read=count, files=(path.name, basic.name), notes=(words,))
    units = units_of(path, None)
    row = Row(
        name=_STAMP.sub("", path.stem),
        kind="compute",
        self_time_us=0.0,
        share=0.0,
        cumulative_share=0.0,
        calls=0,
        units=units,
    )
    return ProfileResult(
        format="msopprof",
        rows=(row,) if units != Units() else (),
        read=count,
        files=(path.name,),
        notes=(_ALONE,),
    )


def units_of(path: Path, before: Units | None) -> Units:
    """Return how busy the units were, as means over the blocks; of two cores of a block the busier one.

    Raises OSError.
    """
    sums: dict[str, list[float]] = {}

    def take(row: Mapping[str, str]) -> bool:
        for _, columns in _UNITS:
            for column in columns:
                value = amount(row, column)
                # Cycles of a core that is not counted right make a ratio above one.
                if value is not None and value >= 0:
                    found = sums.setdefault(column, [0.0, 0.0])
                    found[0] += min(1.0, value)
                    found[1] += 1
        return True

    walk(path, take)
    means = {column: whole / count for column, (whole, count) in sums.items()}
    ratios = {
        name: max((means[column] for column in columns if column in means), default=None)
        for name, columns in _UNITS
    }
    cube, vector, mte2 = ratios["cube_ratio"], ratios["vector_ratio"], ratios["mte2_ratio"]
    computing = max(cube or 0.0, vector or 0.0)
    return Units(
        **ratios,
        memory_bound=mte2 / computing if mte2 is not None and computing > 0 else None,
        block_num=before.block_num if before is not None else None,
        bound=bound_of(ratios),
    )


def bound_of(ratios: Mapping[str, float | None]) -> Bound:
    """Return the busiest unit where it limits; "latency" where all were measured and none does."""
    found = [(value, bound) for name, bound in _BOUNDS if (value := ratios.get(name)) is not None]
    if not found:
        return ""
    most, bound = max(found)
    measured = {bound for _, bound in found}
    if {"scalar", "mte2"} <= measured and {"cube", "vector"} & measured:
        return bound if most >= BUSY else "latency"
    return bound if most >= SURELY else ""


def _beside(path: Path) -> dict[str, Path]:
    """Return the tables of this folder and time stamp by what they are, without the file itself."""
    own = _stamp(path.stem)
    found: dict[str, Path] = {}
    for other in sorted(path.parent.glob("*.csv")):
        table = _table(other.stem)
        if table and other != path and _stamp(other.stem) in (own, "") and other.is_file():
            header = header_of(_head(other))
            if _is_basic(header) if table == _BASIC else _is_blocks(header):
                found.setdefault(table, other)
    return found


def _table(stem: str) -> str:
    bare = _STAMP.sub("", stem)
    return next((name for name in (_BASIC, *SIBLINGS) if bare.lower() == name.lower()), "")


def _stamp(stem: str) -> str:
    found = _STAMP.search(stem)
    return found.group().lstrip("_-") if found else ""


def _head(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(1 << 16).decode("utf-8-sig", "replace")
