"""An out-of-memory error in a log: what its own numbers say of who holds the memory."""

from __future__ import annotations

from collections.abc import Sequence

from ascend_tui.frozen import frozen
from ascend_tui.judging.oom import Cause, OomNumbers, explain_oom
from ascend_tui.judging.oom_text import OomText, errors
from ascend_tui.plugin import Message
from ascend_tui.text import byte_size

from .snapshot import Fact

_HOST = Message("the host's memory ran out, not the device's")
_LOOK = Message("npu-smi info names the processes on the device; what is left of an ended one counts, too")
_OPENING = Message("the device was full before this process had any of it: another process holds it")
_OTHERS = Message("the error itself says that other processes may occupy the device already")
_DRIVER = Message("the driver had no more memory to give; the error does not tell who holds it")


@frozen
class RanOut:
    """One error of memory with what it means."""

    headline: Message
    kind: Cause
    reason: Message
    advice: Message | None
    code: str
    count: int
    devices: tuple[int, ...]
    ranks: tuple[int, ...]
    step: int | None
    facts: tuple[Fact, ...]


def explain(lines: Sequence[str]) -> RanOut | None:
    """Return what the lines of one error say; None where none of them tells of memory that ran out."""
    found = errors(lines)
    if not found:
        return None
    # The layers of one failure may each tell it; the one with most numbers knows who holds the memory.
    error = max(found, key=lambda one: len(one.numbers))
    backend = "cuda" if error.backend in ("cuda", "hip") else error.backend or "npu"
    numbers = OomNumbers.of({**error.numbers, "device": backend})
    kind, reason, helps = explain_oom(numbers)
    headline = _headline(error, kind, numbers)
    if error.style == "cann":
        kind, reason, helps = _cann(error, kind)
    elif error.style == "host":
        reason, helps = _HOST, None
    return RanOut(
        headline=headline,
        kind=kind,
        reason=reason,
        advice=helps,
        code=error.code,
        count=max(one.count for one in found),
        devices=tuple(sorted({device for one in found for device in one.devices})),
        ranks=tuple(sorted({rank for one in found for rank in one.ranks})),
        step=error.step,
        facts=_facts(numbers, kind),
    )


def _facts(numbers: OomNumbers, kind: Cause) -> tuple[Fact, ...]:
    told = [Fact("verdict", kind)]
    for name, value in (
        ("requested_bytes", numbers.requested_bytes),
        ("total_bytes", numbers.total_bytes),
        ("free_bytes", numbers.free_bytes),
        ("allocated_bytes", numbers.allocated_bytes),
        ("reserved_bytes", numbers.reserved_bytes),
        ("outside_bytes", numbers.outside_bytes),
    ):
        if value is not None:
            told.append(Fact(name, value))
    return tuple(told)


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
    if error.opening:
        return "external", _OPENING, _LOOK
    if error.others:
        return "external", _OTHERS, _LOOK
    return kind, _DRIVER, _LOOK
