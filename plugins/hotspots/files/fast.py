"""Tables of tasks, many rows at once, where polars is installed: the same sums in a small part of the time.

Polars gets block after block, so that no more of a file than that is in memory.  A block in which anything
is out of order (a line that is too short or too long, a quote without an end, a time that is none) is left to
the reader of single rows, whole.
"""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any

from .columns import MOST_US, word
from .groups import NAME
from .tasks import Tasks
from .units import Sums, Term
from .usage import LATE_NS, Busy

# Without types, because it need not be installed.
pl: Any = import_module("polars")

_REFUSED = (pl.exceptions.PolarsError, ValueError, OverflowError)


class Blocks:
    """Take whole lines of a table of tasks."""

    def __init__(self, tasks: Tasks) -> None:
        """Find out which columns are wanted."""
        self.tasks = tasks
        self.at = at = tasks.places
        columns = at.columns
        metrics = {term.at for term in columns.terms} | {*columns.weights, columns.utilization}
        self.numbers = sorted({at.time, at.wait, at.block, *metrics} - {-1})
        named = at.type if at.type >= 0 else at.name
        texts = {named, at.core, at.shapes, at.dtypes, at.start, at.device, at.step, at.width - 1}
        self.wanted = sorted({*self.numbers, *texts} - {-1})
        self.last, self.us = f"c{at.width - 1}", f"c{at.time}"
        spent = {at.time, at.wait, *columns.weights, *(term.at for term in columns.terms if term.is_time)}
        self.summed = {f"c{place}" for place in spent if place >= 0}
        self.names = [f"c{place}" for place in range(at.width)]
        numbers = {f"c{place}" for place in self.numbers} - {self.last}
        self.schema = {name: pl.Float64 if name in numbers else pl.String for name in self.names}
        self.missing = dict.fromkeys(numbers, "N/A")
        self.usable = at.time >= 0 and at.time_scale == at.wait_scale == at.start_scale == 1.0

    def take(self, lines: bytes) -> int:
        """Take all of the lines, or none; return how many."""
        if not self.usable or b"\0" in lines or b"\r" in lines:
            return 0
        rows = lines.count(b"\n")
        try:
            table = self._read(lines, self.wanted)
            if self.at.name not in self.wanted and any(map(_is_blank, self._texts(table, self.at.type))):
                # The names of large tables are many and not needed, unless a type is missing.
                self.wanted = sorted({*self.wanted, self.at.name} - {-1})
                table = self._read(lines, self.wanted)
            return rows if self._take(table, rows) else 0
        except _REFUSED:
            return 0

    def _read(self, lines: bytes, wanted: list[int]) -> Any:
        return pl.read_csv(
            BytesIO(lines),
            has_header=False,
            new_columns=self.names,
            columns=wanted,
            schema_overrides=self.schema,
            null_values=self.missing,
            infer_schema=False,
        )

    def _take(self, table: Any, rows: int) -> bool:
        at = self.at
        # A line that is too short has nothing in its last column; N/A is something there.
        if table.height != rows or table[self.last].null_count():
            return False
        if at.width - 1 in self.numbers:
            table = table.with_columns(pl.col(self.last).cast(pl.Float64, strict=False))
        us = table[f"c{at.time}"]
        if us.null_count() or not _are_times(us) or (at.wait >= 0 and not _are_times(table[f"c{at.wait}"])):
            return False
        keys = [f"c{place}" for place in (at.type, at.core, at.shapes, at.dtypes) if place >= 0]
        blank = [kind for kind in self._texts(table, at.type) if _is_blank(kind)]
        named = pl.lit(True)
        if at.name >= 0 and (blank or at.type < 0):
            keys.append(f"c{at.name}")
            nameless = _among(at.name, [name for name in self._texts(table, at.name) if _is_blank(name)])
            named = ~(nameless & _among(at.type, blank)) if at.type >= 0 else ~nameless
        starts = self._starts(table, named) if at.start >= 0 else None
        if at.start >= 0 and starts is None:
            return False
        self._remember(table)
        self._sum(table, keys)
        if starts is not None:
            for (device,), tasks in starts.group_by(["device"]):
                _spans(self.tasks.busy, tasks, str(device))
        return True

    def _texts(self, table: Any, place: int) -> list[str | None]:
        return table[f"c{place}"].unique().to_list() if place >= 0 else []

    def _sum(self, table: Any, keys: list[str]) -> None:
        """Add up all rows with the same texts; the few that are left are added one by one."""
        at = self.at
        table = table.with_columns(*self._products(table))
        sums = [name for name in table.columns if name[0] != "c" or name in self.summed]
        found = table.group_by(keys).agg(
            pl.len().alias("calls"),
            pl.col(self.us).min().alias("least"),
            pl.col(self.us).max().alias("most"),
            *([pl.col(f"c{at.wait}").count().alias("waits")] if at.wait >= 0 else []),
            *(pl.col(name).sum() for name in sums),
        )
        for row in found.iter_rows(named=True):
            self._add(row)

    def _weight(self, term: Term) -> str:
        place = self.at.columns.weights[term.core]
        return f"c{place if place >= 0 else self.at.time}"

    def _products(self, table: Any) -> list[Any]:
        """Return the columns that have to be made before rows are added up."""
        at, us, columns = self.at, pl.col(f"c{self.at.time}"), self.at.columns
        found = []
        if at.block >= 0:
            block = pl.col(f"c{at.block}")
            found += [
                pl.when(block > 0).then(us).alias("blocks_time"),
                pl.when(block > 0).then(us * block).alias("blocks_us"),
            ]
        for place, term in enumerate(columns.terms):
            value, weight = pl.col(f"c{term.at}"), pl.col(self._weight(term))
            if not term.is_time:
                found.append((value * weight).alias(f"busy{place}"))
            if table[f"c{term.at}"].null_count() != table[self._weight(term)].null_count():
                found.append(pl.when(value.is_not_null()).then(weight).alias(f"weight{place}"))
        if columns.utilization >= 0:
            value = pl.col(f"c{columns.utilization}")
            valid = value.is_not_null()
            if columns.weights[0] >= 0:
                valid &= pl.col(f"c{columns.weights[0]}") != 0
            found += [
                pl.when(valid).then(value * us * columns.utilization_scale).alias("use"),
                pl.when(valid).then(us).alias("use_weight"),
            ]
        return found

    def _remember(self, table: Any) -> None:
        for place, seen, most in (
            (self.at.device, self.tasks.devices, NAME),
            (self.at.step, self.tasks.steps, 1_000_000),
        ):
            for text in self._texts(table, place):
                if len(seen) < most:
                    seen.setdefault(text or "")

    def _add(self, row: dict[str, Any]) -> None:
        at = self.at

        def text(place: int) -> str:
            return row.get(f"c{place}") or ""

        group = self.tasks.group(word(text(at.type)), word(text(at.name)))
        core, us = word(text(at.core))[:NAME], row[self.us]
        if group is None:
            self.tasks.lose(core, us, row["calls"])
            return
        group.add(us, row["calls"], core)
        group.spread(row["least"], row["most"])
        if at.wait >= 0:
            group.waits += row["waits"]
            group.wait_us += row[f"c{at.wait}"]
        group.blocks_time += row.get("blocks_time", 0.0)
        group.blocks_us += row.get("blocks_us", 0.0)
        if at.shapes >= 0:
            self.tasks.use(group, text(at.shapes), text(at.dtypes), us, row["calls"])
        if group.sums is not None:
            self._measure(group.sums, row)

    def _measure(self, sums: Sums, row: dict[str, Any]) -> None:
        for core, place in enumerate(self.at.columns.weights):
            sums.cores[core] += row[f"c{place}"] if place >= 0 else row[self.us]
        for place, term in enumerate(self.at.columns.terms):
            sums.busy[place] += row[f"c{term.at}"] if term.is_time else row[f"busy{place}"]
            weight = row.get(f"weight{place}")
            sums.weights[place] += row[self._weight(term)] if weight is None else weight
        sums.use += row.get("use", 0.0)
        sums.use_weight += row.get("use_weight", 0.0)

    def _starts(self, table: Any, named: Any) -> Any:
        """Return the tasks of named operators by device, in whole nanoseconds; None where a stamp is none."""
        # As decimals they keep their nanoseconds; the number within is one of thousandths.
        stamps = table[f"c{self.at.start}"].str.strip_chars(' \t"').cast(pl.Decimal(22, 3))
        found = table.select(
            stamps.to_physical().cast(pl.Int64).alias("start"),
            (pl.col(f"c{self.at.time}") * 1000).round().cast(pl.Int64).alias("took"),
            (pl.col(f"c{self.at.device}").fill_null("") if self.at.device >= 0 else pl.lit("")).alias(
                "device"
            ),
            named.alias("named"),
        )
        if found["start"].null_count():
            return None
        return found.filter("named").with_columns((pl.col("start") + pl.col("took")).alias("end"))


