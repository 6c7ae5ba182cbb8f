"""Sightings become incidents: what belongs together, what it is called, and how often it happened."""

from __future__ import annotations

from typing import Any

from ascend_tui_plugins.logs.episodes import Episode
from ascend_tui_plugins.logs.folding import MOST, Folded
from ascend_tui_plugins.logs.sighting import CONTEXT, GENERIC, REASON, SPECIFIC, Line, Sighting
from ascend_tui_plugins.logs.snapshot import Fact, Incident
from ascend_tui_plugins.logs.traces import Traces

from ascend_tui.plugin import Category, Message, Severity


def line(number: int, body: str = "x", **more: Any) -> Line:
    return Line(body, body, number, **more)


def sighting(
    category: Category, knows: int = SPECIFIC, headline: str = "h", severity: Severity = "error", **more: Any
) -> Sighting:
    return Sighting(category, severity, Message(headline), knows, more.pop("key", headline), **more)


def told(*found: tuple[Line, Sighting]) -> Incident:
    episode = Episode(found[0][0].source, 50.0)
    for here, one in found:
        assert episode.fits(here, one)
        episode.add(here, one, [(here.number, here.text.encode())])
    incident = episode.incident()
    assert incident is not None
    return incident


WRAPPER = sighting("device", GENERIC, "error code is 507035", code="507035")
CAUSE = sighting("memory_access", REASON, "the ub address is out of bounds", facts=(("core", 7),))


def test_the_reason_is_the_headline_whichever_line_comes_first() -> None:
    for order in ((WRAPPER, CAUSE), (CAUSE, WRAPPER)):
        one = told(*((line(n), found) for n, found in enumerate(order, 1)))
        assert (one.headline, one.category, one.code) == (CAUSE.headline, "memory_access", "507035")
        assert one.facts == (Fact("core", 7),)


def test_the_worst_severity_counts_but_for_what_is_harmless() -> None:
    dead = sighting("device", GENERIC, "gone", "fatal")
    assert told((line(1), CAUSE), (line(2), dead)).severity == "fatal"
    calm = sighting("device", REASON, "teardown", "info")
    assert told((line(1), WRAPPER), (line(2), calm)).severity == "info"


def test_two_faults_of_different_kinds_are_two() -> None:
    episode = Episode(0, 50.0)
    episode.add(line(1), sighting("oom", REASON), [])
    assert not episode.fits(line(2), sighting("communication"))
    assert episode.fits(line(2), sighting("oom"))
    assert episode.fits(line(2), sighting("crash", GENERIC))
    assert episode.fits(line(2), sighting("other", CONTEXT))


def test_far_lines_times_and_devices_are_another_fault() -> None:
    episode = Episode(0, 50.0)
    episode.add(line(1, wall_s=100.0), sighting("device", device=1), [])
    assert not episode.fits(line(90, wall_s=100.0), sighting("device"))
    assert not episode.fits(line(2, wall_s=130.0), sighting("device"))
    assert not episode.fits(line(2, wall_s=101.0), sighting("device", device=2))
    assert episode.fits(line(2, wall_s=101.0), sighting("device", device=1))


def test_the_same_line_twice_happened_twice_and_another_layers_words_did_not() -> None:
    again = told((line(1, "ub overflow"), CAUSE), (line(2, "ub overflow"), CAUSE))
    assert again.count == 2
    layers = told((line(1, "ub overflow"), CAUSE), (line(2, "thread ended: ub overflow"), CAUSE))
    assert layers.count == 1
    assert told((line(1, repeated=7), CAUSE)).count == 7


def test_lines_that_only_go_with_something_are_no_incident() -> None:
    episode = Episode(0, 50.0)
    episode.add(line(1), sighting("device", CONTEXT), [])
    assert episode.incident() is None


def test_memory_that_ran_out_is_explained_by_its_numbers() -> None:
    text = (
        "RuntimeError: NPU out of memory. Tried to allocate 64.00 MiB (NPU 2; 29.00 GiB total capacity;"
        " 4.00 GiB already allocated; 4.00 GiB current active; 32.00 MiB free; 4.50 GiB reserved"
        " in total by PyTorch)"
    )
    one = told((line(1, text), sighting("oom", REASON)))
    assert one.headline.render() == (
        "device 2 out of memory: 24.5 GiB of 29.0 GiB are held outside this process's torch allocator"
    )
    assert Fact("verdict", "external") in one.facts
    assert one.devices == (2,)


# Folding.


def test_ranks_fold_into_one_line_and_the_first_by_time_is_named() -> None:
    late = told((line(1, rank=1, wall_s=200.5), sighting("timeout", REASON)))
    early = told((line(9, rank=0, wall_s=200.2), sighting("timeout", REASON)))
    folded = Folded()
    folded.add(late)
    folded.add(early)
    (one,) = folded.with_open([])
    assert (one.count, one.ranks, one.first_wall_s) == (2, (0, 1), 200.2)
    assert [m.render() for m in one.evidence] == ["rank 0 was first, by the times of its lines"]


