"""`attach --dry-run`: what would be done, to which thread, and what stops it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ascend_tui.attach import plan
from ascend_tui.commands import OK, REFUSED
from ascend_tui.commands.output import data, line, refuse
from ascend_tui.frame import SCHEMA
from ascend_tui.inject.plan import Plan
from ascend_tui.target import Refusal, Target
from ascend_tui.text import byte_size


def tell_plans(targets: Sequence[Target], method: str, as_data: bool) -> int:
    """Print a plan for each target; refused when one of them would be. Nothing is stopped or written."""
    code = OK
    for target in targets:
        found = plan(target, method)
        if isinstance(found, Refusal):
            refuse(found, as_data)
            code = REFUSED
        elif as_data:
            data({"schema": SCHEMA, **found.as_json()})
        else:
            for text in _lines(found):
                line(text)
    return code


def _lines(found: Plan) -> Iterator[str]:
    yield f"{found.pid} {found.title}: nothing stops an attach; it would be by {found.chosen}: {found.reason}"
    thread = found.thread
    if thread is not None:
        kind = "the main thread" if thread.is_main else "not the main thread"
        where = f", which waits in {thread.waits_in}" if thread.waits_in else ""
        yield f"  it would stop thread {thread.tid} ({thread.name}, {kind}){where}"
        yield "  that thread would stop twice for about a millisecond, all others run on"
    if any(found.maps_bytes):
        sizes = " and ".join(byte_size(size) for size in found.maps_bytes if size)
        yield f"  it would map {sizes} there, and give that back at detach"
    if found.warning:
        yield f"  warning: {found.warning}"
    yield f"  the socket would be {found.socket}"
    for layer in found.layers:
        yield f"  {layer.layer:<12} {'yes' if layer.possible else 'no':<4} {layer.reason}"
