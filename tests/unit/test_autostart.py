"""Commands that run while a monitor is there: asked for once, and not against somebody's will."""

from __future__ import annotations

from typing import Any

import pytest
from ascend_tui_plugins.overflow import PLUGIN as OVERFLOW

from ascend_tui.autostart import AGAIN_S, Autostart
from ascend_tui.plugin import Command, Lease, Message, Plugin, Record

LOADED = {"overflow", "memory"}
START = {
    "plugin": "overflow",
    "name": "gradients",
    "action": "start",
    "lease": {"steps": 1_000_000, "seconds": 3600.0},
}
QUIET: dict[str, Any] = {"commands": []}
RUNS = {"commands": [{"plugin": "overflow", "name": "gradients", "phase": "on", "holder": "test (pid 1)"}]}


@pytest.fixture
def auto() -> Autostart:
    return Autostart([OVERFLOW])


def told(phase: str, reason: str, name: str = "gradients", **more: Any) -> Record:
    data = {"plugin": "overflow", "name": name, "phase": phase, "reason": reason}
    fields = {"seq": 1, "plugin": "core", "kind": "command", "step": 1, "wall_s": 1.0, "mono_s": 1.0}
    return Record(**{**fields, "data": data, **more})


def test_the_command_that_costs_next_to_nothing_is_the_only_one(auto: Autostart) -> None:
    assert auto.due(QUIET, LOADED, 0.0) == [START]
    assert [one.name for one in OVERFLOW.commands if one.auto] == ["gradients"]


def test_only_what_is_loaded_is_started(auto: Autostart) -> None:
    assert auto.due(QUIET, {"memory"}, 0.0) == []
    assert auto.due(QUIET, LOADED, 0.0) == [START]


def test_it_is_asked_for_once_and_again_only_after_a_while(auto: Autostart) -> None:
    assert auto.due(QUIET, LOADED, 0.0) == [START]
    assert auto.due(QUIET, LOADED, 1.0) == []
    assert auto.due(QUIET, LOADED, AGAIN_S - 0.1) == []
    assert auto.due(QUIET, LOADED, AGAIN_S) == [START]


def test_one_that_runs_is_left_alone_whoever_holds_it(auto: Autostart) -> None:
    assert auto.due(RUNS, LOADED, 0.0) == []
    assert auto.due(RUNS, LOADED, 1000.0) == []
    assert auto.due(QUIET, LOADED, 1001.0) == [START]


@pytest.mark.parametrize("reason", ["lease over", "its monitor is gone", "released"])
def test_where_it_ended_by_itself_it_starts_again_at_once(auto: Autostart, reason: str) -> None:
    auto.due(QUIET, LOADED, 0.0)
    auto.learn(told("started", "started"))
    auto.learn(told("ended", reason))
    assert auto.due(QUIET, LOADED, 1.0) == [START]


def test_where_somebody_stopped_it_it_stays_off_until_he_starts_it(auto: Autostart) -> None:
    auto.due(QUIET, LOADED, 0.0)
    auto.learn(told("ended", "stopped by ascend-tui (pid 7, uid 0)"))
    assert auto.due(QUIET, LOADED, 1000.0) == []
    # A new connection does not change anybody's mind.
    auto.reset()
    assert auto.due(QUIET, LOADED, 2000.0) == []
    auto.learn(told("started", "started"))
    auto.learn(told("ended", "lease over"))
    assert auto.due(QUIET, LOADED, 2001.0) == [START]


def test_a_new_connection_asks_anew(auto: Autostart) -> None:
    auto.due(QUIET, LOADED, 0.0)
    auto.reset()
    assert auto.due(QUIET, LOADED, 1.0) == [START]


def test_records_of_others_teach_nothing(auto: Autostart) -> None:
    auto.due(QUIET, LOADED, 0.0)
    auto.learn(told("ended", "lease over", name="modules"))
    auto.learn(told("ended", "stopped by x", plugin="overflow"))
    auto.learn(told("ended", "stopped by x", kind="pulse"))
    auto.learn(told("ended", "stopped by x", name="ops"))
    assert auto.due(QUIET, LOADED, 1.0) == []
    assert auto.due(QUIET, LOADED, AGAIN_S) == [START]


@pytest.mark.parametrize(
    "beat",
    [
        {},
        {"commands": None},
        {"commands": 7},
        {"commands": "gradients"},
        {"commands": [None, 3, ["overflow"], {}, {"plugin": 1, "name": None}]},
        {"commands": [{"plugin": ["overflow"], "name": {}}]},
    ],
)
def test_a_beat_of_wrong_types_is_one_without_commands(auto: Autostart, beat: Any) -> None:
    assert auto.due(beat, LOADED, 0.0) == [START]


@pytest.mark.parametrize(
    "data", [{}, {"phase": None, "reason": 3}, {"plugin": [], "name": {}, "phase": "started"}]
)
def test_a_record_of_wrong_types_teaches_nothing(auto: Autostart, data: Any) -> None:
    auto.due(QUIET, LOADED, 0.0)
    auto.learn(told("", "", data=data))
    assert auto.due(QUIET, LOADED, 1.0) == []


def test_plugins_without_such_a_command_ask_for_nothing() -> None:
    command = Command("go", Message("go"), Message("nothing"), Lease(1, 1.0))
    plain = Plugin("x", "X", "a:b", "c:d", commands=(command,))
    assert Autostart([plain]).due(QUIET, {"x"}, 0.0) == []
    assert Autostart(()).due(QUIET, LOADED, 0.0) == []


def test_a_command_that_is_refused_as_soon_as_it_runs_is_not_started_at_each_beat(auto: Autostart) -> None:
    assert auto.due(QUIET, LOADED, 0.0) == [START]
    auto.learn(told("started", "started"))
    auto.learn(told("ended", "refused: the hooks are off after a fault of the shim"))
    assert auto.due(QUIET, LOADED, 1.0) == []
    assert auto.due(QUIET, LOADED, AGAIN_S) == [START]
