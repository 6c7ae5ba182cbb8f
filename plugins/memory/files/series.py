"""Tables of memory over time or steps: CSV with a header or a `# columns:` line.

Values of different runs are never mixed: a column such as `run`, `rank` or `pid` tells them apart, so does a
remark in parentheses before a label, and an axis that begins anew.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone

from ascend_tui.frozen import frozen

from .columns import Column, describe, is_blank, number, quantity, unit
from .lines import cells

PEEKED = 64
"""Rows that are looked at before it is decided what the columns are."""
WORDS = 32
"""Words of text cells that are kept as evidence."""

_COLUMNS = re.compile(r"^#+\s*columns?\s*[:=]\s*(.+)$", re.IGNORECASE)
_KEYS = frozenset(("metric", "name", "key", "quantity", "item", "field"))
_VALUES = frozenset(("value", "val", "amount", "number", "reading"))
_APART = re.compile(r"^\(([^)]*)\)\s*(.*)$")
_STEPS = re.compile(r"(?:global_)?step|iter(?:ation)?|batch|epoch", re.IGNORECASE)
_BARE = re.compile(
    r"\s*(?:(?:max|peak|gpu|npu|device|hbm|cuda|host|card)[_ ])*mem(?:ory)?"
    r"(?:[_ ](?:used|usage|allocated|reserved))?\s*",
    re.IGNORECASE,
)
_CLOCK = re.compile(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)")


@frozen
class Sample:
    """One row: which run it belongs to, where on the axis it is, and its values in bytes by quantity."""

    run: str
    at: float
    values: Mapping[str, float]
    label: str = ""


class Table:
    """A table of memory: iterate over its samples once, then look at what it held."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Read as far as needed to know the columns."""
        self._lines = iter(lines)
        self._delimiter = ","
        self.names: tuple[str, ...] = ()
        self.columns: tuple[Column, ...] = ()
        self.assumed: tuple[str, ...] = ()
        self.words: list[str] = []
        self.rows = 0
        self.oldest: dict[str, float] = {}
        self._at: dict[str, float] = {}
        self._turn: dict[str, tuple[str, int]] = {}
        self._shift: dict[str, float] = {}
        self._first = list(itertools.islice(self._rows(), PEEKED))
        if self._is_list:
            self._turn_over()
        self.columns, self.assumed = describe(self.names, self._first)

    @property
    def axis(self) -> str | None:
        """Return the name of the axis, None where rows are just counted."""
        return next((one.name for one in self.columns if one.role in ("axis", "time")), None)

    @property
    def over_time(self) -> bool:
        """Tell whether the axis is in seconds."""
        roles = [one.role for one in self.columns]
        return "time" in roles and "axis" not in roles

    @property
    def per_process(self) -> bool:
        """Tell whether the rows are of processes, as those of top are."""
        return any(
            one.role == "run" and one.name.strip().lower() in ("pid", "process_id") for one in self.columns
        )

    @property
    def quantities(self) -> tuple[str, ...]:
        """Return the quantities of the columns, in their order."""
        return tuple(dict.fromkeys(one.quantity for one in self.columns if one.role == "value"))

    def _rows(self) -> Iterator[list[str]]:
        for line in self._lines:
            text = line.strip()
            if not text or text.startswith("#"):
                named = _COLUMNS.match(text)
                if named and not self.names:
                    self.names = tuple(name.strip() for name in named[1].split(","))
                continue
            if not self.names:
                self._delimiter = delimiter_of(text)
                self.names = tuple(split(text, self._delimiter))
                continue
            row = split(text, self._delimiter)
            if len(row) > len(self.names):
                # A remark in the last column may hold commas of its own.
                last = len(self.names) - 1
                row = [*row[:last], ", ".join(row[last:])]
            yield row

    @property
    def _is_list(self) -> bool:
        """Tell whether each row names a quantity and its only value."""
        return is_list(self.names)

    def _turn_over(self) -> None:
        pairs = [row for row in self._first if len(row) == 2 and quantity(row[0])]
        self.names = tuple(row[0] for row in pairs)
        self._first = [[row[1] for row in pairs]] if pairs else []
        self._lines = iter(())

    def __iter__(self) -> Iterator[Sample]:
        """Yield the samples in the order of the rows."""
        rest = () if self._is_list else self._rows()
        for row in itertools.chain(self._first, rest):
            self.rows += 1
            sample = self._sample(row)
            if sample is not None:
                yield sample

    def _sample(self, row: Sequence[str]) -> Sample | None:
        runs, labels = [], []
        values: dict[str, float] = {}
        place: float | None = None
        turn = ""
        for column, cell in zip(self.columns, row):
            if column.role == "value":
                value = None if is_blank(cell) else number(cell, column.scale)
                if value is not None and column.quantity not in values:
                    values[column.quantity] = value
            elif column.role in ("axis", "time"):
                place = moment(cell, column.scale) if column.role == "time" else number(cell)
            elif column.role == "turn":
                turn = cell
            elif column.role == "run":
                if not is_blank(cell):
                    runs.append(cell)
            elif not is_blank(cell) and number(cell) is None:
                apart = _APART.match(cell)
                if apart and apart[2]:
                    runs.append(apart[1])
                labels.append(apart[2] if apart and apart[2] else cell)
        if len(self.words) < WORDS:
            self.words.extend(labels)
        if not values:
            return None
        run, at = self._place(" ".join(runs), place, turn)
        return Sample(run, at, values, labels[0] if labels else "")

    def _place(self, run: str, place: float | None, turn: str) -> tuple[str, float]:
        """Return run and axis value: a step that falls begins a new run, or goes on in a new epoch."""
        before = self._at.get(run)
        if place is None:
            place = 0.0 if before is None else before + 1
            self._at[run] = place
            return run, place
        name, number_of_run = self._turn.get(run, (turn, 1))
        if before is not None and place + self._shift.get(run, 0.0) < before:
            if turn and turn != name:
                self._shift[run] = before + 1 - place
            else:
                number_of_run += 1
                self._shift[run] = 0.0
        self._turn[run] = (turn, number_of_run)
        at = place + self._shift.get(run, 0.0)
        self._at[run] = at
        if number_of_run > 1:
            run = f"{run} #{number_of_run}".strip()
        # Seconds since 1970 would leave no digits for a slope.
        start = self.oldest.setdefault(run, at if self.over_time else 0.0)
        return run, at - start


