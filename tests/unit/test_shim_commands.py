"""What is told of commands: also of those whose hooks their probe arms by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from probed import Shim, plain_step, sgd, small

from ascend_tui.shim.api import Api, Command


class Armed(Shim):
    """A shim with one command, that a probe may start by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.api: Api = self.probe()
        self.looks = 0
        self.looking = self.api.on_module(self.look)
        self.command: Command = self.api.command("look", self.begin, hooks=(self.looking,))
        self.net = small()
        self.optimizer = sgd(self.net)

    def look(self, *args: Any) -> None:
        self.looks += 1

    def begin(self, arguments: Any, steps: int, seconds: float) -> None:
        self.looking.arm(steps, seconds)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.steps.wake()
            plain_step(self.net, self.optimizer)

    def told(self) -> list[tuple[str, str]]:
        """Return what was told since the last call."""
        self.probes.tick(time.monotonic())
        found = [(data["phase"], data["reason"]) for kind, data in self.records if kind == "command"]
        events = [one["reason"] for one in self.events if one["event"] == "command"]
        assert events == [reason for _, reason in found]
        self.records.clear()
        self.events.clear()
        return found


@pytest.fixture
def shim() -> Iterator[Armed]:
    one = Armed()
    yield one
    faults = one.faults, one.probes.faults()
    one.end()
    assert faults == ([], {})


def start(shim: Armed, steps: int) -> None:
    shim.probes.start("p", "look", {}, steps, 60.0, {"name": "test"}, None, False)


def test_one_that_its_probe_starts_is_told_of_like_one_that_somebody_starts(shim: Armed) -> None:
    start(shim, 2)
    shim.train(4)
    assert shim.told() == [("started", "started"), ("ended", "lease over")]
    shim.looking.arm(2, 60.0)
    assert shim.told() == [("started", "started by its probe")]
    shim.train(2)
    assert shim.told() == []
    shim.train(1)
    assert shim.told() == [("ended", "lease over")]
    assert shim.told() == []
    assert shim.looks == 2 * 2 * 4


def test_one_that_is_over_before_anybody_looked_is_told_of(shim: Armed) -> None:
    shim.looking.arm(1, 60.0)
    shim.train(3)
    assert shim.told() == [("started", "started by its probe"), ("ended", "lease over")]


def test_one_that_goes_on_is_told_of_once(shim: Armed) -> None:
    shim.looking.arm(2, 60.0)
    assert len(shim.told()) == 1
    shim.train(1)
    shim.looking.arm(2, 60.0)
    assert shim.told() == []
    # What somebody starts is then his, and what its probe arms meanwhile is in it.
    start(shim, 2)
    assert shim.told() == [("started", "started")]
    shim.looking.arm(2, 60.0)
    assert shim.told() == []
    shim.train(4)
    assert shim.told() == [("ended", "lease over")]
    assert shim.told() == []


def test_one_that_is_refused_or_stopped_or_whose_probe_goes_is_told_of(shim: Armed) -> None:
    shim.looking.arm(2, 60.0)
    shim.looking.refuse("no")
    assert shim.told() == [("started", "started by its probe"), ("ended", "refused: no")]
    shim.looking.arm(2, 60.0)
    shim.told()
    assert shim.probes.stop("p", "look", "test") == {"phase": "off"}
    assert shim.told() == [("ended", "stopped by test")]
    shim.looking.arm(2, 60.0)
    shim.told()
    shim.probes.unload("p")
    assert shim.told() == [("ended", "its probe is off")]
