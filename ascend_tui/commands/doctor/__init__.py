"""`ascend-tui doctor`: what on this machine or in one process stands in the way, and what to do about it."""

from __future__ import annotations

from ascend_tui.commands import FINDINGS, OK
from ascend_tui.commands.doctor.machine import machine
from ascend_tui.commands.doctor.npu import npu
from ascend_tui.commands.doctor.process import process
from ascend_tui.commands.doctor.subject import Subject
from ascend_tui.commands.output import data, line
from ascend_tui.frame import SCHEMA

_SIGNS = {"ok": "·", "warning": "!", "error": "✕"}


def doctor(pid: int | None, as_data: bool) -> int:
    """Check the machine and this Python or, with a pid, that process; exit code 1 when something is wrong.

    With a pid, nothing is said of this Python's torch and of this shell's variables: the process has its own.
    """
    subject = Subject.of_this_python() if pid is None else Subject.of_process(pid)
    checks = [*machine(), *npu(subject), *(() if pid is None else process(pid))]
    for check in checks:
        if as_data:
            data({"schema": SCHEMA, "check": check})
        else:
            line(f"{_SIGNS[check.level]} {check.level:<8}{check.name:<12}{check.found}")
            if check.advice:
                line(f"{'':22}{check.advice}")
    return FINDINGS if any(check.level == "error" for check in checks) else OK
