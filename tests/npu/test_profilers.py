"""One record a launched kernel, and both profilers run on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from running import Run, cases

SCRIPT = Path(__file__).with_name("profilers.py")


@pytest.fixture(scope="module")
def told(npu: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return cases(npu(SCRIPT, str(tmp_path_factory.mktemp("profiles")), costs="aclnnMm=3ms"))


def test_mspti_has_one_record_a_kernel(told: dict[str, dict[str, Any]]) -> None:
    found = told["mspti"]
    assert found["codes"] == [0] * 7
    records = found["records"]
    # Ones, three products, an addition, one in place; what was launched after Disable is not there.
    assert [one["name"].split("_")[0] for one in records] == [
        "aclnnInplaceOne",
        "aclnnMm",
        "aclnnMm",
        "aclnnMm",
        "aclnnAdd",
        "aclnnInplaceAdd",
    ]
    assert [one["type"] for one in records[1:5]] == ["KERNEL_AICORE"] * 3 + ["KERNEL_AIVEC"]
    assert {one["end_ns"] - one["start_ns"] for one in records[1:4]} == {3_000_000}
    assert len({one["stream"] for one in records}) == 1
    assert all(one["kind"] == 2 and one["device"] == 0 for one in records)
    # In order, and never two at once on a stream.
    assert all(first["end_ns"] <= second["start_ns"] for first, second in zip(records, records[1:]))
    assert len({one["correlation"] for one in records}) == len(records)


def test_torch_profiler_shows_kernels(told: dict[str, dict[str, Any]]) -> None:
    found = told["torch_profiler"]
    assert found["kernels"]["aclnnMm_MmAiCore_Mm"] == 3
    assert found["mm_us"] == [3000.0] * 3
    assert "aten::mm" in found["host"]


def test_a_capture_of_one_step_by_torch_npus_profiler(told: dict[str, dict[str, Any]]) -> None:
    found = told["one_step"]
    assert found["captures"] == 1
    assert "operator_details.csv" in found["files"]
    assert "aten::mm" in found["names"]
    assert any("Dequeue" in one for one in found["names"])
