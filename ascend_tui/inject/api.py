"""The monitor's side of an injection: preflight, run the helper process, turn its answer into facts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ascend_tui
from ascend_tui.frozen import frozen
from ascend_tui.inject import gdb, remote_exec
from ascend_tui.inject.errors import InjectError
from ascend_tui.inject.refusals import refusal_for
from ascend_tui.target import RefusedError, Target, preflight

METHODS = ("auto", "remote_exec", "thread", "pending", "gdb")
MAX_PAYLOAD_BYTES = 1 << 20
AREA_TOKEN = "@AREA@"
ASKED_FOR = "asked for"
NOTHING_STOPS = "the main thread runs Python, and no thread has to be stopped for it"
# What the helper may take beyond the search for a thread: start, two waits, the watchdog.
GRACE_S = 10.0
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from ascend_tui.inject.helper import main; sys.exit(main())"
)


@frozen
class Injection:
    """What an injection did.

    `method` is the layer that did it, `reason` why it was that one and what was passed over. `stops_ms` are
    the times a thread was stopped (by gdb: all of them), `elapsed_ms` the whole from the start. `tid` is the
    borrowed thread, 0 when none was. `area` is (rw address, rw size, rx address, rx size) in bytes: memory in
    the target that the shim frees when the 32-bit word at rw + 44 is 1, and then a moment later, because the
    stub that wrote it has still to return. `warning` says what the layer may have done to the training.
    """

    method: str
    reason: str
    tid: int
    is_main: bool
    stops_ms: tuple[float, ...]
    elapsed_ms: float
    area: tuple[int, int, int, int] | None
    warning: str = ""


def inject(target: Target, payload: str, method: str = "auto", timeout_s: float = 5.0) -> Injection:
    """Run `payload` (Python source) inside `target` and return when the target has taken it over.

    `auto` takes the first layer that is possible: `remote_exec`, `thread`, `pending`; `gdb` only by name.
    "Taken over" means: the new thread exists, or the interpreter has the pending call, or the script has
    begun; whether the payload has run is for the payload to tell. It must do no harm when it runs twice.
    `@AREA@` in it becomes a tuple of four numbers (`Injection.area`) or None. `timeout_s` bounds the search
    for a thread that can be borrowed.

    Raises RefusedError with the exact reason, TargetGone when the process has ended, ValueError for an
    unknown method or a payload over 1 MiB or with a NUL.
    """
    text = payload.encode()
    if method not in METHODS or len(text) > MAX_PAYLOAD_BYTES or b"\0" in text:
        raise ValueError(f"method {method!r}, payload of {len(text)} bytes")
    refusal = preflight(target)
    if refusal is not None:
        raise RefusedError(refusal)
    started, passed = time.monotonic(), ""
    try:
        if method == "remote_exec" or (method == "auto" and remote_exec.is_known_to(target)):
            try:
                remote_exec.run(target, payload.replace(AREA_TOKEN, "None"))
            except InjectError as error:
                if method != "auto" or error.code != remote_exec.CODE:
                    raise
                passed = f"remote_exec passed over: {error.detail}; "
            else:
                reason = NOTHING_STOPS if method == "auto" else ASKED_FOR
                return Injection("remote_exec", reason, 0, True, (), _ms(started), None)
        if method == "gdb":
            stop_ms, area = gdb.run(target, payload, AREA_TOKEN)
            pages = (area.rw, area.rw_size, area.rx, area.rx_size)
            main = target.id.pid
            return Injection("gdb", ASKED_FOR, main, True, (stop_ms,), _ms(started), pages, gdb.WARNING)
    except InjectError as error:
        raise RefusedError(refusal_for(target, error.code, error.detail)) from None
    report = ask_helper(target, payload, method, timeout_s)
    rw, rw_size, rx, rx_size = report["area"]
    return Injection(
        method=report["method"],
        reason=passed + report["reason"],
        tid=report["tid"],
        is_main=report["is_main"],
        stops_ms=tuple(report["stops_ms"]),
        elapsed_ms=_ms(started),
        area=(rw, rw_size, rx, rx_size),
    )


def ask_helper(
    target: Target, payload: str, method: str, timeout_s: float, dry_run: bool = False
) -> dict[str, Any]:
    """Have the short-lived process inject, or only look, and return what it reports.

    It is a process of its own, because ptrace binds a tracee to one thread of the tracer, and so that it can
    die. Raises RefusedError.
    """
    request = {
        "pid": target.id.pid,
        "start_ticks": target.id.start_ticks,
        "python": target.python,
        "method": method,
        "payload": payload,
        "timeout_s": timeout_s,
        "dry_run": dry_run,
    }
    answer = _ask_helper(target, json.dumps(request), timeout_s + GRACE_S)
    if "code" in answer:
        raise RefusedError(refusal_for(target, str(answer["code"]), str(answer.get("detail", ""))))
    report = answer["outlook" if dry_run else "report"]
    assert isinstance(report, dict)
    return report


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


def _ms(since: float) -> float:
    return (time.monotonic() - since) * 1e3
