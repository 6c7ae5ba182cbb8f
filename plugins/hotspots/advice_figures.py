"""What all rules share: a finding with its cost, the table to judge, and numbers in words.

The letters after a threshold are the section of the field's rules that it comes from; "chosen" says that the
rule has no number, and why this one was taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message
from ascend_tui.text import clean, count

from .compare import LARGEST_US
from .kinds import stem
from .snapshot import Clock, Finding, Kind, Row

LONGEST_NAME = 60
MOST_NAMES = 5
TINY_US, TINY_CALLS = 100.0, 20
"""Chosen: a table of less time or fewer calls is a few kernels, and has no shape to speak of."""
LEAST_ROWS = 5
"""Chosen: shares of fewer rows are large by themselves."""
WHOLE_TABLE = 0.95
"""Chosen: rows that cover less by their own shares, with none dropped, are part of a larger table."""
SMALL_US = {"device": 20.0, "host": 50.0}
"""Chosen: a host takes some 5 to 20 µs to launch a kernel, so a shorter one is not worth its launch."""
MANY = 100
"""Chosen, for "many" of A5.3: a model has some tens of layers, so that is more than one for each."""

MEASURE_WHOLE = Message("after each change measure the whole net again, not the operator alone")


@frozen
class Found:
    """A finding and what it is about as a share of all time, by which findings are ordered."""

    cost: float
    finding: Finding


def usable(rows: Iterable[Row]) -> list[Row]:
    """Return the rows whose time and share can be counted with."""
    return [
        row for row in rows if known(row.self_time_us) and 0 < known(row.share) <= 1.01 and row.calls >= 0
    ]


def known(value: float | None) -> float:
    """Return a number that sums can hold: 0 for None, NaN, what is negative and what is no amount."""
    return value if value is not None and 0 < value <= LARGEST_US else 0.0


def share_of(rows: Iterable[Row], *kinds: Kind) -> float:
    """Return the share of the rows of these kinds, of all rows without any."""
    return sum(row.share for row in rows if not kinds or row.kind in kinds)


def average_us(rows: Iterable[Row]) -> float:
    """Return the time of one call over all of these rows."""
    rows = list(rows)
    calls = sum(row.calls for row in rows)
    return sum(row.self_time_us for row in rows) / calls if calls > 0 else 0.0


def percent(share: float) -> str:
    """Return a share in words, with a decimal where it is small."""
    return f"{share * 100:.0f} %" if share >= 0.0995 or share == 0 else f"{share * 100:.1f} %"


def signed_percent(ratio: float) -> str:
    """Return a ratio as what was added or taken away: +31 %."""
    part = (ratio - 1) * 100
    return f"{part:+.0f} %" if abs(part) < 900 else f"×{ratio:.0f}"


def time(us: float) -> str:
    """Return a time in its own unit, in three digits at least."""
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= size:
            return f"{us / size:.2f} {unit}" if us < 10 * size else f"{us / size:,.1f} {unit}"
    return f"{us:.1f} µs" if us < 100 else f"{us:.0f} µs"


def calls(number: float) -> str:
    """Return a number of calls, which may be a fraction where it is one of a step."""
    return count(number) if number >= 10 or number == int(number) else f"{number:.1f}"


def name_of(row: Row | str) -> str:
    """Return a name as it can stand in a sentence: foreign text, so on one line and not without end."""
    name = clean(row if isinstance(row, str) else row.name)
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def names_of(rows: Sequence[Row], most: int = MOST_NAMES) -> str:
    """Return names with their shares, the rest as an ellipsis."""
    listed = ", ".join(f"{name_of(row)} {percent(row.share)}" for row in rows[:most])
    return listed + (" …" if len(rows) > most else "")


def ops_of(rows: Sequence[Row], most: int = MOST_NAMES) -> tuple[str, ...]:
    """Return the names of rows as they are, for their detail screens."""
    return tuple(row.name for row in rows[:most])


def bare(row: Row) -> str:
    """Return a name as rules compare it: without namespace and running number, in small letters."""
    return stem(row.name).rpartition("::")[2].lower()


def largest(rows: Iterable[Row]) -> list[Row]:
    """Return rows by their share, the largest first."""
    return sorted(rows, key=lambda row: (-row.share, row.name))


@frozen
class Table:
    """What one table says of operators: communication apart, because it waits for other ranks.

    The shares of `rows` are of the time without communication.
    """

    rows: tuple[Row, ...]
    communication: tuple[Row, ...] = ()
    clock: Clock = "device"
    is_cut: bool = False
    steps: int | None = None
    """How many steps it holds, None where that is not known."""
    per_step: bool = False
    """Whether calls and times are those of one step, averaged over several."""
    is_launching: bool = False
    """Whether its times are those of launches on a host, while the work is done by a device."""
    idle_share: float | None = None
    """How much of the time the device did nothing at all, None where the table does not tell."""

    @property
    def calls(self) -> int:
        """Return the calls of all operators."""
        return sum(row.calls for row in self.rows)


def table_of(
    rows: Sequence[Row],
    dropped: int = 0,
    clock: Clock = "device",
    steps: int | None = None,
    per_step: bool = False,
    is_launching: bool = False,
    idle_share: float | None = None,
) -> Table:
    """Return the table to judge, empty where there is too little of it."""
    kept = largest(usable(rows))
    is_cut = not dropped and share_of(kept) < WHOLE_TABLE
    apart = tuple(row for row in kept if row.kind == "communication")
    others = [row for row in kept if row.kind != "communication"]
    whole = max(1.0 - share_of(apart), share_of(others))
    if sum(row.self_time_us for row in others) < TINY_US or sum(row.calls for row in kept) < TINY_CALLS:
        others = []
    scaled = (dataclasses.replace(row, share=row.share / whole) for row in others)
    return Table(tuple(scaled), apart, clock, is_cut, steps, per_step, is_launching, idle_share)
