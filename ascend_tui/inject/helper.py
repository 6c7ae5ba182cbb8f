"""The short-lived process that injects: one JSON request on stdin, one JSON answer on stdout.

`python -m ascend_tui.inject.helper`. Exit status 0 with {"report": …}, or with {"outlook": …} for a dry run,
which touches nothing; 3 with {"code": …, "detail": …}. It may be killed at any moment without harm to the
target; see `injector`.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from typing import TypeVar

from ascend_tui.inject.entry import told_as_inject_error
from ascend_tui.inject.errors import InjectError
from ascend_tui.inject.injector import Injector
from ascend_tui.inject.request import Outlook, Report, Request

REFUSED = 3
_Answer = TypeVar("_Answer")


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
        if asked.get("dry_run"):
            answer = {"outlook": look(request)._asdict()}
        else:
            answer = {"report": perform(request)._asdict()}
    except InjectError as error:
        answer = {"code": error.code, "detail": error.detail}
    json.dump(answer, sys.stdout)
    return REFUSED if "code" in answer else 0


def perform(request: Request) -> Report:
    """Inject and report; every OSError on the way becomes an InjectError with a code."""
    return _with_injector(request, Injector.run)


def look(request: Request) -> Outlook:
    """Say what `perform` would do now, or raise the InjectError that it would end in."""
    return _with_injector(request, Injector.look)


def _with_injector(request: Request, work: Callable[[Injector], _Answer]) -> _Answer:
    with told_as_inject_error(request.pid):
        injector = Injector(request)
        try:
            return work(injector)
        finally:
            injector.close()


if __name__ == "__main__":
    sys.exit(main())
