"""From a shim's frames to typed values.

A shim may be older, newer or not a shim at all: what is missing becomes None, what is of the wrong
kind is left out, and nothing in here raises.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from ascend_tui.controls import Outcome
from ascend_tui.frame import CommandPhase, CommandState, Cost, TargetState, TargetStatus
from ascend_tui.plugin import Message, Record
from ascend_tui.target import Target


def records_of(raw: Any) -> list[Record]:
    """Return the legal records of a frame's list."""
    found = (_record(one) for one in _list(raw))
    return [one for one in found if one is not None]


def _record(raw: Any) -> Record | None:
    if not isinstance(raw, dict):
        return None
    seq, step = _int(raw.get("seq")), _int(raw.get("step"))
    wall_s, mono_s = _float(raw.get("wall")), _float(raw.get("mono"))
    plugin, kind = raw.get("plugin"), raw.get("kind")
    if seq is None or step is None or wall_s is None or mono_s is None:
        return None
    if not isinstance(plugin, str) or not isinstance(kind, str):
        return None
    return Record(seq, plugin, kind, step, wall_s, mono_s, dict_of(raw.get("data")))


def outcome_of(reply: Mapping[str, Any]) -> Outcome:
    """Return how a request ended."""
    if reply.get("ok") is not True:
        return Outcome(False, Message.of("{why}", why=_text(reply.get("error")) or "refused"))
    residue = _list(dict_of(reply.get("result")).get("residue"))
    return Outcome(True, Message("done"), tuple(_text(one) for one in residue if _text(one)))


def residue_lines(pid: int, residue: Sequence[str]) -> tuple[str, ...]:
    """Return what to tell of a shim that was removed."""
    head = f"the shim was removed from {pid}; what stays in the process until it ends:"
    return (head, *(f"  {one}" for one in residue))


def status_of(
    target: Target,
    state: TargetState,
    reason: Message | None,
    hello: Mapping[str, Any],
    beat: Mapping[str, Any],
    sample_age_s: float | None,
) -> TargetStatus:
    """Return the pulse of a target from its hello and its last beat."""
    process = dict_of(hello.get("process"))
    device = {**dict_of(hello.get("device")), **dict_of(beat.get("device"))}
    versions = {**dict_of(hello.get("torch")), **dict_of(beat.get("torch"))}
    kind, index = _text(device.get("kind")), _int(device.get("index"))
    return TargetStatus(
        id=target.id,
        title=target.title,
        state=state,
        reason=reason,
        rank=_int(process.get("rank")),
        world_size=_int(process.get("world_size")),
        device=kind if index is None else f"{kind}:{index}",
        device_name=_text(device.get("name")),
        python=_text(process.get("python")) or target.python or "",
        torch=_text(versions.get("torch")),
        torch_npu=_text(versions.get("torch_npu")),
        step=_int(beat.get("step")) or None,
        skipped=_int(beat.get("skipped")) or 0,
        step_time_s=_float(beat.get("step_s")),
        sample_age_s=sample_age_s,
        dropped=_int(beat.get("dropped")) or 0,
        cost=_cost(dict_of(beat.get("cost"))),
        commands=tuple(_command(dict_of(one)) for one in _list(beat.get("commands"))),
        notes=tuple(Message.of("{note}", note=_text(one)) for one in _list(beat.get("notes")) if _text(one)),
    )


def _cost(raw: Mapping[str, Any]) -> Cost:
    share, low, high, hook_us = (_float(raw.get(name)) for name in ("share", "low", "high", "hook_us"))
    return Cost(share, low, high, hook_us, _int(raw.get("thinning")) or 1)


def _command(raw: Mapping[str, Any]) -> CommandState:
    plugin, name, holder = (_text(raw.get(key)) for key in ("plugin", "name", "holder"))
    phase: CommandPhase = raw["phase"] if raw.get("phase") in get_args(CommandPhase) else "off"
    return CommandState(plugin, name, phase, holder)


def dict_of(value: Any) -> dict[str, Any]:
    """Return a JSON object, an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _float(value: Any) -> float | None:
    """Return a finite number; JSON can hold 1e999, and an integer can be too large for a float."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
