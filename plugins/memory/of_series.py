"""From a table of memory to its verdicts: one of each run, and one of the file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message
from ascend_tui.text import byte_size

from .files.columns import TOTAL
from .files.series import Table
from .offline import LEADS, judge_columns
from .snapshot import Forecast, Slope, Verdict, VerdictKind
from .verdict import Diagnosis

GIB = 1 << 30
MOST_RUNS = 256
MOST_ROWS = 1 << 14
"""Rows of a run that are kept; of a longer one every second, fourth … is."""
SPEAKS = 3
CARDS_GIB = (8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128)
"""Sizes of cards, for a forecast where the file does not tell how large this one is."""
HOST = {"rss": "host memory", "workers": "host memory of the workers", "pinned": "page-locked host memory"}
GRAVITY: tuple[VerdictKind, ...] = (
    "leak",
    "host_leak",
    "capacity",
    "fragmentation",
    "external",
    "buffer_growth",
    "cache",
    "undecided",
    "steady",
)
"""Verdicts, the gravest first: of several runs, it is the file's."""

_NOTHING = Message("no column of memory in it: words, no series")
_ONE = Message("one reading is no series: growth needs several")
_SUSPECTS = Message(
    "the file cannot tell who holds it; first suspects: tensors kept with their graph (losses in a list),"
    " predictions kept by a callback, hooks that keep outputs"
)
_HOST_SUSPECTS = Message(
    "host memory: a Dataset or a prefetch that keeps samples, tensors on the cpu; then known leaks of the"
    " installed version (torch_npu 2.8.0 has one that 2.8.0.post1 has not)"
)
_LENGTHS = Message("expandable_segments:True, or lengths in a few buckets, keeps the reserve small")
_PINNED = Message("page-locked host memory, which the resident memory of Python objects does not explain")


@frozen
class Amounts:
    """What a quantity was in a run, in bytes; `level_bytes` is the median of its last quarter."""

    first_bytes: int
    last_bytes: int
    low_bytes: int
    peak_bytes: int
    level_bytes: int


@frozen
class Until:
    """How long it goes on like this on a card of a size that the file does not tell."""

    total_bytes: int
    at: int
    left: int


@frozen
class Run:
    """One series: its verdict and the numbers behind it.

    Slopes are by one unit of the axis: `slope_bytes_per_step` of steps or rows, `slope_bytes_per_s` of times.
    """

    name: str
    rows: int
    verdict: Verdict
    lead: str
    slope: Slope | None = None
    slope_bytes_per_step: float | None = None
    slope_bytes_per_s: float | None = None
    forecast: Forecast | None = None
    forecast_if: tuple[Until, ...] = ()
    peak_bytes: int | None = None
    level_bytes: int | None = None
    quantities: Mapping[str, Amounts] = dataclasses.field(default_factory=dict)
    advice: Message | None = None


@frozen
class HostProcess:
    """A row of a table of processes: its resident memory."""

    name: str
    rss_bytes: int


@frozen
class SeriesResult:
    """The diagnosis of a file: that of its gravest run in front, all runs behind."""

    verdict: Verdict
    axis: str | None = None
    lead: str = ""
    slope: Slope | None = None
    slope_bytes_per_step: float | None = None
    slope_bytes_per_s: float | None = None
    forecast: Forecast | None = None
    forecast_if: tuple[Until, ...] = ()
    peak_bytes: int | None = None
    level_bytes: int | None = None
    quantities: Mapping[str, Amounts] = dataclasses.field(default_factory=dict)
    advice: Message | None = None
    runs: tuple[Run, ...] = ()
    processes: tuple[HostProcess, ...] = ()
    assumed: tuple[str, ...] = ()
    notes: tuple[Message, ...] = ()


