"""What one tick shows: the session makes it, the screen, the JSON lines and the recording take it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Alert, Mark, Message
from ascend_tui.target import TargetId

SCHEMA = "ascend-tui/1"

TargetState = Literal["attaching", "waiting", "live", "passive", "disconnected", "exited", "refused"]
CommandPhase = Literal["off", "arming", "on", "stopping"]


@frozen
class Cost:
    """What we cost the training, as a share of its step time.

    `share` is the larger of the time inside our hooks and the difference of armed and unarmed
    steps, `low` and `high` its interval; None is "unknown".  `thinning` is n where only every n-th
    step is looked at because the budget was passed.
    """

    share: float | None = None
    low: float | None = None
    high: float | None = None
    hook_us_per_step: float | None = None
    thinning: int = 1


@frozen
class CommandState:
    """Where a command stands, and who holds it (a monitor's name and pid)."""

    plugin: str
    name: str
    phase: CommandPhase
    holder: str = ""
    ends: Message | None = None


@frozen
class TargetStatus:
    """The pulse of one target: what the status line shows.

    `step` counts attempts; `skipped` those a GradScaler skipped.  `sample_age_s` is the age of the
    newest record by the tick's clock.  `method` is the layer of the attach and `method_reason` why it was
    taken, in English; `stop_ms` is the longest time that a thread was stopped for it, `hello_ms` the time
    from the attach to the shim's greeting.
    """

    id: TargetId
    title: str
    state: TargetState
    reason: Message | None = None
    rank: int | None = None
    world_size: int | None = None
    device: str = ""
    device_name: str = ""
    python: str = ""
    torch: str = ""
    torch_npu: str = ""
    method: str = ""
    method_reason: str = ""
    stop_ms: float | None = None
    hello_ms: float | None = None
    step: int | None = None
    skipped: int = 0
    step_time_s: float | None = None
    sample_age_s: float | None = None
    dropped: int = 0
    cost: Cost = Cost()
    commands: tuple[CommandState, ...] = ()
    notes: tuple[Message, ...] = ()


@frozen
class TargetFrame:
    """One target at one tick.  `alerts` and `marks` are those since the tick before."""

    status: TargetStatus
    plugins: Mapping[str, Any]
    alerts: tuple[Alert, ...] = ()
    marks: tuple[Mark, ...] = ()


@frozen
class Frame:
    """Everything at one tick; `wall_s` is Unix time."""

    wall_s: float
    targets: tuple[TargetFrame, ...]


@frozen
class Failed:
    """The snapshot of a plugin that could not be loaded or whose collector failed."""

    failed: str


def as_json(value: Any) -> Any:
    """Turn snapshots into what strict JSON can hold.

    Messages become English sentences, non-finite numbers strings; a field with the metadata
    `{"json": False}` is for the screen only and left out.
    """
    if isinstance(value, Message):
        return _english(value)
    if isinstance(value, TargetId):
        return {"pid": value.pid, "start_ticks": value.start_ticks}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: as_json(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.metadata.get("json", True)
        }
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [as_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def _english(message: Message) -> str:
    """Return a sentence in English; one whose places do not fit its parameters as its bare text."""
    try:
        return message.render()
    except (KeyError, IndexError, ValueError):
        return message.text


def _snapshot(snapshot: Any) -> Any:
    try:
        return as_json(snapshot)
    except Exception as error:  # noqa: BLE001 - a third party's object costs its own place only
        return {"failed": f"{type(error).__name__}: {error}"}


def json_lines(frame: Frame) -> list[dict[str, Any]]:
    """Return one object per target in the shape that `--json` promises."""
    return [
        {
            "schema": SCHEMA,
            "time": frame.wall_s,
            "step": one.status.step,
            "target": as_json(one.status),
            "plugins": {name: _snapshot(snapshot) for name, snapshot in one.plugins.items()},
            "alerts": as_json(one.alerts),
            "marks": as_json(one.marks),
        }
        for one in frame.targets
    ]
