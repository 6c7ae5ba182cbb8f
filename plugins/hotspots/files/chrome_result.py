"""From the lanes of a trace to its table: which of them count, and what each operator took."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Message

from ..kinds import stem
from ..ranking import ranked
from ..snapshot import DeviceUse, Kind, Phase, PhaseName, ProfileResult, Row, StepTrace, Use
from .chrome import BARE, DEVICE, HOST, Trace
from .lanes import BACKWARD, DATA, OPERATOR, OPTIMIZER, Lane, union

MOST_USES = 8
MOST_STEPS = 5000
_COMMUNICATION = ("hccl", "communication")
_OVERLAP, _HARDWARE, _CANN = "overlap analysis", "ascend hardware", "cann"
_ASCEND = (*_COMMUNICATION, _OVERLAP, _HARDWARE, _CANN)
_DIGITS = re.compile(r"\d+")

_INSIDES = Message("{n} streams hold only the insides of collectives, which have a lane of their own")
_FILLED = Message("idle gaps of {us} us in all were too many to keep: they count as busy")
_DEVICES = Message("it holds {n} devices: their times are added")
_CANN_ONLY = Message("it holds neither operators nor kernels: the calls of CANN are shown")
_STEPS = Message("only the first {n} steps are shown")
_THREADS = Message(
    "the backward pass ran in a thread of its own: which operators are the forward pass cannot be told"
)

_PARTS = {
    "computing": "computing_us",
    "communication": "communication_us",
    "communication(not overlapped)": "communication_not_overlapped_us",
    "free": "free_us",
}


@frozen
class Lanes:
    """The lanes of a trace by what they are; those of a device with the device."""

    hosts: tuple[Lane, ...]
    devices: tuple[tuple[str, Lane], ...]
    cann: tuple[Lane, ...]
    overlaps: tuple[tuple[str, Lane], ...]
    ascend: bool
    insides: int


class _Sum:
    """A row in the making."""

    def __init__(self, name: str, core: str, kind: Kind) -> None:
        self.name, self.core, self.kind = name, core, kind
        self.calls = self.self_ns = self.total_ns = self.most_ns = 0
        self.least_ns: int | None = None
        self.uses: dict[tuple[str, str], list[int]] = {}

    def add(self, tally: tuple[int, int, int, int, int], alone: bool, shapes: str, dtypes: str) -> None:
        calls, self_ns, total_ns, least, most = tally
        own = self_ns if alone else total_ns
        self.calls += calls
        self.self_ns += own
        self.total_ns += total_ns
        self.least_ns = least if self.least_ns is None else min(self.least_ns, least)
        self.most_ns = max(self.most_ns, most)
        if shapes:
            use = self.uses.setdefault((shapes, dtypes), [0, 0])
            use[0] += calls
            use[1] += own

    def row(self, on_device: bool) -> Row:
        uses = sorted(self.uses.items(), key=lambda one: -one[1][1])
        return Row(
            name=self.name,
            kind=self.kind,
            self_time_us=self.self_ns / 1000,
            share=0.0,
            cumulative_share=0.0,
            calls=self.calls,
            total_time_us=None if on_device else self.total_ns / 1000,
            min_us=None if self.least_ns is None else self.least_ns / 1000,
            max_us=self.most_ns / 1000,
            clock="device" if on_device else "host",
            core=self.core,
            uses=tuple(
                Use(shapes, dtypes, calls, own / 1000) for (shapes, dtypes), (calls, own) in uses[:MOST_USES]
            ),
            shapes_seen=len({shapes for shapes, _ in self.uses}) or None,
        )


def result_of(trace: Trace, name: str) -> ProfileResult:
    """Return the table of a trace that was read to its end."""
    lanes = sort(trace)
    notes = list(trace.notes)
    on_device = bool(lanes.devices)
    counted = [lane for _, lane in lanes.devices] if on_device else list(lanes.hosts or lanes.cann)
    if not on_device and not lanes.hosts and lanes.cann:
        notes.append(_CANN_ONLY)
    rows, dropped = ranked(_rows(trace, counted, on_device))
    phases, untold = _phases(lanes.hosts)
    steps = _overlaps(trace, lanes.overlaps) or _steps(trace, lanes.hosts)
    if lanes.insides:
        notes.append(Message.of(_INSIDES.text, n=lanes.insides))
    if untold:
        notes.append(_THREADS)
    if len(steps) > MOST_STEPS:
        notes.append(Message.of(_STEPS.text, n=MOST_STEPS))
    use, more = _use(trace, lanes.devices) if on_device else (None, [])
    whole = sum(
        lane.tallies[key][1 if not on_device else 2]
        for lane in counted
        for key in lane.tallies
        if _is_row(trace, key, on_device)
    )
    return ProfileResult(
        format="trace_view" if lanes.ascend else "chrome_trace",
        rows=rows,
        rows_dropped=dropped,
        total_time_us=whole / 1000,
        clock="device" if on_device else "host",
        read=trace.read,
        skipped=trace.skipped,
        steps=tuple(steps[:MOST_STEPS]),
        device=use,
        phases=phases,
        files=(name,),
        notes=tuple(notes + more),
    )


def sort(trace: Trace) -> Lanes:
    """Return the lanes by what they are, which the names of their processes tell."""
    hosts: list[Lane] = []
    devices: list[tuple[str, Lane]] = []
    hardware: list[tuple[str, Lane]] = []
    talking: list[tuple[str, Lane]] = []
    cann: list[Lane] = []
    overlaps: list[tuple[str, Lane]] = []
    # Where a lane of whole collectives is named, the planes beside it are their insides.
    collectives = any(
        "communication" in thread.lower() and trace.processes.get(pid, "").lower().startswith(_COMMUNICATION)
        for (pid, _), thread in trace.threads.items()
    )
    for (pid, tid, group), lane in trace.lanes.items():
        process, device = trace.processes.get(pid, "").lower(), trace.labels.get(pid, pid)
        thread = trace.threads.get((pid, tid), "").lower()
        if group == HOST:
            hosts.append(lane)
        elif group == DEVICE or "cuda functions" in pid.lower():
            devices.append((device, lane))
        elif process == _OVERLAP:
            overlaps.append((device, lane))
        elif process == _HARDWARE:
            hardware.append((device, lane))
        elif process.startswith(_COMMUNICATION):
            if "communication" in thread or (not collectives and not thread.startswith("plane")):
                talking.append((device, lane))
        elif process == _CANN:
            cann.append(lane)
        elif not device.upper().startswith("NPU") and group == BARE:
            hosts.append(lane)
    streams = [one for one in hardware if not (talking and _is_inside(trace, one[1]))]
    return Lanes(
        tuple(hosts),
        tuple(one for one in devices + streams + talking if one[1].busy),
        tuple(cann),
        tuple(overlaps),
        any(process.lower() in _ASCEND for process in trace.processes.values())
        or any(label.upper().startswith("NPU") for label in trace.labels.values()),
        len(hardware) - len(streams),
    )


def _is_inside(trace: Trace, lane: Lane) -> bool:
    """Tell whether a stream only does the parts of collectives: it notifies, copies and computes nothing."""
    keys = [trace.keys[key] for key in lane.tallies]
    parts = any("NOTIFY" in f"{key.name} {key.core}".upper() for key in keys) or all(
        key.kind == "communication" or key.waits for key in keys
    )
    return parts and all(key.waits or key.kind in ("communication", "movement") for key in keys)


def _is_row(trace: Trace, key: int, on_device: bool) -> bool:
    return not trace.keys[key].waits if on_device else not trace.keys[key].name.startswith("ProfilerStep#")


def _rows(trace: Trace, lanes: Iterable[Lane], on_device: bool) -> list[Row]:
    sums: dict[tuple[str, str], _Sum] = {}
    for lane in lanes:
        for number, (calls, self_ns, total_ns, least, most) in lane.tallies.items():
            if not _is_row(trace, number, on_device):
                continue
            key = trace.keys[number]
            name = stem(key.name.partition("@")[0]) if on_device else key.name
            found = sums.setdefault((name, key.core), _Sum(name, key.core, key.kind))
            found.add((calls, self_ns, total_ns, least, most), not on_device, key.shapes, key.dtypes)
    return [one.row(on_device) for one in sums.values()]


def _use(trace: Trace, lanes: Iterable[tuple[str, Lane]]) -> tuple[DeviceUse, list[Message]]:
    spans: dict[str, list[tuple[int, int]]] = {}
    talks: dict[str, list[tuple[int, int]]] = {}
    kernels = filled = 0
    for device, lane in lanes:
        spans.setdefault(device, []).extend(lane.busy.spans())
        talks.setdefault(device, []).extend(lane.communicating.spans())
        filled += lane.busy.filled_ns
        kernels += sum(one[0] for key, one in lane.tallies.items() if _is_row(trace, key, True))
    busy = idle = longest = 0
    for found in spans.values():
        merged = union(found)
        taken = sum(end - start for start, end in merged)
        busy += taken
        idle += merged[-1][1] - merged[0][0] - taken
        longest = max([longest, *(after[0] - before[1] for before, after in zip(merged, merged[1:]))])
    notes = [Message.of(_DEVICES.text, n=len(spans))] if len(spans) > 1 else []
    if filled:
        notes.append(Message.of(_FILLED.text, us=filled // 1000))
    return (
        DeviceUse(
            busy_us=busy / 1000,
            idle_us=idle / 1000,
            idle_share=idle / (busy + idle) if busy + idle else 0.0,
            communication_us=sum(end - start for found in talks.values() for start, end in union(found))
            / 1000,
            kernels=kernels,
            longest_idle_us=longest / 1000,
        ),
        notes,
    )


def _overlaps(trace: Trace, lanes: Iterable[tuple[str, Lane]]) -> list[StepTrace]:
    """Return what the profiler's own analysis says of each device, added up over the trace."""
    found: dict[str, dict[str, float]] = {}
    for device, lane in lanes:
        for number, (_, _, total_ns, _, _) in lane.tallies.items():
            part = _PARTS.get(trace.keys[number].name.lower())
            if part is not None:
                parts = found.setdefault(device, {})
                parts[part] = parts.get(part, 0.0) + total_ns / 1000
    return [_overlap(device, parts) for device, parts in sorted(found.items())]


