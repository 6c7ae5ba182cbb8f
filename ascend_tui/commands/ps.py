"""`ascend-tui ps`: the Python processes of this machine and whether they can be attached to."""

from __future__ import annotations

import pwd
import time
from collections.abc import Sequence

from ascend_tui.attach import has_shim, why_not
from ascend_tui.commands import OK
from ascend_tui.commands.output import data, line
from ascend_tui.frame import SCHEMA
from ascend_tui.target import Refusal, Target, list_python
from ascend_tui.text import clean, duration, fit, width

COLUMNS = (("pid", 8), ("user", 10), ("python", 7), ("device", 7), ("age", 9), ("attach", 10), ("what", 100))


def ps(as_data: bool) -> int:
    """List what can be attached to, trainings first."""
    targets = sorted(list_python(), key=lambda one: (not one.torch_loaded, one.id.pid))
    if as_data:
        for target in targets:
            refusal = why_not(target)
            data(
                {
                    "schema": SCHEMA,
                    "pid": target.id.pid,
                    "start_ticks": target.id.start_ticks,
                    "user": _user(target.uid),
                    "python": target.python,
                    "torch": target.torch_loaded,
                    "device": _device(target),
                    "age_s": max(0.0, time.time() - target.start_wall),
                    "title": target.title,
                    "shim": has_shim(target),
                    "refused": None if refusal is None else refusal.as_json(),
                }
            )
        return OK
    if not targets:
        line("no Python process runs here; start a training, or try: ascend-tui demo")
        return OK
    line(_row([name for name, _ in COLUMNS]))
    for target in targets:
        refusal = why_not(target)
        attached = has_shim(target)
        cells = (
            str(target.id.pid),
            _user(target.uid),
            target.python or "?",
            _device(target),
            duration(max(0.0, time.time() - target.start_wall)),
            "attached" if attached else "yes" if refusal is None else "no",
            target.title if refusal is None else f"{target.title}  ({_why(refusal)})",
        )
        line(_row(cells))
    return OK


def _row(cells: Sequence[str]) -> str:
    cut = [fit(clean(cell), cells_wide - 1) for cell, (_, cells_wide) in zip(cells, COLUMNS)]
    padded = [cell + " " * (cells_wide - width(cell)) for cell, (_, cells_wide) in zip(cut, COLUMNS)]
    return "".join(padded).rstrip()


def _why(refusal: Refusal) -> str:
    return refusal.why.format(**dict(refusal.params))


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _device(target: Target) -> str:
    if target.npu_loaded:
        return "npu"
    if target.cuda_loaded:
        return "cuda"
    return "cpu" if target.torch_loaded else "-"