def moment(cell: str, scale: float) -> float | None:
    """Return a time in seconds: a number, a date, or hours, minutes and seconds."""
    value = number(cell)
    if value is not None:
        return value * scale
    clock = _CLOCK.fullmatch(cell.strip())
    if clock:
        return int(clock[1]) * 3600 + int(clock[2]) * 60 + float(clock[3])
    text = cell.strip().replace("/", "-").replace(",", ".").removesuffix("Z")
    for form in ("%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S"):
        try:
            return datetime.strptime(text, form).replace(tzinfo=timezone.utc).timestamp()
        except (ValueError, OverflowError):
            continue
    return None


def delimiter_of(header: str) -> str:
    """Return what sets the cells of a header apart; a space stands for any white space."""
    return next((sign for sign in "\t;,|" if sign in header), " ")


def split(line: str, delimiter: str) -> list[str]:
    """Return the cells of one line."""
    if delimiter == " ":
        return line.split()
    if '"' not in line:
        return [cell.strip() for cell in line.strip("|").split(delimiter)]
    return next(cells([line], delimiter), [])


def is_list(names: Sequence[str]) -> bool:
    """Tell whether the columns are the name of a quantity and its value."""
    return len(names) == 2 and names[0].lower() in _KEYS and names[1].lower() in _VALUES


def is_series(head: str) -> bool:
    """Tell whether a file begins like a table of memory."""
    for line in head.splitlines()[:40]:
        text = line.strip()
        named = _COLUMNS.match(text)
        if named:
            return _tells_memory(named[1].split(",")) or bool(
                re.search(r"memor|OOM|[GM]i?B\b|pinned|alloc", head)
            )
        if not text or text.startswith("#"):
            continue
        names = split(text, delimiter_of(text))
        if is_list(names):
            rows = [split(row, delimiter_of(text)) for row in head.splitlines() if row.strip() != text]
            return any(
                len(row) == 2 and _tells_memory(row[:1]) and number(row[1]) is not None for row in rows
            )
        # A sentence is no header: the words of one are short, few and hold no number of their own.
        if len(names) > 40 or any(number(name) is not None or len(name) > 60 for name in names):
            return False
        return _tells_memory(names) and _second_is_numbers(head, text)
    return False


def _tells_memory(names: Sequence[str]) -> bool:
    known = [name for name in names if quantity(name)]
    sized = [name for name in names if unit(name) is not None and "/s" not in name]
    exact = {"rss", "res", "vmrss", "allocated", "reserved", "memory_allocated", "memory_reserved", "active"}
    if set(known) & set(sized) or any(name.strip().lower() in exact for name in known):
        return True
    # A bare `memory` means something beside a count of steps only.
    return any(_STEPS.fullmatch(name.strip()) for name in names) and any(
        _BARE.fullmatch(name) for name in known
    )


def _second_is_numbers(head: str, header: str) -> bool:
    """Tell whether the row after the header holds a number, as a sentence would not."""
    delimiter = delimiter_of(header)
    rows = [
        line
        for line in head.splitlines()
        if line.strip() and not line.startswith("#") and line.strip() != header
    ]
    names = split(header, delimiter)
    for row in rows[:3]:
        row_cells = split(row.strip(), delimiter)
        if len(row_cells) == len(names) and any(number(cell) is not None for cell in row_cells):
            return True
    return not rows and delimiter != " "
