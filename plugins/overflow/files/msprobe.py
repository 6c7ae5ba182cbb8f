"""Dumps of msprobe: dump.json, with construct.json and stack.json beside it, and anomaly_analyze_*.json.

A dump holds the inputs and outputs of every module and API of one step of one rank, in the order of
execution.  Only what is around the first bad output is kept of a large one.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ascend_tui.frozen import frozen
from ascend_tui.text import clean

from .stream import Members

BEFORE, AFTER = 3000, 1000
"""Entries kept before the first bad one, and looked at after it."""
TEXT = 32 << 20
"""Characters of entries kept."""
MOST_PARENTS = 1_000_000
MOST_TENSORS = 64
MOST_TEXT = 200
MOST_BESIDE = 256 << 20
LARGEST_ANALYSIS = 64 << 20

_FLOATS = ("float", "bfloat", "half", "double", "complex")
_FRAME = re.compile(r"File (.{1,300}?), line (\d{1,9}), in ([^,\n]{1,200})")
_OWN_FRAMES = ("/torch/nn/modules/module.py", "/msprobe/")
_PLACE = re.compile(r"(step|rank)_?(\d{1,9})")


@frozen
class Tensor:
    """The statistics of one tensor; `low` and `high` are None where the dump has none."""

    dtype: str
    shape: tuple[int, ...]
    low: float
    high: float
    mean: float | None
    norm: float | None
    needs_grad: bool


@frozen
class Frame:
    """One line of a stack."""

    file: str
    line: int
    function: str


@frozen
class Entry:
    """One module or API: `data` is as it was written."""

    name: str
    data: Mapping[str, Any]


@frozen
class Dump:
    """What is kept of a dump.

    `total` entries were looked at; `trouble` says in which way the file ended early, `stopped` that the
    reading ended well after the first bad output, `without` that there were tensors without values.
    """

    entries: tuple[Entry, ...]
    parents: Mapping[str, str]
    total: int
    level: str
    step: int | None
    rank: int | None
    trouble: str = ""
    stopped: bool = False
    without: int = 0
    construct: bool = False


Look = Callable[[str, Sequence[Tensor]], Literal["", "near", "bad"]]


def read_dump(path: Path, look: Look) -> Dump:
    """Return what is kept of a dump and of the construct.json beside it.  Raises OSError and ValueError.

    `look` says of a name and its outputs whether they are "bad", "near" their limit, or "".
    """
    parents = _parents(path.with_name("construct.json"))
    keeper = _Keeper(parents, look)
    members = Members(path, "data")
    level = ""
    for depth, key, value, size in members:
        if depth == 1:
            level = words(value) if key == "level" else level
        elif isinstance(value, Mapping):
            keeper.take(Entry(key, value), size)
            if keeper.done:
                break
    if not keeper.total and members.trouble:
        raise ValueError(f"the dump {members.trouble}")
    places = filter(None, map(_PLACE.fullmatch, path.absolute().parts))
    where = {one[1]: int(one[2]) for one in places}
    return Dump(
        entries=tuple(_in_order(keeper.entries(), parents)),
        parents=parents,
        total=keeper.total,
        level=level,
        step=where.get("step"),
        rank=where.get("rank"),
        trouble=members.trouble,
        stopped=keeper.done,
        without=keeper.without,
        construct=bool(parents),
    )


def stack_of(path: Path, name: str) -> tuple[Frame, ...]:
    """Return the stack of an entry from the stack.json beside a dump, empty where there is none."""
    beside = path.with_name("stack.json")
    if not _is_file(beside):
        return ()
    for _, _, value, _ in Members(beside):
        if isinstance(value, list) and len(value) > 1 and isinstance(value[0], list) and name in value[0]:
            return frames(value[1])
    return ()


def frames(value: Any) -> tuple[Frame, ...]:
    """Return the lines of a stack, the innermost last, without those of torch's and msprobe's own hooks."""
    found = []
    for text in items([value] if isinstance(value, str) else value, MOST_TENSORS):
        match = _FRAME.search(text) if isinstance(text, str) else None
        if match and not any(own in match[1] for own in _OWN_FRAMES):
            found.append(Frame(words(match[1]), int(match[2]), words(match[3])))
    return tuple(reversed(found))


def analysis(path: Path) -> Iterator[tuple[int | None, Entry, Mapping[str, str], tuple[Frame, ...]]]:
    """Yield (rank, entry, its parents, its stack) of an anomaly_analyze_*.json.

    Raises OSError, and ValueError where it cannot be read.
    """
    if path.stat().st_size > LARGEST_ANALYSIS:
        raise ValueError("the analysis is larger than 64 MiB")
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig", errors="replace"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the analysis is cut or damaged: {error}") from None
    for key, found in data.items() if isinstance(data, Mapping) else ():
        digits = re.fullmatch(r"rank_?(\d{1,9})", key)
        for one in items(found, 1000):
            if not isinstance(one, Mapping) or not isinstance(one.get("op_name"), str):
                continue
            told = one.get("data_info")
            chain = [name for name in items(one.get("construct_info"), MOST_TENSORS) if isinstance(name, str)]
            parents = dict(zip(chain[1:], chain))
            entry = Entry(one["op_name"], told if isinstance(told, Mapping) else {})
            yield int(digits[1]) if digits else None, entry, parents, frames(one.get("stack_info"))


def words(value: Any) -> str:
    """Return foreign text, cut and safe to draw; what is no text is empty."""
    return clean(value[:MOST_TEXT]) if isinstance(value, str) else ""


def items(value: Any, most: int) -> list[Any]:
    """Return the first members of a list, none of anything else."""
    return value[:most] if isinstance(value, list) else []


def tensors(value: Any) -> list[Tensor]:
    """Return the tensors in what a dump holds of inputs or outputs, however they are nested."""
    found: list[Tensor] = []
    _collect(value, found, 0)
    return found


def without_values(value: Any) -> bool:
    """Tell whether tensors are described here by checksums only."""
    found = items([value] if isinstance(value, Mapping) else value, MOST_TENSORS)
    return any(isinstance(one, Mapping) and "md5" in one and "Max" not in one for one in found)


def _collect(value: Any, found: list[Tensor], depth: int) -> None:
    if len(found) >= MOST_TENSORS or depth > 6:
        return
    if isinstance(value, Mapping):
        if "dtype" in value:
            one = _tensor(value)
            if one is not None:
                found.append(one)
            return
        value = list(value.values())
    for part in items(value, MOST_TENSORS):
        _collect(part, found, depth + 1)


def _tensor(data: Mapping[str, Any]) -> Tensor | None:
    dtype = words(data.get("dtype")).rpartition(".")[2].lower()
    if not dtype.startswith(_FLOATS):
        return None
    low, high = _value(data.get("Min")), _value(data.get("Max"))
    if low is None or high is None:
        return None
    shape = tuple(
        int(one) for one in items(data.get("shape"), 12) if isinstance(one, int) and 0 <= one < 2**53
    )
    mean, norm = _value(data.get("Mean")), _value(data.get("Norm"))
    return Tensor(dtype, shape, low, high, mean, norm, data.get("requires_grad") is True)


def _value(value: Any) -> float | None:
    if isinstance(value, str) and value.strip().lower() in ("nan", "inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


class _Keeper:
    """The entries before the first bad output and some after it, and earlier ones near their limit."""

    def __init__(self, parents: Mapping[str, str], look: Look) -> None:
        self._look = look
        self.total = self.without = 0
        self.done = False
        self._parents = parents
        self._kept: deque[tuple[int, Entry, int]] = deque()
        self._pinned: list[tuple[int, Entry]] = []
        self._text = 0
        self._bad: tuple[int, str] | None = None

    def take(self, entry: Entry, size: int) -> None:
        self.total += 1
        outputs = tensors(entry.data.get("output"))
        if not outputs:
            self.without += without_values(entry.data.get("output"))
        self._kept.append((self.total, entry, size))
        self._text += size
        while self._bad is None and (len(self._kept) > BEFORE or self._text > TEXT):
            self._drop()
        if self._bad is not None:
            # A module that stands before what it calls is bad because of what is in it.
            if self._bad[1] in _ancestors(entry.name, self._parents):
                self._bad = None
            elif self.total - self._bad[0] >= AFTER or self._text > 2 * TEXT:
                self.done = True
        if self._bad is None and self._look(entry.name, outputs) == "bad":
            self._bad = (self.total, entry.name)

    def entries(self) -> list[Entry]:
        return [entry for _, entry in self._pinned] + [entry for _, entry, _ in self._kept]

    def _drop(self) -> None:
        number, entry, size = self._kept.popleft()
        self._text -= size
        if len(self._pinned) >= MOST_TENSORS or size > TEXT // MOST_TENSORS:
            return
        if self._look(entry.name, tensors(entry.data.get("output"))) == "near":
            self._pinned.append((number, entry))


def _ancestors(name: str, parents: Mapping[str, str]) -> list[str]:
    found: list[str] = []
    at = parents.get(name, "")
    # What is its own grandparent would be walked for ever.
    while at and at not in found and len(found) < MOST_TENSORS:
        found.append(at)
        at = parents.get(at, "")
    return found


def _in_order(entries: list[Entry], parents: Mapping[str, str]) -> Iterable[Entry]:
    """Put modules behind what they call: older versions wrote them where they began."""
    place = {entry.name: at for at, entry in enumerate(entries)}
    ends = dict(place)
    for name, at in place.items():
        for above in _ancestors(name, parents):
            if above in ends and place[above] < at:
                ends[above] = max(ends[above], at)
    depth = {name: len(_ancestors(name, parents)) for name, at in ends.items() if at != place[name]}
    # Of those that end together the inner ones come first; what was in its place stays before all of them.
    return sorted(
        entries, key=lambda entry: (ends[entry.name], entry.name in depth, -depth.get(entry.name, 0))
    )


def _parents(path: Path) -> Mapping[str, str]:
    found: dict[str, str] = {}
    if not _is_file(path):
        return found
    for _, key, value, _ in Members(path):
        above = value[0] if isinstance(value, list) and value else value
        if isinstance(above, str) and len(found) < MOST_PARENTS:
            found[key] = above
    return found


def _is_file(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= MOST_BESIDE


def module_of(name: str) -> tuple[str, str] | None:
    """Return path and type of a module's entry, None for an API."""
    parts = name.split(".")
    if parts[0] not in ("Module", "Cell"):
        return None
    for at in range(len(parts) - 1, 1, -1):
        if parts[at] in ("forward", "backward", "parameters_grad"):
            return words(".".join(parts[1 : at - 1])), words(parts[at - 1])
    return None


def owner_of(name: str, parents: Mapping[str, str]) -> tuple[str, str]:
    """Return path and type of the module that an API was called in, empty where that is not known."""
    for above in _ancestors(name, parents):
        found = module_of(above)
        if found is not None:
            return found
    return "", ""


def is_optimizer(name: str, parents: Mapping[str, str]) -> bool:
    """Tell whether an entry is of the optimizer's step."""
    return any(one.lower().startswith("optimizer") for one in (name, *_ancestors(name, parents)))