class Rows:
    """The rows of one run, thinned when they are too many."""

    def __init__(self) -> None:
        """Start empty."""
        self.count = 0
        self.at: list[float] = []
        self.columns: dict[str, list[float | None]] = {}
        self.low: dict[str, float] = {}
        self.peak: dict[str, float] = {}
        self.total: float | None = None
        self._every = 1

    def add(self, at: float, values: Mapping[str, float]) -> None:
        """Take one row."""
        for name, value in values.items():
            self.low[name] = min(self.low.get(name, value), value)
            self.peak[name] = max(self.peak.get(name, value), value)
        self.total = values.get(TOTAL, self.total)
        self.count += 1
        if (self.count - 1) % self._every:
            return
        self.at.append(at)
        for name in values:
            if name not in self.columns and name != TOTAL:
                self.columns[name] = [None] * (len(self.at) - 1)
        for name, column in self.columns.items():
            column.append(values.get(name))
        if len(self.at) >= 2 * MOST_ROWS:
            self._every *= 2
            self.at = self.at[::2]
            self.columns = {name: column[::2] for name, column in self.columns.items()}

    def points(self) -> dict[str, list[tuple[float, float | None]]]:
        """Return the columns with the axis beside each value.

        Use of the card and torch's reserve together tell what is outside torch; the use alone would not tell
        whose growth it is.
        """
        columns = dict(self.columns)
        used, reserved = columns.get("device_used"), columns.get("reserved")
        if used is not None and reserved is not None and "outside" not in columns:
            columns["outside"] = [
                None if one is None or other is None else max(0.0, one - other)
                for one, other in zip(used, reserved)
            ]
            if "allocated" not in columns:
                del columns["device_used"]
        return {name: list(zip(self.at, column)) for name, column in columns.items()}

    def amounts(self, name: str) -> Amounts:
        """Return what a quantity was."""
        told = [value for value in self.columns[name] if value is not None]
        tail = sorted(told[-max(1, len(told) // 4) :])
        return Amounts(
            first_bytes=int(told[0]),
            last_bytes=int(told[-1]),
            low_bytes=int(self.low[name]),
            peak_bytes=int(self.peak[name]),
            level_bytes=int(tail[len(tail) // 2]),
        )


def judge_table(table: Table) -> SeriesResult:
    """Return the diagnosis of a table: each of its runs by itself, and the gravest as the file's."""
    runs: dict[str, Rows] = {}
    beyond = 0
    for sample in table:
        if sample.run not in runs and len(runs) >= MOST_RUNS:
            beyond += 1
            continue
        runs.setdefault(sample.run, Rows()).add(sample.at, sample.values)
    runs = {name: rows for name, rows in runs.items() if rows.columns}
    if not runs:
        return _of_words(table)
    if table.per_process and len(runs) > 1 and all(rows.count == 1 for rows in runs.values()):
        return _of_processes(table, runs)
    notes = []
    if beyond:
        notes.append(Message.of("{count} rows of further runs are left out", count=beyond))
    judged = [judge_run(name, rows, table.axis, table.over_time) for name, rows in runs.items()]
    return of_runs(judged, table.axis, table.assumed, notes)


def of_runs(
    judged: Sequence[Run], axis: str | None, assumed: tuple[str, ...] = (), notes: Iterable[Message] = ()
) -> SeriesResult:
    """Put the gravest run in front."""
    # A run too short to be judged does not speak for the others; of equals, the larger does.
    worst = min(
        judged,
        key=lambda run: (run.rows < SPEAKS, GRAVITY.index(run.verdict.kind), -(run.peak_bytes or 0)),
    )
    return SeriesResult(
        verdict=worst.verdict,
        axis=axis,
        lead=worst.lead,
        slope=worst.slope,
        slope_bytes_per_step=worst.slope_bytes_per_step,
        slope_bytes_per_s=worst.slope_bytes_per_s,
        forecast=worst.forecast,
        forecast_if=worst.forecast_if,
        peak_bytes=worst.peak_bytes,
        level_bytes=worst.level_bytes,
        quantities=worst.quantities,
        advice=worst.advice,
        runs=tuple(judged) if len(judged) > 1 else (),
        assumed=assumed,
        notes=tuple(notes),
    )


def judge_run(name: str, rows: Rows, axis: str | None, over_time: bool) -> Run:
    """Return the diagnosis of one series."""
    points = rows.points()
    found = judge_columns(
        points,
        total_bytes=None if rows.total is None else int(rows.total),
        unit_s=1.0 if over_time else None,
    )
    lead = next((one for one in LEADS if one in rows.columns and one in points), next(iter(rows.columns)))
    if lead == "rss" and "pinned" in rows.columns:
        # Pinned memory is resident: where it is what grows, the rest of the process does not.
        alone = judge_columns({"pinned": points["pinned"]}, unit_s=1.0 if over_time else None)
        if alone.verdict.kind in ("leak", "host_leak") and found.verdict.kind in ("leak", "host_leak"):
            found, lead = alone, "pinned"
    verdict = in_units(found.verdict, "second" if over_time else "step" if axis else "row")
    if rows.count == 1 and verdict.kind in ("undecided", "steady"):
        verdict = Verdict("undecided", 0.0, None, _ONE)
    if verdict.kind == "leak" and lead in HOST:
        text = verdict.reason.text.replace("host memory", "memory").replace("memory", HOST[lead], 1)
        reason = Message(text, verdict.reason.params)
        verdict = dataclasses.replace(verdict, kind="host_leak", reason=reason)
    per_unit = None if found.slope is None else found.slope.bytes_per_step
    shown = found.slope.quantity if found.slope is not None and found.slope.quantity in rows.columns else lead
    amounts = rows.amounts(shown)
    return Run(
        name=name,
        rows=rows.count,
        verdict=verdict,
        lead=lead,
        slope=found.slope,
        slope_bytes_per_step=None if over_time else per_unit,
        slope_bytes_per_s=per_unit if over_time else None,
        forecast=found.forecast,
        forecast_if=_until(rows, found) if verdict.kind == "leak" and found.forecast is None else (),
        peak_bytes=amounts.peak_bytes,
        level_bytes=amounts.level_bytes,
        quantities={one: rows.amounts(one) for one in rows.columns},
        advice=advice(verdict.kind, lead),
    )


def advice(kind: VerdictKind, lead: str) -> Message | None:
    """Return what to do next, in the field's order of suspicion."""
    if kind in ("fragmentation", "cache") and lead not in HOST:
        return _LENGTHS
    if lead == "pinned":
        return _PINNED
    return {"leak": _SUSPECTS, "host_leak": _HOST_SUSPECTS}.get(kind)


def in_units(verdict: Verdict, unit: str) -> Verdict:
    """Return the verdict with its reason in the unit of the file's axis; it is written for live steps."""
    if verdict.settles is not None and verdict.settles.text.startswith(("wait ", "press ")):
        verdict = dataclasses.replace(verdict, settles=Message("a longer series"))
    if unit == "step":
        return verdict
    text = verdict.reason.text.replace("a step", f"a {unit}").replace("step {step}", f"{unit} {{step}}")
    return dataclasses.replace(verdict, reason=Message(text, verdict.reason.params))


def _until(rows: Rows, found: Diagnosis) -> tuple[Until, ...]:
    """Return when cards of the next sizes would be full."""
    if found.slope is None or found.slope.bytes_per_step <= 0:
        return ()
    name = found.slope.quantity if found.slope.quantity in rows.columns else next(iter(rows.columns))
    last = rows.amounts(name).last_bytes
    larger = [size * GIB for size in CARDS_GIB if size * GIB > last][:3]
    left = [int((size - last) / found.slope.bytes_per_step) for size in larger]
    return tuple(Until(size, int(rows.at[-1]) + one, one) for size, one in zip(larger, left))


def _of_processes(table: Table, runs: Mapping[str, Rows]) -> SeriesResult:
    rows = [HostProcess(name, one.amounts(next(iter(one.columns))).last_bytes) for name, one in runs.items()]
    rows.sort(key=lambda one: -one.rss_bytes)
    peak = rows[0].rss_bytes
    alike = [one for one in rows if one.rss_bytes > peak / 2]
    reason = Message.of(
        "one moment of {count} processes, {alike} of them with {low} to {high} of host memory: growth cannot"
        " be seen in it",
        count=len(rows),
        alike=len(alike),
        low=byte_size(alike[-1].rss_bytes),
        high=byte_size(peak),
    )
    lead = next(iter(next(iter(runs.values())).columns))
    return SeriesResult(
        verdict=Verdict("undecided", 0.0, None, reason, Message("take the table again some minutes later")),
        lead=lead,
        peak_bytes=peak,
        processes=tuple(rows),
        assumed=table.assumed,
        advice=_HOST_SUSPECTS if lead in HOST else None,
    )


def _of_words(table: Table) -> SeriesResult:
    told = " ".join(table.words)
    notes = []
    if "reserved-but-unallocated" in told or "reserved but unallocated" in told:
        notes.append(Message("its words tell of memory reserved and not allocated: that is fragmentation"))
    return SeriesResult(
        verdict=Verdict("undecided", 0.0, None, _NOTHING),
        axis=table.axis,
        notes=tuple(notes),
        assumed=table.assumed,
    )
