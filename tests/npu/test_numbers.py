"""What stock torch computes on the simulated NPU, against the CPU: layers, functions, whole trainings."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from running import Run, cases

SCRIPT = Path(__file__).with_name("arithmetic.py")

# All else is equal bit for bit.  AdamW divides by the root of tiny squares, and so makes of the last bit of a
# gradient what is seen here after six steps.
BACKWARD_OF_MATMUL = "torch_npu's own backward of a product with a transposed matrix orders it otherwise"
ONE_GELU = "torch_npu calls the same op whichever approximation is asked for"
PLAIN_FORMULA = "torch_npu writes attention out here, where a CPU has a fused kernel"
FLOATS = "fused optimizers are given float32 by torch_npu, and compute with Python's float64 on a CPU"
AUTOCAST = "other ops are cast on a CPU"
WITHIN = {
    "gelu by tanh": (1e-3, ONE_GELU),
    "attention shifted": (2e-6, PLAIN_FORMULA),
    "attention of odd heads": (2e-6, PLAIN_FORMULA),
    "gpt": (1e-3, BACKWARD_OF_MATMUL),
    "gpt foreach": (1e-3, BACKWARD_OF_MATMUL),
    "gpt amsgrad": (1e-3, BACKWARD_OF_MATMUL),
    "gpt untied": (1e-3, BACKWARD_OF_MATMUL),
    "gpt checkpoint": (1e-3, BACKWARD_OF_MATMUL),
    "gpt sgd": (1e-5, BACKWARD_OF_MATMUL),
    "gpt sgd fused": (1e-5, BACKWARD_OF_MATMUL),
    "gpt fused": (1e-3, FLOATS),
    "gpt sdpa untied fused": (1e-3, FLOATS),
    "half gpt": (0.05, AUTOCAST),
    "half gpt sdpa": (0.05, AUTOCAST),
    "half gpt by torch_npu": (0.05, AUTOCAST),
    "bfloat16 gpt": (0.05, AUTOCAST),
    "bfloat16 gpt sdpa": (0.05, AUTOCAST),
    "bfloat16 images": (0.05, AUTOCAST),
}
KEPT = ("dropout", "attention dropout", "random numbers", "files", "checkpointing")
GROUPS = ("layers", "functions", "trainings", "mixed", *(f"state:{name}" for name in KEPT), "missing")
SATURATING = ("mlp sgd", "mlp adam", "gpt", "gpt foreach", "gpt fused", "gpt sdpa")

Done = subprocess.CompletedProcess[str]
Told = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def told(npu: Run) -> Told:
    """Return what one process said of all cases."""
    return cases(npu(SCRIPT, *GROUPS))


@pytest.fixture(scope="module")
def on_910a(npu: Run) -> Done:
    """Return a process that ran some on a chip that saturates, and at last failed."""
    asked = (*(f"trainings:{name}" for name in SATURATING), "mixed:half gpt", "state:saturation", "failing")
    return npu(SCRIPT, *asked, soc="Ascend910A")


@pytest.fixture(scope="module")
def told_by_910a(on_910a: Done) -> Told:
    """Return what it said."""
    return cases(on_910a)


def too_far(told: Told, within: dict[str, tuple[float, str]]) -> dict[str, Any]:
    """Return the cases that failed, or are further from the CPU than they may be."""
    return {
        name: one
        for name, one in told.items()
        if "error" in one or one.get("apart", 0) > within.get(name, (0, ""))[0]
    }


def test_every_number_is_that_of_the_cpu_or_as_near_as_is_known(told: Told) -> None:
    compared = {name for name, one in told.items() if "apart" in one}
    assert too_far(told, WITHIN) == {}
    assert len(compared) > 120
    assert set(WITHIN) <= compared


@pytest.mark.parametrize("name", KEPT)
def test_state_is_kept(told: Told, name: str) -> None:
    assert all(told[name]["holds"]), told[name]


def test_an_op_that_is_not_simulated_fails_with_its_name(told: Told) -> None:
    said = told["missing"]
    assert "call aclnnLinalgQr failed, error code is 561103" in said["aclnn"]
    assert "EZ9903: [cann_sim] op aclnnLinalgQr is not simulated" in said["aclnn"]
    assert "current working operator name is LpNormReduceV2" in said["aclop"]
    assert "[cann_sim] op LpNormReduceV2 went the old way (aclop), which is not simulated" in said["aclop"]


def test_a_chip_that_saturates_trains_to_the_same_numbers(told_by_910a: Told) -> None:
    within = {**WITHIN, "gpt sdpa": (1e-3, PLAIN_FORMULA)}
    assert too_far(told_by_910a, within) == {}
    assert set(SATURATING) <= set(told_by_910a)


def test_a_chip_that_saturates_clamps_and_tells(told_by_910a: Told) -> None:
    assert all(told_by_910a["saturation"]["holds"]), told_by_910a["saturation"]


def test_a_kernel_that_cannot_compute_kills_the_device_not_the_process(
    on_910a: Done, told_by_910a: Told
) -> None:
    assert "error code is 507015" in told_by_910a["failing"]["said"]
    assert (
        "[cann_sim] aclnnIndex failed: index 7 is out of bounds for dimension 0 with size 3" in on_910a.stderr
    )