def _overlap(device: str, parts: dict[str, float]) -> StepTrace:
    digits = _DIGITS.search(device) if device.upper().startswith("NPU") else None
    alone = parts.get("communication_not_overlapped_us", 0.0)
    total = parts.get("computing_us", 0.0) + alone + parts.get("free_us", 0.0)
    share = {key: parts[f"{key}_us"] / total for key in _SHARED if f"{key}_us" in parts and total > 0}
    return StepTrace(
        name=f"device {digits.group()}" if digits else "device",
        device_id=digits.group() if digits else "",
        total_us=total,
        computing_us=parts.get("computing_us"),
        communication_us=parts.get("communication_us"),
        communication_not_overlapped_us=parts.get("communication_not_overlapped_us"),
        free_us=parts.get("free_us"),
        computing_share=share.get("computing"),
        communication_not_overlapped_share=share.get("communication_not_overlapped"),
        free_share=share.get("free"),
    )


_SHARED = ("computing", "communication_not_overlapped", "free")


def _steps(trace: Trace, lanes: Iterable[Lane]) -> list[StepTrace]:
    found = [(trace.keys[key].name.partition("#")[2], taken) for lane in lanes for key, taken in lane.steps]
    return [StepTrace(name=f"step {number}", step=number, total_us=taken / 1000) for number, taken in found]


