"""Environment variables that change what a monitor can see, or how fast the training is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from ascend_tui.commands.doctor.check import Check, Level
from ascend_tui.frozen import frozen

Environ = Mapping[str, str]


def plog(environ: Environ) -> Check:
    """Say where CANN writes its log files, or why it writes none."""
    if _number(environ, "ASCEND_GLOBAL_LOG_LEVEL") == 4:
        return Check(
            "plog",
            "warning",
            "ASCEND_GLOBAL_LOG_LEVEL=4: CANN logs nothing",
            "set it to 3 (errors) or unset it",
        )
    # CANN 9.2 renamed it, and lets the new name go first.
    names = ("ASCEND_LOG_PRINT_TO_STDOUT", "ASCEND_SLOG_PRINT_TO_STDOUT")
    name = next((one for one in names if environ.get(one)), "")
    if _is_on(environ, name):
        return Check(
            "plog",
            "warning",
            f"{name}=1: CANN logs to the terminal and writes no file",
            "unset it to have log files that can be read while the training runs",
        )
    return Check("plog", "ok", f"{plog_folder(environ)}/debug/plog/plog-<pid>_<time>.log")


def plog_folder(environ: Environ) -> str:
    """Return the folder of CANN's logs, by the documented order of its variables."""
    if environ.get("ASCEND_PROCESS_LOG_PATH"):
        return environ["ASCEND_PROCESS_LOG_PATH"].rstrip("/")
    if environ.get("ASCEND_WORK_PATH"):
        return environ["ASCEND_WORK_PATH"].rstrip("/") + "/log"
    return environ.get("HOME", "~").rstrip("/") + "/ascend/log"


def variables(environ: Environ) -> Iterator[Check]:
    """Yield a finding for each variable that is set to something worth knowing."""
    for rule in _RULES:
        if rule.holds(environ):
            yield Check(rule.name, rule.level, rule.found, rule.advice)


@frozen
class _Rule:
    name: str
    level: Level
    holds: Callable[[Environ], bool]
    found: str
    advice: str


def _number(environ: Environ, name: str) -> int:
    """Return a variable's value as torch_npu's C++ reads it (strtol): the digits in front, else 0."""
    found = re.match(r"\s*([+-]?\d+)", environ.get(name, ""))
    return int(found.group(1)) if found else 0


def _is_on(environ: Environ, name: str) -> bool:
    return _number(environ, name) != 0


_RULES = (
    _Rule(
        "profiler",
        "warning",
        lambda environ: bool(environ.get("PROFILING_MODE") or environ.get("PROFILER_SAMPLECONFIG")),
        "PROFILING_MODE or PROFILER_SAMPLECONFIG is set (msprof): torch_npu.profiler records nothing",
        "unset both to use torch_npu.profiler",
    ),
    _Rule(
        "error text",
        "warning",
        lambda environ: _is_on(environ, "TORCH_NPU_COMPACT_ERROR_OUTPUT"),
        "TORCH_NPU_COMPACT_ERROR_OUTPUT=1: messages lack their ERRxxxxx; the details are in the plog",
        "unset it to have the codes in the messages",
    ),
    _Rule(
        "allocator",
        "warning",
        lambda environ: _is_on(environ, "PYTORCH_NO_NPU_MEMORY_CACHING"),
        "PYTORCH_NO_NPU_MEMORY_CACHING=1: torch counts no memory: allocated and reserved stay 0",
        "unset it; only the memory of the device is true now, and each allocation is slow",
    ),
    _Rule(
        "allocator",
        "error",
        lambda environ: {"PYTORCH_NPU_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} <= set(environ),
        "PYTORCH_NPU_ALLOC_CONF and PYTORCH_ALLOC_CONF are both set: torch_npu raises when it allocates",
        "unset one of them",
    ),
    _Rule(
        "launch",
        "warning",
        lambda environ: _is_on(environ, "ASCEND_LAUNCH_BLOCKING"),
        "ASCEND_LAUNCH_BLOCKING=1: every operator is waited for, which is slow",
        "unset it after debugging",
    ),
    _Rule(
        "overflow",
        "warning",
        # Set to something that is 0: unset it means 1.
        lambda environ: (
            "INF_NAN_MODE_ENABLE" in environ
            and not _is_on(environ, "INF_NAN_MODE_ENABLE")
            and not _is_on(environ, "INF_NAN_MODE_FORCE_DISABLE")
        ),
        "INF_NAN_MODE_ENABLE=0 alone: on Atlas A2 and A3 (910B, 910_93) torch_npu raises",
        "unset it; saturation mode needs INF_NAN_MODE_FORCE_DISABLE=1 as well",
    ),
)
