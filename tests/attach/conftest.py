"""Where the trainings of these tests run."""

from __future__ import annotations

import os

import pytest
from trainings import CPU, KNOWN, Place


@pytest.fixture(scope="session", autouse=True)
def _undisturbed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give all workers of this run one folder for what undisturbed trainings compute."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "undisturbed"
    folder.mkdir(exist_ok=True)
    os.environ[KNOWN] = str(folder)


@pytest.fixture(scope="session", params=["cpu", "npu"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return the CPU and then the simulated NPU, whose trainings are shorter: they start twice as slowly."""
    if request.param == "cpu":
        return CPU
    return Place("npu:0", request.getfixturevalue("simulator"), tmp_path_factory.mktemp("home"))
