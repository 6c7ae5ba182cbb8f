"""What a log tells of bad numbers stands in the overflow stream, beside what is known or on its own."""

from __future__ import annotations

from ascend_tui_plugins.overflow.collector import OverflowCollector

from ascend_tui.plugin import Alert, Category, Event, Message, Record
from ascend_tui.target import TargetId

TARGET = TargetId(7, 70)
GRAD = Message.of("the gradient norm is {value} at iteration {n}", value="NaN", n="3,385")


def alert(
    step: int | None, category: Category = "numeric", headline: Message = GRAD, count: int = 1
) -> Alert:
    return Alert(TARGET, "logs", 50.0, "error", category, headline, step, (3,), count)


def collector() -> OverflowCollector:
    told: list[Event] = []
    return OverflowCollector(told.append)


def bad_loss(at: OverflowCollector, step: int) -> None:
    data = {"losses": [[step, float("nan")]], "rank": 0}
    at.on_record(TARGET, Record(1, "overflow", "pulse", step, 50.0, 5.0, data))


def test_a_log_alone_is_a_line_of_its_own_with_its_step() -> None:
    at = collector()
    at.on_event(alert(120))
    (one,) = at.snapshot(TARGET).incidents
    assert (one.kind, one.severity, one.step, one.ranks, one.headline) == ("told", "error", 120, (3,), GRAD)


def test_what_is_seen_already_is_told_once() -> None:
    at = collector()
    bad_loss(at, 118)
    at.on_event(alert(120))
    (one,) = at.snapshot(TARGET).incidents
    assert one.kind == "loss"
    assert GRAD in one.evidence


def test_what_grew_is_the_same_line() -> None:
    at = collector()
    at.on_event(alert(120))
    at.on_event(alert(150, count=9))
    (one,) = at.snapshot(TARGET).incidents
    assert (one.first_step, one.step, one.count) == (120, 150, 1)


def test_two_that_differ_are_two_lines() -> None:
    at = collector()
    at.on_event(alert(120))
    at.on_event(alert(120, headline=Message.of("the loss scale is {scale}", scale="0")))
    assert len(at.snapshot(TARGET).incidents) == 2


def test_a_step_that_nobody_knows_is_not_made_up() -> None:
    at = collector()
    at.on_event(alert(None))
    at.on_record(TARGET, Record(1, "overflow", "pulse", 40, 1.0, 1.0, {"losses": [[40, 2.5]]}))
    at.on_event(alert(None))
    assert at.snapshot(TARGET).incidents == ()


def test_other_kinds_stay_out() -> None:
    at = collector()
    at.on_event(alert(120, category="oom"))
    assert at.snapshot(TARGET).incidents == ()
