"""The text that starts the shim: what it does when it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ascend_tui.shim import AREA, payload

PROGRAM = """
import sys, threading
def refuse(self):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
before = set(vars(sys.modules["__main__"]))
exec(sys.stdin.read())
assert set(vars(sys.modules["__main__"])) - before <= {"before"}
print("goes on")
"""


def test_boot_that_cannot_start_a_thread_says_so_and_leaves_the_program_alone(tmp_path: Path) -> None:
    path = tmp_path / "private" / "1.sock"
    text = payload(str(path)).replace(AREA, "None")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=text, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "")
    assert "can't start new thread" in path.with_name("1.sock.error").read_text()
