"""The corpus of real files beside the project, where there is one: what is known of them must be said.

It is not part of this repository, so that these tests skip elsewhere; tests/corpus has files of our own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CORPUS = Path(__file__).parent.parent.parent.parent / "shared" / "corpus"
PREFIXES = ("M", "S", "P", "L", "N")
"""Memory series, npu-smi, profiles, msmemscope, logs, and numbers that are none."""


@pytest.mark.skipif(not (CORPUS / "check.py").exists(), reason=f"no corpus at {CORPUS}")
@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_checks_of_the_corpus_hold(prefix: str) -> None:
    folder = Path(sys.executable).parent
    path = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    if shutil.which("ascend-tui", path=path) is None:
        pytest.skip("the command ascend-tui is not installed")
    done = subprocess.run(
        [sys.executable, str(CORPUS / "check.py"), str(CORPUS), "--only", prefix],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
