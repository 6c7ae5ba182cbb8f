"""The real caching allocator over simulated memory: what it counts, and what only the device knows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import Run, cases

from tests.cann_sim.simulator import Simulator

SCRIPT = Path(__file__).with_name("allocator.py")
MIB = 1 << 20
CONTEXT = 64 * MIB


@pytest.fixture(scope="module")
def told(npu: Run) -> dict[str, dict[str, Any]]:
    """Return what one process with two devices of 1 GiB said."""
    names = ("plain", "out_of_memory", "fragmentation", "two_devices")
    return cases(npu(SCRIPT, *names, devices=2, hbm_mib=1024))


def about(bytes_: float, blocks: int = 1) -> Any:
    """Return what equals `bytes_` but for the 32 bytes, rounded to 512, that torch_npu adds to each block."""
    return pytest.approx(bytes_, abs=blocks * 512)


def test_the_four_numbers_of_a_device(told: dict[str, dict[str, Any]]) -> None:
    plain = told["plain"]
    assert plain["total"] == 1024 * MIB
    assert plain["before"] == CONTEXT
    both, one, emptied = plain["both"], plain["one"], plain["emptied"]
    assert both["allocated"] == both["active"] == about(160 * MIB, 2)
    # A segment for each, in steps of 2 MiB.
    assert both["reserved"] == 164 * MIB
    assert both["used"] == both["reserved"] + CONTEXT
    # A dropped tensor stays with the cache, until that is emptied.
    assert one["allocated"] == about(100 * MIB)
    assert (one["reserved"], one["used"]) == (both["reserved"], both["used"])
    assert emptied["reserved"] == 102 * MIB
    assert emptied["used"] == emptied["reserved"] + CONTEXT
    assert "NPU memory summary" in plain["summary"]


def test_out_of_memory_in_torch_npus_own_words(told: dict[str, dict[str, Any]]) -> None:
    said = told["out_of_memory"]["said"]
    number = r"[\d.]+ (?:bytes|KiB|MiB|GiB)"
    assert re.search(
        rf"NPU out of memory\. Tried to allocate {number} \(NPU 0; 1024\.00 MiB total capacity; "
        rf"300\.00 MiB already allocated; 300\.00 MiB current active; {number} free; "
        rf"{number} reserved in total by PyTorch\)\."
        r"If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation\.",
        said,
    ), said
    assert told["out_of_memory"]["after"] == 4


def test_fragmentation_is_reserved_memory_that_cannot_be_given_back(told: dict[str, dict[str, Any]]) -> None:
    found = told["fragmentation"]
    assert found["reserved"] - found["allocated"] >= 80 * MIB
    assert found["inactive"] == found["reserved"] - found["active"]


def test_two_devices_are_apart(told: dict[str, dict[str, Any]]) -> None:
    found = told["two_devices"]
    assert found["count"] == 2
    assert found["allocated"][1] >= 16 * MIB
    assert min(found["used"]) > CONTEXT
    assert found["sum"] == 2 * MIB
    assert (found["thread"], found["main"]) == ([0, 1], 0)
    assert "error code is 107001" in found["refused"]
    assert "Invalid device ID" in found["refused"]


def test_without_the_cache_only_the_device_knows(npu: Run) -> None:
    found = cases(npu(SCRIPT, "uncached", extra={"PYTORCH_NO_NPU_MEMORY_CACHING": "1"}))["uncached"]
    assert found["held"]["allocated"] == found["held"]["reserved"] == found["snapshot"] == 0
    assert 100 * MIB <= found["held"]["used"] - found["before"] <= 101 * MIB
    assert found["total"] == 50 * 10 * 6
    assert found["after"] <= found["before"] + MIB


def test_expandable_segments(npu: Run) -> None:
    found = cases(npu(SCRIPT, "expandable", extra={"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}))[
        "expandable"
    ]
    assert found["expandable"]
    assert found["values"] == [0, 1, 2, 3, 4]
    assert found["held"]["allocated"] == about(150 * MIB, 5)
    assert found["emptied"]["allocated"] == about(60 * MIB, 2)
    assert found["emptied"]["reserved"] < found["held"]["reserved"]
    assert found["emptied"]["used"] == found["emptied"]["reserved"] + CONTEXT


def test_what_another_process_holds_is_seen_until_it_dies(simulator: Simulator, tmp_path: Path) -> None:
    env = simulator.environment(hbm_mib=1024, ledger=tmp_path / "ledger", home=tmp_path)

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(SCRIPT), "neighbour"],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )

    def told(process: subprocess.Popen[str]) -> int:
        assert process.stdout is not None
        return int(process.stdout.readline())

    def ask(process: subprocess.Popen[str]) -> int:
        assert process.stdin is not None
        process.stdin.write("?\n")
        return told(process)

    own = 202 * MIB + CONTEXT
    with start() as first, start() as second:
        assert {told(first), told(second)} <= {own, 2 * own}
        assert ask(first) == ask(second) == 2 * own
        second.kill()
        second.wait()
        # It said nothing to anybody, and holds nothing any more.
        assert ask(first) == own
        first.kill()
