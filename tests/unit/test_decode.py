"""What comes from a shim may be anything: it becomes typed values, or nothing, and never an exception."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_tui.decode import dict_of, outcome_of, records_of, status_of
from ascend_tui.frame import CommandState, Cost, TargetStatus, as_json
from ascend_tui.plugin import Message, Record
from ascend_tui.target import Target, TargetId

TARGET = Target(
    id=TargetId(4_000_000, 7),
    ns_pid=1,
    uid=0,
    comm="python",
    exe=None,
    argv=("python", "train.py"),
    python="3.11",
    arch=None,
    state="S",
    tracer_pid=0,
    thread_count=1,
    start_wall=0.0,
    torch_loaded=True,
    npu_loaded=False,
    cuda_loaded=False,
    visible=True,
)
HELLO_NAMES = ("process", "device", "torch", "shim", "others")
BEAT_NAMES = (
    "step",
    "skipped",
    "step_s",
    "cost",
    "dropped",
    "commands",
    "faults",
    "notes",
    "torch",
    "device",
)
INNER_NAMES = ("kind", "index", "name", "rank", "world_size", "python", "torch", "torch_npu", "share", "low")
INNER_NAMES += ("high", "hook_us", "thinning", "plugin", "phase", "holder", "residue")
RECORD_NAMES = ("seq", "plugin", "kind", "step", "wall", "mono", "data")
RECORD = {"seq": 3, "plugin": "memory", "kind": "time", "step": 2, "wall": 1.5, "mono": 2.5, "data": {"a": 1}}

# What json.loads can give: also integers beyond a float, infinities (1e999), and half surrogate pairs.
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**300, 10**320)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=20)
    | st.sampled_from(["on", "off", "cpu", "{0}", "{a}", "\x1b[2J", "\udcff"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(INNER_NAMES), inner, max_size=5)
    ),
    max_leaves=12,
)


def objects(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), values, max_size=len(names))


def status(hello: Any, beat: Any) -> TargetStatus:
    return status_of(TARGET, "live", None, hello, beat, None)


@given(values | st.lists(objects(*RECORD_NAMES), max_size=4))
def test_records_are_legal_whatever_came(raw: Any) -> None:
    for record in records_of(raw):
        assert isinstance(record.seq, int)
        assert isinstance(record.step, int)
        assert isinstance(record.plugin, str)
        assert isinstance(record.kind, str)
        assert isinstance(record.data, dict)
        assert math.isfinite(record.wall_s)
        assert math.isfinite(record.mono_s)


@given(objects(*HELLO_NAMES), objects(*BEAT_NAMES))
def test_a_status_is_made_of_whatever_came(hello: Any, beat: Any) -> None:
    made = status(hello, beat)
    assert made.id == TARGET.id
    for name in ("title", "device", "device_name", "python", "torch", "torch_npu"):
        assert isinstance(getattr(made, name), str), name
    for number in (made.step_time_s, made.cost.share, made.cost.low, made.cost.high):
        assert number is None or math.isfinite(number)
    assert all(one.phase in ("off", "arming", "on", "stopping") for one in made.commands)
    assert all(isinstance(note.render(), str) for note in made.notes)
    # Strict JSON must come out of it in the end.
    json.dumps(as_json(made), allow_nan=False)


@given(objects("ok", "error", "result", "id"))
def test_an_outcome_is_made_of_whatever_came(reply: Any) -> None:
    made = outcome_of(reply)
    assert made.ok is (reply.get("ok") is True)
    assert isinstance(made.message.render(), str)
    assert all(isinstance(line, str) for line in made.lines)


@pytest.mark.parametrize("name", RECORD_NAMES)
def test_a_record_without_one_of_its_fields_is_left_out_but_for_its_data(name: str) -> None:
    cut = {key: value for key, value in RECORD.items() if key != name}
    found = records_of([RECORD, cut, {**RECORD, "seq": 4}])
    assert [one.seq for one in found] == ([3, 3, 4] if name == "data" else [3, 4])


def test_a_whole_record() -> None:
    assert records_of([RECORD]) == [Record(3, "memory", "time", 2, 1.5, 2.5, {"a": 1})]


@pytest.mark.parametrize(
    "wrong",
    [
        {"seq": "3"},
        {"seq": True},
        {"seq": 1.0},
        {"wall": "NaN"},
        {"wall": math.inf},
        {"mono": math.nan},
        {"mono": 10**320},
        {"plugin": 1},
        {"kind": None},
        {"step": [1]},
    ],
    ids=str,
)
def test_a_record_with_a_field_of_the_wrong_kind_is_left_out(wrong: dict[str, Any]) -> None:
    assert records_of([{**RECORD, **wrong}]) == []


def test_a_status_reads_what_a_shim_sends() -> None:
    hello = {
        "process": {"rank": 2, "world_size": 8, "python": "3.10.1"},
        "torch": {"torch": "2.1.0"},
        "device": {"kind": "cpu", "index": None, "name": "910B"},
    }
    beat = {
        "step": 9,
        "skipped": 1,
        "step_s": 0.5,
        "dropped": 4,
        "cost": {"share": 0.01, "low": 0.0, "high": 0.02, "hook_us": 12, "thinning": 2},
        "commands": [{"plugin": "p", "name": "n", "phase": "arming", "holder": "h"}],
        "notes": ["a note with {places}"],
        "torch": {"torch": "2.1.0", "torch_npu": "2.1.1"},
        "device": {"kind": "npu", "index": 3},
    }
    made = status(hello, beat)
    assert (made.rank, made.world_size, made.python) == (2, 8, "3.10.1")
    assert (made.device, made.device_name) == ("npu:3", "910B")
    assert (made.torch, made.torch_npu) == ("2.1.0", "2.1.1")
    assert (made.step, made.skipped, made.step_time_s, made.dropped) == (9, 1, 0.5, 4)
    assert made.cost == Cost(0.01, 0.0, 0.02, 12.0, 2)
    assert made.commands == (CommandState("p", "n", "arming", "h"),)
    assert [note.render() for note in made.notes] == ["a note with {places}"]


def test_a_status_of_nothing_knows_what_the_process_table_said() -> None:
    made = status({}, {})
    assert (made.python, made.device, made.step, made.commands) == ("3.11", "", None, ())
    assert made.cost == Cost()


def test_an_outcome_says_the_shims_reason_or_its_residue() -> None:
    refused = outcome_of({"ok": False, "error": "held by {somebody}"})
    assert (refused.ok, refused.message.render()) == (False, "held by {somebody}")
    assert outcome_of({"ok": False}).message.render() == "refused"
    done = outcome_of({"ok": True, "result": {"residue": ["one", 2, "three"]}})
    assert (done.ok, done.message, done.lines) == (True, Message("done"), ("one", "three"))


def test_only_an_object_is_one() -> None:
    assert dict_of({"a": 1}) == {"a": 1}
    assert [dict_of(one) for one in (None, [], "x", 1)] == [{}] * 4
