"""What the columns of a table of memory are, told by their names and first values.

A unit may stand in the name (`_MB`, `[MiB]`, `(KB)`) or in the cells (`8374.9g`).  All are powers of 1024:
the tools whose numbers end up in such tables (nvidia-smi, npu-smi, top, ps, torch) print binary units,
whatever they call them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

from ascend_tui.frozen import frozen

Role = Literal["axis", "time", "turn", "value", "run", "note"]

_POWERS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_UNIT = re.compile(r"(?:^|[\s_.(\[,])(bytes?|(?:[kmgt]i?)?b)(?=$|[\s_.)\],])", re.IGNORECASE)
_NUMBER = re.compile(
    r"[~≈<>]?\s*([-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*([kmgt]?)(i?b|bytes)?\s*\+?", re.IGNORECASE
)
_BLANK = frozenset(
    ("", "-", "--", "na", "n/a", "nan", "none", "null", "?", "unknown", "[n/a]", "not available")
)

_NO_MEMORY = re.compile(
    r"%|percent|ratio|util|/s\b|per_s|_bw\b|count|blocks\b|tokens|objects|samples|num_|\bn_|frag_index|temp|power"
)
_IGNORED = re.compile(
    r"virt|\bvsz\b|\bvms\b|vmsize|\bshr\b|shared|cached|inactive|unused|\bfree\b|free_|_free|capacity|limit|swap"
    r"|host[._ ]*total"
)
_TOTAL = re.compile(
    r"(?:(?:mem|memory|device|hbm|gpu|npu|card|used|vram) )*(?:total|capacity)"
    r"(?: (?:mem|memory|hbm|capacity|vram|bytes?|[kmgt]?i?b))*"
)
_QUANTITIES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("outside", re.compile(r"outside|non[_ -]?(?:py)?torch|out[_ -]of[_ -]torch|beyond[_ -]torch")),
    ("pinned", re.compile(r"pinned|page[_ -]?locked|pin[_ -]?mem")),
    ("workers", re.compile(r"workers?|loader|child")),
    ("inactive_split", re.compile(r"inactive.?split")),
    ("segment", re.compile(r"segment")),
    ("reserved", re.compile(r"reserved|\bpool")),
    ("allocated", re.compile(r"leak")),
    ("active", re.compile(r"active")),
    ("allocated", re.compile(r"alloc|live|tensor")),
    (
        "rss",
        re.compile(
            r"\brss\b|\bres\b|\brsz\b|resident|host|\buss\b|\bpss\b|\bram\b|vmrss|cpu[_ ]?mem|\bcpu\b"
        ),
    ),
    (
        "device_used",
        re.compile(
            r"device|hbm|gpu|npu|vram|\bused\b|used_|_used|\bmem\b|mem_|_mem|memory|\bmem|cuda|dram|smi"
        ),
    ),
)
_SURE = 7
"""The first of them are meant whatever else a name says."""
TOTAL = "total"
"""The size of the device."""
_AXES = re.compile(
    r"(?:global_?|train_?)?(?:step|iter|iteration|batch|seq|sequence|mini_?batch|request|call|inference|sample|round|cycle)s?"
    r"(?:_?(?:no|num|number|id|idx|index))?|n_\w+|num_\w+|index|idx|it|n"
)
_TIMES = re.compile(
    r"(?:elapsed|wall|unix|epoch_?time|mono)?_?(?:time(?:stamp)?|date(?:time)?|seconds?|secs?|minutes?|mins?|hours?|days?"
    r"|uptime|elapsed)(?:[_ (\[]*(?:s|sec|ms|us|ns|min|h|hr|utc)[)\]]*)?|t|ts|ms|t_s"
)
_TURNS = re.compile(r"epochs?")
_RUNS = re.compile(
    r"(?:local_?|global_?|world_?)?(?:run|rank|pid|process(?:es)?|proc|worker|device|gpu|npu|card|chip|host|hostname|node|command"
    r"|setting|config|variant|case|model|exp|experiment|job|component|series|repro|name|user|version|backend)"
    r"(?:_?(?:id|idx|index|name|type))?"
)
_SECONDS = (
    (r"ns\b", 1e-9),
    (r"us\b|µs", 1e-6),
    (r"\bms\b|_ms|msec", 1e-3),
    (r"min", 60.0),
    (r"h(?:ou)?rs?\b|_h\b", 3600.0),
)
_SAMPLED = 64


@frozen
class Column:
    """One column: what it is for, and for values which quantity and how many bytes its unit has.

    `scale` of a time is in seconds.  A `peak` is a running maximum, which cannot fall.
    """

    name: str
    role: Role
    quantity: str = ""
    scale: float = 1.0
    peak: bool = False


def number(cell: str, scale: float = 1.0) -> float | None:
    """Return the value of a cell in bytes (or in `scale`), None where there is none.

    A unit in the cell overrides that of the column; `90+` and `1,234` are numbers.
    """
    if cell.isascii() and cell.replace(".", "", 1).isdigit() and len(cell) < 40:
        return float(cell) * scale
    match = _NUMBER.fullmatch(cell.strip())
    if match is None:
        return None
    try:
        value = float(match[1].replace(",", ""))
    except ValueError:
        return None
    if match[2] or match[3]:
        scale = 1024.0 ** _POWERS[match[2].lower()]
    value *= scale
    return value if math.isfinite(value) else None


def is_blank(cell: str) -> bool:
    """Tell whether a cell says that there is no value."""
    return cell.strip().lower() in _BLANK


def unit(name: str) -> float | None:
    """Return the bytes of the unit that a name holds, None where it holds none."""
    match = _UNIT.search(name)
    if match is None:
        return None
    word = match[1].lower()
    return 1024.0 ** _POWERS["" if word.startswith("byte") else word[0]]


def quantity(name: str) -> str:
    """Return which quantity of the memory plugin a name means, "" for none."""
    plain = _plain(name)
    if _NO_MEMORY.search(plain):
        return ""
    for word, pattern in _QUANTITIES[:_SURE]:
        if pattern.search(plain):
            return word
    if _TOTAL.fullmatch(plain):
        return TOTAL
    if _IGNORED.search(plain):
        return ""
    return next((word for word, pattern in _QUANTITIES[_SURE:] if pattern.search(plain)), "")


def _plain(name: str) -> str:
    """Return a name in lower case without its unit, camel case and signs undone: its words apart."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", _UNIT.sub("_", name.strip()))
    return re.sub(r"[\s_.()\[\]-]+", " ", spaced).strip().lower().replace(" ", "_").replace("_", " ")


