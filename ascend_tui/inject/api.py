"""The monitor's side of an injection: preflight, run the helper process, turn its answer into facts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import ascend_tui
from ascend_tui.frozen import frozen
from ascend_tui.inject.refusals import refusal_for
from ascend_tui.target import RefusedError, Target, preflight

METHODS = ("auto", "thread", "pending")
MAX_PAYLOAD_BYTES = 1 << 20
# What the helper may take beyond the search for a thread: start, two waits, the watchdog.
GRACE_S = 10.0
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from ascend_tui.inject.helper import main; sys.exit(main())"
)


@frozen
class Injection:
    """What an injection did.

    `stops_ms` are the times the one borrowed thread was stopped, `elapsed_ms` the whole from the helper's
    start. `area` is (rw address, rw size, rx address, rx size) in bytes: memory in the target that the shim
    frees when the 32-bit word at rw + 44 is 1, and then a moment later, because the stub that wrote it has
    still to return.
    """

    method: str
    reason: str
    tid: int
    is_main: bool
    stops_ms: tuple[float, ...]
    elapsed_ms: float
    area: tuple[int, int, int, int]


def inject(target: Target, payload: str, method: str = "auto", timeout_s: float = 5.0) -> Injection:
    """Run `payload` (Python source) inside `target` and return when the target has taken it over.

    "Taken over" means: the new thread exists, or the interpreter has the pending call; whether the payload
    has run is for the payload to tell. `@AREA@` in it becomes a tuple of four numbers (`Injection.area`).
    `timeout_s` bounds the search for a thread that can be borrowed. The work is done by a short-lived
    process of its own, because ptrace binds a tracee to one thread of the tracer, and so that this process
    can die.

    Raises RefusedError with the exact reason, TargetGone when the process has ended, ValueError for an
    unknown method or a payload over 1 MiB or with a NUL.
    """
    text = payload.encode()
    if method not in METHODS or len(text) > MAX_PAYLOAD_BYTES or b"\0" in text:
        raise ValueError(f"method {method!r}, payload of {len(text)} bytes")
    refusal = preflight(target)
    if refusal is not None:
        raise RefusedError(refusal)
    request = {
        "pid": target.id.pid,
        "start_ticks": target.id.start_ticks,
        "python": target.python,
        "method": method,
        "payload": payload,
        "timeout_s": timeout_s,
    }
    started = time.monotonic()
    answer = _ask_helper(target, json.dumps(request), timeout_s + GRACE_S)
    elapsed_ms = (time.monotonic() - started) * 1e3
    if "code" in answer:
        raise RefusedError(refusal_for(target, str(answer["code"]), str(answer.get("detail", ""))))
    report = answer["report"]
    assert isinstance(report, dict)
    rw, rw_size, rx, rx_size = report["area"]
    return Injection(
        method=report["method"],
        reason=report["reason"],
        tid=report["tid"],
        is_main=report["is_main"],
        stops_ms=tuple(report["stops_ms"]),
        elapsed_ms=elapsed_ms,
        area=(rw, rw_size, rx, rx_size),
    )


def helper_command() -> list[str]:
    """Return the command of the helper: isolated and without `site`, which halves its start."""
    root = Path(ascend_tui.__file__).resolve().parent.parent
    return [sys.executable, "-I", "-S", "-c", _BOOT, str(root)]


def _ask_helper(target: Target, request: str, timeout_s: float) -> dict[str, object]:
    # A session of its own: Ctrl-C and the hang-up of a lost login must not reach it in the middle.
    helper = subprocess.Popen(
        helper_command(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        out, err = helper.communicate(request, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        helper.kill()  # harmless to the target at any moment
        helper.communicate()
        raise RefusedError(refusal_for(target, "helper_timeout", f"{timeout_s:.0f} s")) from None
    try:
        answer = json.loads(out)
    except ValueError:
        detail = err.strip().splitlines()[-1:] or [f"exit status {helper.returncode}"]
        raise RefusedError(refusal_for(target, "helper_failed", detail[0])) from None
    assert isinstance(answer, dict)
    return answer
