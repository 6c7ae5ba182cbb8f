"""What `inspect` gets from the memory plugin: a file in, one result out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ascend_tui.frozen import frozen
from ascend_tui.judging.oom import Cause, OomNumbers, explain_oom
from ascend_tui.judging.oom_text import OomText, errors
from ascend_tui.plugin import Attribution, Category, Message, Severity
from ascend_tui.text import byte_size

from .files import kind_of
from .files.events import dump
from .files.lines import lines
from .files.npu_smi import Card, CardFinding, cards, findings
from .files.profiler import operators, readings
from .files.series import Table
from .of_profile import judge_dump, judge_operators, judge_record
from .of_series import judge_table

HEAD = 1 << 20


@frozen
class OomIncident:
    """An out-of-memory error of a log: what happened, why by its own numbers, and what helps."""

    severity: Severity
    category: Category
    headline: Message
    step: int | None
    ranks: tuple[int, ...]
    count: int
    attribution: Attribution
    kind: Cause
    reason: Message
    advice: Message | None
    device: int | None
    devices: tuple[int, ...]
    requested_bytes: int | None
    total_bytes: int | None
    free_bytes: int | None
    allocated_bytes: int | None
    reserved_bytes: int | None
    outside_bytes: int | None
    code: str
    line: int
    text: str


@frozen
class LogResult:
    """The incidents of a log that the memory plugin knows: memory that ran out."""

    incidents: tuple[OomIncident, ...]


@frozen
class SmiResult:
    """The cards of an `npu-smi info` text and what is wrong with them."""

    devices: tuple[Card, ...]
    findings: tuple[CardFinding, ...]


def read(path: Path) -> Any:
    """Return the result of a file that `sniff` knows.

    Raises OSError, and ValueError where the file is nothing that this plugin reads.
    """
    with path.open("rb") as file:
        kind = kind_of(file.read(HEAD), path.name)
    if kind == "npu_smi":
        found = tuple(cards(lines(path)))
        return SmiResult(found, tuple(findings(found)))
    if kind == "events":
        return judge_dump(dump(lines(path)))
    if kind == "memory_record":
        return judge_record(lambda: readings(lines(path)))
    if kind == "operator_memory":
        return judge_operators(operators(lines(path)))
    if kind == "table":
        return judge_table(Table(lines(path)))
    incidents = tuple(incident(error) for error in errors(lines(path)))
    if not incidents and kind != "log":
        raise ValueError("no series of memory, no profile, no npu-smi table and no out-of-memory error in it")
    return LogResult(incidents)


def incident(error: OomText) -> OomIncident:
    """Return an error of a log as an incident.  Pure, so that a plugin for logs can call it."""
    backend = "cuda" if error.backend in ("cuda", "hip") else error.backend or "npu"
    numbers = OomNumbers.of({**error.numbers, "device": backend})
    kind, reason, helps = explain_oom(numbers)
    headline = _headline(error, kind, numbers)
    if error.style == "cann":
        kind, reason, helps = _cann(error, kind)
    elif error.style == "host":
        reason, helps = Message("the host's memory ran out, not the device's"), None
    return OomIncident(
        severity="error",
        category="oom",
        headline=headline,
        step=error.step,
        ranks=error.ranks,
        count=error.count,
        attribution="exact",
        kind=kind,
        reason=reason,
        advice=helps,
        device=error.device,
        devices=error.devices,
        requested_bytes=numbers.requested_bytes,
        total_bytes=numbers.total_bytes,
        free_bytes=numbers.free_bytes,
        allocated_bytes=numbers.allocated_bytes,
        reserved_bytes=numbers.reserved_bytes,
        outside_bytes=numbers.outside_bytes,
        code=error.code,
        line=error.line,
        text=error.text,
    )


def _headline(error: OomText, kind: Cause, numbers: OomNumbers) -> Message:
    place = "?" if error.device is None else error.device
    asked = None if numbers.requested_bytes is None else byte_size(numbers.requested_bytes)
    if error.style == "host":
        return Message("host out of memory")
    if error.style == "cann":
        code = error.code or "CANN"
        if error.opening:
            return Message.of(
                "{code}: no memory left when device {device} was opened", code=code, device=place
            )
        if asked is None:
            return Message.of("{code}: device {device} could not allocate memory", code=code, device=place)
        return Message.of(
            "{code}: device {device} could not allocate {asked}", code=code, device=place, asked=asked
        )
    limit = numbers.limit_bytes
    if limit is not None and kind == "capacity":
        return Message.of(
            "device {device} out of memory: the program's own limit of {limit} is reached",
            device=place,
            limit=byte_size(limit),
        )
    if kind == "external":
        return Message.of(
            "device {device} out of memory: {outside} of {total} are held outside this process's torch"
            " allocator",
            device=place,
            outside=byte_size(numbers.outside_bytes or 0),
            total=byte_size(numbers.total_bytes or 0),
        )
    if kind == "capacity" and numbers.total_bytes and numbers.allocated_bytes is not None:
        return Message.of(
            "device {device} out of memory: it is full, {held} of {total} are live tensors",
            device=place,
            held=byte_size(numbers.allocated_bytes),
            total=byte_size(numbers.total_bytes),
        )
    if kind == "fragmentation":
        return Message.of(
            "device {device} out of memory by fragmentation: {unused} are reserved and unused",
            device=place,
            unused=byte_size(numbers.unused_bytes or 0),
        )
    if asked is None:
        return Message.of("device {device} out of memory", device=place)
    return Message.of("device {device} out of memory, {asked} were asked for", device=place, asked=asked)


def _cann(error: OomText, kind: Cause) -> tuple[Cause, Message, Message | None]:
    look = Message("npu-smi info names the processes on the device; what is left of an ended one counts, too")
    if error.opening:
        reason = Message("the device was full before this process had any of it: another process holds it")
        return "external", reason, look
    if error.others:
        return (
            "external",
            Message("the error itself says that other processes may occupy the device already"),
            look,
        )
    return kind, Message("the driver had no more memory to give; the error does not tell who holds it"), look
