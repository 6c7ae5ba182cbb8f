"""Running Python on the simulated NPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import Run

from tests.cann_sim.simulator import Simulator

AT_ONCE = Path(__file__).with_name("at_once.py")


@pytest.fixture(scope="session")
def npu(simulator: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a call that runs Python code, or a script, to its end on the simulated NPU.

    `extra` are environment variables; other keywords are those of `Simulator.environment`.
    """

    def run(
        code: str | Path, *arguments: str, extra: dict[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        options.setdefault("home", tmp_path_factory.mktemp("home"))
        given = [str(AT_ONCE), str(code)] if isinstance(code, Path) else ["-c", code]
        return subprocess.run(
            [sys.executable, *given, *arguments],
            env={**simulator.environment(**options), **(extra or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=110,
        )

    return run
