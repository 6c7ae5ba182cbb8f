"""Numbers that are too large, by chip: the first 910 saturates with a register, later ones know inf."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from running import Run, cases

SCRIPT = Path(__file__).with_name("chips.py")
Told = dict[str, Any]

CASES = ("chip", "numbers", "register", "raw_register", "masked", "scaler")


@pytest.fixture(scope="module")
def processes(npu: Run) -> dict[str, subprocess.CompletedProcess[str]]:
    """Return how three processes ended, one a chip and one that was told to saturate, run two at a time."""
    with ThreadPoolExecutor(2) as pool:
        started = {
            "first 910": pool.submit(npu, SCRIPT, *CASES, "old_way", soc="Ascend910A"),
            "forced": pool.submit(npu, SCRIPT, *CASES, extra={"INF_NAN_MODE_FORCE_DISABLE": "1"}),
            "second 910": pool.submit(npu, SCRIPT, "chip", "numbers", "register", "scaler"),
        }
        return {name: one.result() for name, one in started.items()}


@pytest.fixture(scope="module")
def told(processes: dict[str, subprocess.CompletedProcess[str]]) -> dict[str, Told]:
    """Return what each of them said, by case."""
    return {
        name: {case: line["told"] for case, line in cases(done).items()} for name, done in processes.items()
    }


def saturates(told: Told) -> None:
    assert not told["chip"]["inf_nan"]
    assert told["numbers"] == {
        "half": "65504.0",
        "negative": "-65504.0",
        "float": "3.4028234663852886e+38",
        "nan": "0.0",
        "fits": "60000.0",
    }
    # Sticky, until it is cleared.
    assert told["register"] == [None, False, True, True, True, None, False]
    assert told["raw_register"] == [0, 1, 0, 1, 0]


def test_the_first_910_saturates(told: dict[str, Told]) -> None:
    assert told["first 910"]["chip"]["name"] == "Ascend910A"
    saturates(told["first 910"])


def test_the_second_910_saturates_when_it_is_told_to(told: dict[str, Told]) -> None:
    assert told["forced"]["chip"]["name"] == "Ascend910B3"
    saturates(told["forced"])


def test_the_second_910_knows_inf_and_nan(told: dict[str, Told]) -> None:
    second_910 = told["second 910"]
    assert second_910["chip"] == {"name": "Ascend910B3", "inf_nan": True}
    assert second_910["numbers"] == {
        "half": "inf",
        "negative": "-inf",
        "float": "inf",
        "nan": "nan",
        "fits": "60000.0",
    }
    said = second_910["register"][1]
    assert said.startswith("Unsupported api when soc_version >= Ascend910B1, please use npu_check_overflow")
    assert "ERR00007 PTA feature not supported" in said


@pytest.mark.parametrize("name", ["first 910", "forced"])
def test_a_mask_of_infinities_is_no_overflow(told: dict[str, Told], name: str) -> None:
    kept, flag = told[name]["masked"]["kept"], told[name]["masked"]["flag"]
    assert kept[0] == [1, 0]
    assert kept[1] == pytest.approx([0.26894142, 0.73105858])
    assert flag is False


@pytest.mark.parametrize("name", ["first 910", "forced"])
def test_the_scale_is_halved_though_every_gradient_is_finite(told: dict[str, Told], name: str) -> None:
    assert told[name]["scaler"] == {"scale": 2.0**33, "finite": True, "stepped": False}


def test_the_scale_is_halved_for_infinite_gradients(told: dict[str, Told]) -> None:
    assert told["second 910"]["scaler"] == {"scale": 2.0**33, "finite": False, "stepped": False}


def test_an_op_that_takes_the_old_way_fails_with_its_name(
    told: dict[str, Told], processes: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    said = "[cann_sim] op Conv2D went the old way (aclop), which is not simulated"
    assert said in processes["first 910"].stderr
    assert "the current working operator name is Conv2D" in told["first 910"]["old_way"]
    assert said in told["first 910"]["old_way"]
