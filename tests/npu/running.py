"""What the tests of the simulated NPU share."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

Run = Callable[..., subprocess.CompletedProcess[str]]
"""Run Python code, or a script, to its end on the simulated NPU: see the fixture `npu`."""


def cases(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """Return what a script said, by its lines' `case`."""
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["case"]: line for line in lines}
