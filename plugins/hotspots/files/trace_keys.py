"""What the events of one row of a trace have in common, and what an event's name and arguments say of it."""

from __future__ import annotations

from ascend_tui.frozen import frozen

from ..snapshot import Kind
from .lanes import BACKWARD, DATA, NO_PHASE, OPERATOR, OPTIMIZER, STEP

LONGEST_SHAPES = 200

_WAITING = ("WAIT", "NOTIFY", "RECORD", "PROFILING", "PLACE_HOLDER", "WRITE_VALUE", "CAPTURE_")
_COMPUTING = ("AI_", "AIC", "AIV", "MIX")


@frozen
class Key:
    """What the events of one row have in common; `waits` tells that a stream only waited in it."""

    name: str
    core: str = ""
    shapes: str = ""
    dtypes: str = ""
    kind: Kind = "other"
    waits: bool = False


def waits_of(name: str, core: str) -> bool:
    """Tell whether a stream of an Ascend device only waits or marks in a task."""
    if core.upper().startswith(_COMPUTING):
        return False
    words = f"{core} {name}".upper().replace(" ", "_")
    return any(word in words for word in _WAITING)


def phase_of(name: str, category: str) -> int:
    """Return what an event is for the parts of a step, which torch's own annotations tell."""
    if category in ("user_annotation", "cpu_op", "operator"):
        if name.startswith("ProfilerStep#"):
            return STEP
        if name.startswith(("Optimizer.step#", "Optimizer.zero_grad#")):
            return OPTIMIZER
        if name.startswith("enumerate(DataLoader)#"):
            return DATA
        if name.startswith("autograd::engine::evaluate_function"):
            return BACKWARD
    return OPERATOR if category in ("cpu_op", "operator") else NO_PHASE


def shapes_of(value: object) -> str:
    """Return shapes as the tables of Ascend write them: `4,1025;1025,8`."""
    if not isinstance(value, list):
        return ""
    parts = [
        str(one).replace(" ", "") if any(isinstance(size, list) for size in one) else ",".join(map(str, one))
        for one in value
        if isinstance(one, list) and one
    ]
    return ";".join(parts)[:LONGEST_SHAPES]


def types_of(value: object) -> str:
    """Return the types of the inputs in one text."""
    if not isinstance(value, list):
        return ""
    return ";".join(str(one) for one in value if isinstance(one, str) and one)[:LONGEST_SHAPES]
