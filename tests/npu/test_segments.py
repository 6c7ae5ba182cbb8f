"""The allocator's segments and the moment it is out of memory, from a training on the simulated NPU."""

from __future__ import annotations

from typing import Any

import pytest

from ascend_tui.plugin import load, probe_text
from tests.attach.client import Client, target
from tests.attach.trainings import Place
from tests.cann_sim.simulator import Simulator

MIB = 1 << 20
HBM_MIB = 1024


class Small(Place):
    """A simulated NPU with little memory."""

    def environment(self) -> dict[str, str]:
        """Return the environment of a training here."""
        assert self.simulator is not None
        return self.simulator.environment(home=self.home, hbm_mib=HBM_MIB)


@pytest.fixture(scope="module")
def told(simulator: Simulator, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the records of a training that was asked for its segments and then ran out of memory."""
    place = Small("npu:0", simulator, tmp_path_factory.mktemp("home"))
    folder = tmp_path_factory.mktemp("training")
    with target(folder, "keeper.py", "--fill", "--steps", 1000, place=place) as process:
        assert any(line.startswith("step ") for line in process.stdout)
        with Client(process.path) as client:
            client.hello()
            assert client.probe("memory", probe_text(load("memory")))["ok"]
            client.beat(lambda beat: beat["device"]["kind"] == "npu")
            found: dict[str, Any] = {"reply": client.start("memory", "segments", steps=1, seconds=1)}
            seen = lambda kind: [one["data"] for one in client.records if one["kind"] == kind]  # noqa: E731
            client.until(lambda frame: bool(seen("segments")))
            found["segments"] = seen("segments")[0]
            process.hurry.touch()
            client.until(lambda frame: bool(seen("oom")), 60)
            found["oom"], found["at_oom"] = seen("oom")[0], seen("segments")[-1]
        found["stderr"] = process.communicate(timeout=60)[1]
    return found


def test_the_segments_add_up(told: dict[str, Any]) -> None:
    assert told["reply"]["ok"], told["reply"]
    for found in (told["segments"], told["at_oom"]):
        parts = found["active_bytes"] + found["releasable_bytes"] + found["inactive_split_bytes"]
        assert parts == found["reserved_bytes"]
        assert len(found["shown"]) == min(48, found["count"])
        for one in found["shown"]:
            assert sum(size for size, _ in one["blocks"]) == one["total_bytes"]
            assert sum(size for size, state in one["blocks"] if state == "active") <= one["total_bytes"]


def test_segments_that_a_small_block_pins_are_counted(told: dict[str, Any]) -> None:
    found = told["segments"]
    # 8 MiB live in each segment of the 36 MiB blocks that were dropped, or beside them.
    assert found["inactive_split_bytes"] + found["releasable_bytes"] >= 6 * 36 * MIB
    assert found["largest_free_bytes"] >= 36 * MIB
    assert 0 <= found["pinned_bytes"] <= found["inactive_split_bytes"]


def test_the_moment_of_an_oom_has_the_allocators_own_numbers(told: dict[str, Any]) -> None:
    oom = told["oom"]
    assert "NPU out of memory" in told["stderr"]
    assert oom["device"] == "npu:0"
    assert oom["count"] == 1
    assert oom["total_bytes"] == HBM_MIB * MIB
    assert oom["requested_bytes"] >= 128 * MIB
    assert oom["free_bytes"] < oom["requested_bytes"]
    assert oom["allocated_bytes"] <= oom["active_bytes"] <= oom["reserved_bytes"]
    assert oom["reserved_bytes"] == told["at_oom"]["reserved_bytes"]
    assert oom["inactive_split_bytes"] == told["at_oom"]["inactive_split_bytes"]
    assert oom["largest_free_bytes"] == told["at_oom"]["largest_free_bytes"] < oom["requested_bytes"]
