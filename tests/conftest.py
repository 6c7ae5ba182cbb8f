"""What several test folders share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ascend_tui.target import TargetId
from tests.cann_sim.simulator import Simulator, simulator, why_not

ROOT = Path(__file__).parent.parent
# torch_npu is installed for the simulated NPU; without CANN it would stop every other `import torch`.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"


@pytest.fixture
def root() -> Path:
    """Return the folder of the project."""
    return ROOT


@pytest.fixture(scope="session", name="simulator")
def _simulator() -> Simulator:
    """Return the simulated CANN, built on first use; skips where it cannot be."""
    reason = why_not()
    if reason is not None:
        pytest.skip(f"no simulated NPU: {reason}")
    return simulator()


@pytest.fixture
def target() -> TargetId:
    """Return the name of a process that no test ever touches."""
    return TargetId(4_000_000, 1234)


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Keep the user's own settings and state folder out of every test."""
    for name in [name for name in os.environ if name.startswith("ASCEND_TUI_")]:
        monkeypatch.delenv(name)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path_factory.getbasetemp() / name.lower()))