def _is_blank(text: str | None) -> bool:
    return not word(text or "")


def _among(place: int, texts: list[str | None]) -> Any:
    column = pl.col(f"c{place}")
    return column.is_null() | column.is_in([text for text in texts if text is not None])


def _are_times(column: Any) -> bool:
    least, most = column.min(), column.max()
    return least is None or most is None or (least >= 0 and most <= MOST_US)


def _spans(busy: Busy, tasks: Any, device: str) -> None:
    """Take the tasks of one device, as `Busy.add` does one by one."""
    busy.add(int(tasks["start"][0]), int(tasks["end"][0]), device)
    span, tasks = busy.spans.get(device), tasks[1:]
    if span is None or not tasks.height:
        return
    starts, ends = tasks["start"], tasks["end"]
    latest = starts.cum_max().shift(1, fill_value=span.start_ns).clip(lower_bound=span.start_ns)
    behind = ends.cum_max().shift(1, fill_value=span.end_ns).clip(lower_bound=span.end_ns)
    busy.unordered |= bool((starts < latest - LATE_NS).any())
    gaps = starts - behind
    last = max(span.end_ns, int(ends.max()))
    span.busy_ns += last - span.end_ns - int(gaps.filter(gaps > 0).sum())
    span.longest_ns = max(span.longest_ns, int(gaps.max()))
    span.kernels += tasks.height
    span.start_ns, span.end_ns = max(span.start_ns, int(starts.max())), last
