"""The way in that stops nothing: `sys.remote_exec`, by an interpreter of the target's own minor version.

CPython 3.14 looks between two lines of Python whether somebody has named a script for its main thread. The
name is written by another interpreter of the same version, because the places differ between versions.
Where the main thread sits in native code nothing happens until it comes back: then this is not the way.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ascend_tui.inject import choose
from ascend_tui.inject.entry import has_ended
from ascend_tui.inject.errors import InjectError
from ascend_tui.inject.script import Script
from ascend_tui.target import Target, proc
from ascend_tui.target.environment import read_environ
from ascend_tui.target.paths import seen_from_here

CODE = "remote_exec"
FIRST_PYTHON = (3, 14)
CALL_S = 5.0
RUN_S = 3.0
WAIT_S = 0.3  # after so long in one wait it is not worth while to wait for the rest of RUN_S
POLL_S = 0.002
WAITS = "the main thread waits in a native call"
# What the main thread runs late instead of a script that is no longer there, which would be printed.
NOTHING = "/dev/null"
_CALL = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
_INTERPRETER = re.compile(r"python(3(\.\d+t?)?)?$")
_SWITCHED_OFF = re.compile(r"-X ?disable-remote-debug")


def is_known_to(target: Target) -> bool:
    """Tell whether the target's Python is new enough to have it at all."""
    return _version(target) >= FIRST_PYTHON


def why_not(target: Target) -> str:
    """Return why this cannot be the way into `target` now, or nothing when it can; touches nothing."""
    pid = target.id.pid
    if not is_known_to(target):
        return "the training runs a Python older than 3.14"
    if seen_from_here(pid, "/") != Path("/"):
        return "the training sees other files than this monitor (a container)"
    if os.geteuid() not in (0, target.uid):
        return "its script can be written only by the training's user or root"
    if not _is_ours(target) and not _is_interpreter(target):
        return "no interpreter of the training's Python version is to be had"
    by_variable = (read_environ(pid) or {}).get("PYTHON_DISABLE_REMOTE_DEBUG")
    if by_variable or _SWITCHED_OFF.search(" ".join(target.argv)):
        return "the training was started with remote debugging switched off"
    if choose.main_waits(pid):
        return WAITS
    return ""


def run(target: Target, payload: str) -> None:
    """Make the main thread of `target` run `payload` and return when it has begun to.

    Raises InjectError("remote_exec") with the reason otherwise; then the payload will not run any more,
    unless it began in that very moment.
    """
    reason = why_not(target)
    if reason:
        raise InjectError(CODE, reason)
    with Script(target, payload, CODE) as script:
        _call(target, script.path)
        end, last, moved = time.monotonic() + RUN_S, choose.pulse(target.id.pid), time.monotonic()
        while not script.has_run():
            if has_ended(target.id.pid):
                raise InjectError("gone")
            now, pulse = time.monotonic(), choose.pulse(target.id.pid)
            if not pulse or pulse != last:
                last, moved = pulse, now
            if now > end or now - moved > WAIT_S:
                _call(target, NOTHING)
                if not script.has_run():
                    late = f"the main thread ran no Python within {RUN_S:.0f} s"
                    raise InjectError(CODE, late if now > end else WAITS)
            time.sleep(POLL_S)


def _call(target: Target, path: str) -> None:
    """Name a script to the target, in a process of its own that is gone a moment later."""
    pid = target.id.pid
    stat = proc.read_stat(pid)
    if stat is None or stat.start_ticks != target.id.start_ticks:
        raise InjectError("gone")
    words = ["-I", "-S", "-c", _CALL, str(pid), path]
    try:
        if _is_ours(target):
            done = _start([sys.executable, *words], sys.executable, {})
        else:
            done = _start([target.exe or "python", *words], f"/proc/{pid}/exe", _as_user_of(target))
    except (OSError, subprocess.SubprocessError) as error:
        raise InjectError(CODE, f"an interpreter of its version does not start ({error})") from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise InjectError(CODE, f"the call failed ({last[0]})")


def _start(words: list[str], program: str, more: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        words,
        executable=program,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        timeout=CALL_S,
        start_new_session=True,
        **more,
    )
    return done


def _as_user_of(target: Target) -> dict[str, Any]:
    """Return how to start the target's own program: with its libraries, and never with more rights than it.

    Whoever owns that file could have put anything there: root must not run it as root.
    """
    path = (read_environ(target.id.pid) or {}).get("LD_LIBRARY_PATH")
    more: dict[str, Any] = {"env": {"LD_LIBRARY_PATH": path} if path else {}}
    status = proc.read_status(target.id.pid) or {}
    groups = status.get("Gid", "").split()
    if os.geteuid() != target.uid and groups:
        more.update(user=target.uid, group=int(groups[0]), extra_groups=[])
    return more


def _version(target: Target) -> tuple[int, ...]:
    return tuple(int(word) for word in (target.python or "0").rstrip("t").split("."))


def _is_ours(target: Target) -> bool:
    return hasattr(sys, "remote_exec") and sys.version_info[:2] == _version(target)


def _is_interpreter(target: Target) -> bool:
    """Tell whether its program is a plain interpreter; to start anything else again would be an accident."""
    name = os.path.basename(target.exe or "")
    return bool(_INTERPRETER.match(name)) and os.access(f"/proc/{target.id.pid}/exe", os.X_OK)
