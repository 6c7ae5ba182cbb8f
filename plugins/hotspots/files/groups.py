"""Rows of a table added up by operator, in memory that is bounded whatever the file holds."""

from __future__ import annotations

from collections.abc import Iterable

from ascend_tui.plugin import Message
from ascend_tui.text import clean

from ..kinds import kind_of
from ..ranking import ranked
from ..snapshot import Clock, ProfileResult, Row, Site, Use
from .reader import Reader
from .stacks import site_of
from .units import Columns, Sums

MOST_GROUPS = 20_000
"""Operators that are told apart; the others are one row."""
MOST_SHAPES = 4096
"""Sets of shapes of one operator that are told apart."""
MOST_SITES = 1024
SHOWN = 5
NAME = 200
"""Characters of a name that are kept; of shapes twice as many."""
OTHERS = "(others)"


class Group:
    """One operator: sums over its calls."""

    __slots__ = (
        "blocks_time",
        "blocks_us",
        "calls",
        "cores",
        "max_us",
        "min_us",
        "sites",
        "sums",
        "total_us",
        "totals",
        "us",
        "uses",
        "wait_us",
        "waits",
    )

    def __init__(self, columns: Columns | None) -> None:
        """Start with no call."""
        self.calls = self.waits = self.totals = 0
        self.us = self.wait_us = self.total_us = self.blocks_time = self.blocks_us = 0.0
        self.min_us: float | None = None
        self.max_us: float | None = None
        self.cores: dict[str, float] = {}
        self.uses: dict[tuple[str, str], list[float]] = {}
        self.sites: dict[str, list[float]] = {}
        self.sums = Sums(columns) if columns is not None else None

    def add(self, us: float, calls: int, core: str) -> None:
        """Take calls that took `us` together."""
        self.calls += calls
        self.us += us
        if core:
            self.cores[core] = self.cores.get(core, 0.0) + us

    def spread(self, low: float | None, high: float | None) -> None:
        """Take the shortest and the longest of some calls."""
        if low is not None and (self.min_us is None or low < self.min_us):
            self.min_us = low
        if high is not None and (self.max_us is None or high > self.max_us):
            self.max_us = high

    def use(self, shapes: str, dtypes: str, us: float, calls: int = 1) -> None:
        """Take the shapes of calls."""
        key = (shapes[: 2 * NAME], dtypes[: 2 * NAME])
        sums = self.uses.get(key)
        if sums is None:
            if len(self.uses) >= MOST_SHAPES:
                return
            sums = self.uses[key] = [0, 0.0]
        sums[0] += calls
        sums[1] += us

    def row(self, name: str, columns: Columns | None, clock: Clock, level: str = "") -> Row:
        """Return the sums as a row."""
        cores = sorted(self.cores, key=lambda one: -self.cores[one])
        uses = sorted(self.uses.items(), key=lambda one: (-one[1][1], one[0]))
        blocks = round(self.blocks_us / self.blocks_time, 6) if self.blocks_time > 0 else None
        return Row(
            name=clean(name),
            kind=kind_of(name, cores[0] if cores else "", level),
            self_time_us=self.us,
            share=0.0,
            cumulative_share=0.0,
            calls=self.calls,
            total_time_us=self.total_us if self.totals else None,
            min_us=self.min_us,
            max_us=self.max_us,
            wait_us=self.wait_us if self.waits else None,
            clock=clock,
            core=clean("/".join(cores[:4])),
            level=clean(level),
            uses=tuple(
                Use(clean(key[0]), clean(key[1]), int(sums[0]), sums[1]) for key, sums in uses[:SHOWN]
            ),
            shapes_seen=len(self.uses) or None,
            sites=self._sites(),
            units=self.sums.units(columns, blocks) if self.sums is not None and columns is not None else None,
        )

    def _sites(self) -> tuple[Site, ...]:
        found = sorted(self.sites.items(), key=lambda one: (-one[1][1], one[0]))
        return tuple(site_of(stack, sums[0], sums[1]) for stack, sums in found[:SHOWN])


class Groups:
    """All operators of a table by their names."""

    def __init__(self, columns: Columns | None = None) -> None:
        """Start with none."""
        self.columns = columns
        self.by_name: dict[str, Group] = {}
        self.crowded = 0

    def of(self, name: str) -> Group:
        """Return the sums of an operator; of a few very many, those of all that came too late."""
        group = self.by_name.get(name)
        if group is None:
            if len(self.by_name) >= MOST_GROUPS:
                self.crowded += 1
                name = OTHERS
                if name in self.by_name:
                    return self.by_name[name]
            group = self.by_name[name] = Group(self.columns)
        return group

    def result(
        self,
        kind: str,
        reader: Reader,
        notes: Iterable[Message] = (),
        clock: Clock = "device",
        total_us: float | None = None,
        level: str = "",
    ) -> ProfileResult:
        """Return the table: ordered, with shares and with what has to be said of it."""
        found = [group.row(name, self.columns, clock, level) for name, group in self.by_name.items()]
        whole = sum(row.self_time_us for row in found) if total_us is None else total_us
        rows, dropped = ranked(found, whole)
        said = [*reader.notes(), *notes]
        if self.crowded:
            said.append(
                Message.of(
                    "There are more than {count} operators: the others are one row, {name}",
                    count=MOST_GROUPS,
                    name=OTHERS,
                )
            )
        if any(len(group.uses) >= MOST_SHAPES for group in self.by_name.values()):
            said.append(
                Message.of("Of an operator the first {count} sets of shapes are kept", count=MOST_SHAPES)
            )
        said += _beside_communication(found, whole)
        return ProfileResult(
            format=kind,
            rows=rows,
            rows_dropped=dropped,
            total_time_us=whole,
            clock=clock,
            read=reader.read,
            skipped=reader.skipped,
            notes=tuple(said),
        )


def _beside_communication(rows: list[Row], whole: float) -> list[Message]:
    others = [row for row in rows if row.kind != "communication" and row.self_time_us > 0]
    talk_us = sum(row.self_time_us for row in rows if row.kind == "communication")
    rest_us = sum(row.self_time_us for row in others)
    if talk_us <= 0 or not others or whole <= 0:
        return []
    first = max(others, key=lambda row: row.self_time_us)
    return [
        Message.of(
            "Shares are of all time; communication, which may run beside computing, takes {share} %. "
            "Without it {name} is first, with {rest} %",
            share=round(100 * talk_us / whole, 1),
            name=first.name,
            rest=round(100 * first.self_time_us / rest_us, 1),
        )
    ]
