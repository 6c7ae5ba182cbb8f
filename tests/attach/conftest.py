"""Where the trainings of these tests run."""

from __future__ import annotations

import pytest
from trainings import CPU, Place


@pytest.fixture(scope="session", params=["cpu", "npu"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return the CPU and then the simulated NPU, whose trainings are shorter: they start twice as slowly."""
    if request.param == "cpu":
        return CPU
    return Place("npu:0", request.getfixturevalue("simulator"), tmp_path_factory.mktemp("home"))
