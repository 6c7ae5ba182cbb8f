"""What the shim says of the process it lives in: the facts of its hello."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from typing import Any, Dict, Optional, Tuple

_RANK = ("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_WORLD = ("WORLD_SIZE", "RANK_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
_LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")


def _number(names: Tuple[str, ...]) -> Optional[int]:
    for name in names:
        text = os.environ.get(name, "")
        if text.isdigit() and len(text) < 10:
            return int(text)
    return None


def _proc(name: str) -> str:
    try:
        with open("/proc/self/" + name) as file:
            return file.read()
    except OSError:
        return ""


def start_ticks() -> int:
    """Return when this process started, in clock ticks since boot: with the pid it names a process."""
    fields = _proc("stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 else 0


def facts() -> Dict[str, Any]:
    """Return the facts that cannot change: pid, namespaces' pids, start, rank, argv."""
    nspid = re.search(r"^NSpid:\s*(.+)$", _proc("status"), re.M)
    return {
        "pid": os.getpid(),
        "nspid": [int(one) for one in nspid.group(1).split()] if nspid else [os.getpid()],
        "start_ticks": start_ticks(),
        "uid": os.geteuid(),
        "python": platform.python_version(),
        "argv": [str(one)[:200] for one in getattr(sys, "argv", [])[:20]],
        "rank": _number(_RANK),
        "world_size": _number(_WORLD),
        "local_rank": _number(_LOCAL),
        "host": platform.node(),
        "time": time.time(),
    }


def torch_versions() -> Dict[str, str]:
    """Return the versions of what the process has imported itself; nothing is imported here."""
    found = {}
    for name in ("torch", "torch_npu"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found


def raised_by_signal(error: BaseException) -> bool:
    """Tell whether an exception caught by our guard came out of one of the training's signal handlers.

    A handler runs between two bytecodes of whatever the main thread does, so also in the middle of a
    hook of ours; what it raises (a time limit, a preemption) is meant for the training.
    """
    signal = sys.modules.get("signal")
    if signal is None:
        return False
    codes = []
    for number in range(1, int(signal.NSIG)):
        try:
            handler = signal.getsignal(number)
        except ValueError:
            continue
        # functools.partial, a bound method, an object that is called.
        handler = getattr(handler, "func", handler)
        for one in (handler, getattr(type(handler), "__call__", None)):  # noqa: B004
            code = getattr(getattr(one, "__func__", one), "__code__", None)
            if code is not None:
                codes.append(code)
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False
