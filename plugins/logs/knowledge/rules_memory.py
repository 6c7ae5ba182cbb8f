"""Lines that tell of memory that ran out; their numbers are put together of all lines of the incident."""

from __future__ import annotations

import re

from ascend_tui.judging.oom_text import is_oom
from ascend_tui.plugin import Message, Scalar

from ..sighting import REASON, SPECIFIC, Found, Line, Rule, Sighting
from .rule_table import harmless, near
from .rules_facts import device_of

_NUMBERS = re.compile(
    r"ried to allocate|size ?[=\[]\d|size: \d|申请|Killed process|allocate \d|total capacity"
)
_HOST = re.compile(
    r"pin memory|Killed process|DefaultCPUAllocator|bad_alloc|Cannot allocate memory|can't allocate memory"
    r"|host memory"
)
_CARD = re.compile(r"\((?:NPU|GPU|HIP|XPU) (\d{1,4});|\bGPU (\d{1,4}) has")
_DEVICE_WORDS = Message("memory ran out on the device")
_HOST_WORDS = Message("the host's memory ran out")
_NEEDLES = (
    *(
        "ut of memory",
        "OUT OF MEMORY",
        "Out Of Memory",
        "OutOfMemory",
        "llocate memory",
        "bad_alloc",
        "memory failed",
    ),
    *(
        "内存不足",
        "llocation_Failure",
        "EL:",
        "EL[",
        "(EL)",
        "emAlloc",
        "alloc failed",
        "rtMalloc",
        "alloc execution failed",
    ),
    *(
        "aclrtMalloc",
        "emory not enough",
        "emory isn't enough",
        "emory isnt enough",
        "emory_Allocation",
        "memory execution",
    ),
    *("code is ", "result = ", "ret[", "Code=", "ret:", "huge page failed"),
)


def ran_out(line: Line) -> Found:
    """Tell that memory ran out, on the device or on the host."""
    text = near(line.text, ("emory", "lloc", "内存不足"))
    if not is_oom(text):
        return None
    card = _CARD.search(text)
    device = int(card[1] or card[2]) if card else device_of(text)
    is_host = bool(_HOST.search(text)) and card is None
    facts: tuple[tuple[str, Scalar], ...] = () if device is None or is_host else (("device", device),)
    return Sighting(
        category="oom",
        severity="error",
        headline=_HOST_WORDS if is_host else _DEVICE_WORDS,
        knows=REASON if _NUMBERS.search(text) else SPECIFIC,
        key="oom",
        attribution="exact",
        facts=facts,
        device=None if is_host else device if device is not None else line.device,
    )


RULES: tuple[tuple[tuple[str, ...], Rule], ...] = (
    harmless(("his error log can be ignored",), r"[Tt]his error log can be ignored"),
    (_NEEDLES, ran_out),
)