def describe(
    names: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Return the columns of a table and what had to be assumed, from their names and the first rows."""
    assumed: list[str] = []
    found = [
        _column(name, [row[at] for row in rows if at < len(row)], assumed) for at, name in enumerate(names)
    ]
    if not any(column.role in ("axis", "time") for column in found) and _counts_up(found, rows):
        found[0] = Column(found[0].name, "axis")
    if not any(column.role == "axis" for column in found):
        # Without steps the epochs are the axis; beside steps they tell when these begin anew.
        found = [Column(one.name, "axis") if one.role == "turn" else one for one in found]
    if any(column.role == "axis" for column in found):
        first = next(at for at, column in enumerate(found) if column.role == "axis")
        found = [
            Column(one.name, "note") if one.role in ("axis", "time") and at != first else one
            for at, one in enumerate(found)
        ]
    plain = {one.quantity for one in found if one.role == "value" and not one.peak}
    # A running maximum only counts where nothing else tells of the quantity.
    return tuple(
        Column(one.name, "note") if one.peak and one.quantity in plain else one for one in found
    ), tuple(assumed)


def _counts_up(found: Sequence[Column], rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether the first column, whatever its name, is a number that grows from row to row."""
    if not found or found[0].role != "note" or len(rows) < 3:
        return False
    values = [number(row[0]) if row else None for row in rows]
    known = [value for value in values if value is not None]
    return len(known) == len(values) and all(one < later for one, later in zip(known, known[1:]))


def _column(name: str, values: Sequence[str], assumed: list[str]) -> Column:
    filled = [value for value in values[:_SAMPLED] if not is_blank(value)]
    numbers = [found for value in filled if (found := number(value)) is not None]
    numeric = bool(filled) and len(numbers) >= 0.7 * len(filled)
    bare = re.sub(r"[\s.-]+", "_", name.strip().lower())
    memory = quantity(name)
    size = unit(name)
    if re.search(r"/\s*s\b|per_s", bare):
        size = None
    if memory and numeric and not _RUNS.fullmatch(bare) and not _AXES.fullmatch(bare):
        peak = bool(re.search(r"peak|max", bare))
        suffixed = any((match := _NUMBER.fullmatch(value)) and (match[2] or match[3]) for value in filled)
        if size is None:
            # top counts in KiB and gives a letter to what is larger.
            top = 1024.0 if memory in ("rss", "workers") else 1.0
            size = top if suffixed else _guess(name, memory, numbers, assumed)
        return Column(name, "value", memory, size or 1.0, peak)
    if (
        size is not None
        and numeric
        and not _NO_MEMORY.search(_plain(name))
        and not _IGNORED.search(_plain(name))
    ):
        return Column(name, "value", "device_used", size)
    if _TURNS.fullmatch(bare) and numeric:
        return Column(name, "turn")
    if _AXES.fullmatch(bare) and numeric:
        return Column(name, "axis")
    if _TIMES.fullmatch(bare):
        scale = next((seconds for pattern, seconds in _SECONDS if re.search(pattern, bare)), 1.0)
        return Column(name, "time", scale=scale)
    if _RUNS.fullmatch(bare) and all(value.isdigit() or number(value) is None for value in filled):
        return Column(name, "run")
    return Column(name, "note")


def _guess(name: str, memory: str, numbers: Sequence[float], assumed: list[str]) -> float:
    """Return a unit for a column that names none, and write down that it was guessed.

    ps and top count in KiB, torch in bytes; less than a million bytes in use is no device.
    """
    largest = max(map(abs, numbers), default=0.0)
    if memory in ("rss", "workers"):
        power, word = (0, "bytes") if largest >= 2**31 else (1, "KiB") if largest >= 1e5 else (2, "MiB")
    else:
        power, word = (0, "bytes") if largest >= 1e6 else (2, "MiB") if largest >= 200 else (3, "GiB")
    assumed.append(f"{name}: {word}")
    return float(1024**power)
