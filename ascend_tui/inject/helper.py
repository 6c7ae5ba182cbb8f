"""The short-lived process that injects: one JSON request on stdin, one JSON answer on stdout.

`python -m ascend_tui.inject.helper`. Exit status 0 with {"report": …}, 3 with {"code": …, "detail": …}.
It may be killed at any moment without harm to the target; see `injector`.
"""

from __future__ import annotations

import gc
import json
import sys

from ascend_tui.inject.errors import InjectError
from ascend_tui.inject.injector import Injector
from ascend_tui.inject.request import Report, Request

REFUSED = 3


def main() -> int:
    """Answer one request; returns the exit status."""
    gc.disable()  # a collection in the middle of a stop would prolong it
    asked = json.load(sys.stdin)
    request = Request(
        pid=asked["pid"],
        start_ticks=asked["start_ticks"],
        python=asked["python"],
        method=asked["method"],
        payload=asked["payload"].encode(),
        timeout_s=asked["timeout_s"],
    )
    answer: dict[str, object]
    try:
        answer = {"report": perform(request)._asdict()}
    except InjectError as error:
        answer = {"code": error.code, "detail": error.detail}
    json.dump(answer, sys.stdout)
    return REFUSED if "code" in answer else 0


def perform(request: Request) -> Report:
    """Inject and report; every OSError on the way becomes an InjectError with a code."""
    try:
        injector = Injector(request)
        try:
            return injector.run()
        finally:
            injector.close()
    except InjectError as error:
        # A process that ends meanwhile loses its memory first, which looks like many other faults.
        if _has_ended(request.pid):
            raise InjectError("gone", str(error)) from None
        raise
    except (FileNotFoundError, ProcessLookupError) as error:
        raise InjectError("gone", str(error)) from None
    except PermissionError as error:
        raise InjectError("ptrace_refused", str(error)) from None
    except OSError as error:
        raise InjectError("gone" if _has_ended(request.pid) else "memory", str(error)) from None


def _has_ended(pid: int) -> bool:
    """Tell whether a process has given up its memory: gone, a zombie, or on the way there."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return not file.read(1)
    except OSError:
        return True


if __name__ == "__main__":
    sys.exit(main())
