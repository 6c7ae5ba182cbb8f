"""Streams keep order and time, so that torch_npu's events and its stream sanitizer mean something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from running import Run, cases

SCRIPT = Path(__file__).with_name("streams.py")
COSTS = "aclnnMm=20ms;aclnnInplaceFillScalar=50ms"
WORK_MS = 5 * 20


@pytest.fixture(scope="module")
def told(npu: Run) -> dict[str, dict[str, Any]]:
    return cases(npu(SCRIPT, costs=COSTS))


def test_work_is_launched_and_waited_for(told: dict[str, dict[str, Any]]) -> None:
    found = told["order_and_time"]
    assert (found["early"], found["late"]) == (False, True)
    assert found["elapsed_ms"] >= WORK_MS
    assert found["share_of_the_wait"] > 0.5
    assert found["sum"] == 64


def test_two_streams_work_at_the_same_time(told: dict[str, dict[str, Any]]) -> None:
    found = told["overlap"]
    assert found["second_starts_ms_before_first_ends"] > 0
    assert all(one >= WORK_MS for one in found["busy_ms"])


def test_a_race_is_real(told: dict[str, dict[str, Any]]) -> None:
    assert told["race"]["with_a_wait"] == 7
    assert told["race"]["without"] == 0


def test_the_sanitizer_of_torch_npu_finds_it(told: dict[str, dict[str, Any]]) -> None:
    found = told["found_by_the_sanitizer"]
    assert found["kind"] == "CUDASanitizerErrors"
    (said,) = found["said"]
    assert "CSAN detected a possible data race on tensor with data pointer" in said
    assert "Previous access by stream" in said


def test_a_wait_lets_other_threads_go_on(told: dict[str, dict[str, Any]]) -> None:
    assert told["released_gil"]["ticks_while_waiting"] > 10