def _phases(lanes: Iterable[Lane]) -> tuple[tuple[Phase, ...], bool]:
    """Return the parts of the steps where annotations tell them, and whether the forward pass is unknown."""
    all_lanes = list(lanes)
    stepping = [lane for lane in all_lanes if lane.steps]
    leading = stepping or [lane for lane in all_lanes if lane.in_phases[OPTIMIZER]]
    if not leading:
        return (), False
    whole = sum(taken for lane in stepping for _, taken in lane.steps) or sum(
        lane.last_ns - (lane.first_ns or 0) for lane in leading
    )
    inside = [lane.in_steps if stepping else lane.in_phases for lane in leading]
    times = {phase: sum(one[phase] for one in inside) for phase in (DATA, OPERATOR, BACKWARD, OPTIMIZER)}
    elsewhere = sum(lane.in_phases[BACKWARD] for lane in all_lanes if lane not in leading)
    untold = bool(elsewhere) and bool(times[OPERATOR])
    times[BACKWARD] += elsewhere
    if elsewhere:
        times[OPERATOR] = 0
    rest = max(0, whole - sum(times.values()))
    names: tuple[tuple[PhaseName, int], ...] = (
        ("data", times[DATA]),
        ("forward", times[OPERATOR]),
        ("backward", times[BACKWARD]),
        ("optimizer", times[OPTIMIZER]),
        ("other", rest),
    )
    return tuple(
        Phase(name, taken / 1000, taken / whole if whole else 0.0) for name, taken in names if taken
    ), untold
