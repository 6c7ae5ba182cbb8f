"""Can this process be attached to?"""

from __future__ import annotations

from collections.abc import Iterator

from ascend_tui.attach import has_shim, target_of, why_not
from ascend_tui.commands.doctor.check import Check
from ascend_tui.target import RefusedError


def process(pid: int) -> Iterator[Check]:
    """Say what the process is, and what an attach would be refused for."""
    try:
        target = target_of(pid)
    except RefusedError as error:
        yield Check("process", "error", error.refusal.english())
        return
    yield Check(
        "process", "ok", f"{pid} {target.title}, Python {target.python or 'unknown'}, user {target.uid}"
    )
    refusal = why_not(target)
    if has_shim(target):
        yield Check("attach", "ok", "a shim is in it already")
    elif refusal is None:
        yield Check("attach", "ok", "nothing stands in the way")
    else:
        yield Check("attach", "error", refusal.english())