def test_ranks_in_different_collectives_are_said_to_be() -> None:
    folded = Folded()
    for rank, operator in ((0, "AllReduce"), (1, "AllGather")):
        folded.add(told((line(rank + 1), sighting("timeout", rank=rank, doing=operator, key="task"))))
    (one,) = folded.with_open([])
    assert one.headline.render() == ("ranks are in different collectives: rank 0 AllReduce; rank 1 AllGather")
    assert one.by_rank == ((0, "AllReduce"), (1, "AllGather"))


def test_what_is_still_being_told_is_shown_and_counted_once() -> None:
    folded = Folded()
    folded.add(told((line(1, "a", wall_s=0.0), CAUSE)))
    again = told((line(400, "b", wall_s=900.0), CAUSE))
    assert [one.count for one in folded.with_open([again])] == [2]
    assert [one.count for one in folded.with_open([])] == [1]
    folded.add(again)
    assert [one.count for one in folded.with_open([])] == [2]


def test_another_layer_of_the_same_rank_at_once_is_no_second_time() -> None:
    folded = Folded()
    folded.add(told((line(1, "reason", rank=3, wall_s=10.0), CAUSE)))
    folded.add(told((line(80, "reason, again by the launcher", rank=3, wall_s=12.0), CAUSE)))
    assert [one.count for one in folded.with_open([])] == [1]


def test_a_plog_and_the_programs_output_tell_one_fault() -> None:
    plog = told((line(5, "plog", wall_s=10.0, device=1), sighting("device", REASON, "cube", code="507015")))
    out = told(
        (line(7, "stdout", wall_s=11.0, device=1, source=1), sighting("device", GENERIC, "RT", code="507015"))
    )
    folded = Folded()
    folded.add(out)
    folded.add(plog)
    (one,) = folded.with_open([])
    assert (one.count, one.headline.text) == (1, "cube")


def test_there_is_an_end_to_what_is_kept_and_the_worst_stays() -> None:
    folded = Folded()
    worst = told((line(1), sighting("device", REASON, "worst", "fatal")))
    folded.add(worst)
    for number in range(3 * MOST):
        folded.add(told((line(number), sighting("other", SPECIFIC, f"mild {number}", "warning"))))
    kept = folded.with_open([])
    assert len(kept) == MOST
    assert worst in kept
    assert folded.dropped == 2 * MOST + 1


def test_a_logger_with_two_handlers_tells_once() -> None:
    folded = Folded()
    for number in range(1, 6):
        for source, head in ((0, ""), (1, "2031-05-07 08:09:10 - ")):
            text = f"{head}saving checkpoint-{number}00 failed, trying it again"
            folded.add(told((line(number * 100, text, source=source, wall_s=1000.0 * number), CAUSE)))
    (one,) = folded.with_open([])
    assert one.count == 5


def test_what_comes_again_in_the_same_words_soon_happened_again() -> None:
    folded = Folded()
    for number in range(5):
        folded.add(told((line(9 * number + 1, f"saving part {number} failed", wall_s=4.0 * number), CAUSE)))
    assert [one.count for one in folded.with_open([])] == [5]


# Tracebacks.


def trace_of(*bodies: str, stream: str = "") -> tuple[str, ...] | None:
    traces = Traces()
    found: tuple[str, ...] | None = None
    for number, body in enumerate(bodies):
        found = traces.take((0, stream), line(number, body))
    return found


def test_a_traceback_ends_with_its_exception() -> None:
    found = trace_of(
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in main',
        "    step(batch)",
        "    ^^^^^^^^^^^",
        '  File "model.py", line 9, in step',
        "ValueError: no",
    )
    assert found == ('File "train.py", line 3, in main\nstep(batch)', 'File "model.py", line 9, in step')


def test_frames_without_their_beginning_are_a_traceback() -> None:
    assert trace_of('  File "m.py", line 9, in f', "    g()", "RuntimeError: x") == (
        'File "m.py", line 9, in f\ng()',
    )


def test_two_ranks_write_into_each_other() -> None:
    traces = Traces()
    for stream in ("rank 0", "rank 1"):
        assert traces.take((0, stream), line(1, "Traceback (most recent call last):")) == ()
    for stream in ("rank 1", "rank 0"):
        assert traces.take((0, stream), line(2, f'  File "{stream}.py", line 1, in f')) == ()
    assert traces.take((0, "rank 0"), line(3, "E: a")) == ('File "rank 0.py", line 1, in f',)
    assert traces.take((0, "rank 1"), line(4, "E: b")) == ('File "rank 1.py", line 1, in f',)
    assert not traces


def test_a_traceback_of_cann_is_none() -> None:
    assert trace_of("        TraceBack (most recent call last):") is None


def test_an_endless_one_is_given_up() -> None:
    traces = Traces()
    traces.take((0, ""), line(0, "Traceback (most recent call last):"))
    for number in range(5000):
        traces.take((0, ""), line(number, "    indented"))
    assert not traces
