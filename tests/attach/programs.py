"""Small programs to attach to, what is seen of them from outside, and Pythons that are not our own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from trainings import kill_group, threads_of, until

from ascend_tui.attach import Attached, attach
from ascend_tui.target import RefusedError, Target, read_target, socket_path

ROOTFS_VARIABLE = "ASCEND_TUI_TEST_ROOTFS"
# A fixture takes such variables out of the environment: read before it does.
ROOTFS = os.environ.get(ROOTFS_VARIABLE, "")

IDLE = "import sys, threading, time\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
RUNS = IDLE + "print('up', flush=True)\nwhile True: time.sleep(0.002)"
# Waits in one native call until a line comes, then runs Python again.
WAITS = IDLE + "print('up', flush=True)\nsys.stdin.readline()\nprint('on', flush=True)\n"
WAITS += "while True: time.sleep(0.002)"
# Computes without the interpreter's lock, and runs no Python meanwhile.
HASHES = IDLE + "import hashlib\nprint('up', flush=True)\n"
HASHES += "hashlib.pbkdf2_hmac('sha256', b'x', b'y', int(sys.argv[1]))\nprint('on', flush=True)\n"
HASHES += "while True: time.sleep(0.002)"


def _pythons_314() -> Iterator[str]:
    yield shutil.which("python3.14") or ""
    yield from (str(path) for path in Path("~/.pyenv/versions").expanduser().glob("3.14*/bin/python"))
    # Of a folder with another system in it only what runs without a change of root directory.
    yield from (str(path) for path in Path(ROOTFS or "/nowhere").glob("usr/*/python3.14"))


def _runs(python: str) -> bool:
    command = [python, "-c", "import sys; sys.remote_exec"]
    return bool(python) and subprocess.run(command, capture_output=True, check=False).returncode == 0


PYTHON_314 = next(filter(_runs, _pythons_314()), "")
needs_python_314 = pytest.mark.skipif(
    not PYTHON_314, reason=f"no Python 3.14 on PATH, of pyenv, or in the folder named by {ROOTFS_VARIABLE}"
)


@contextmanager
def program(
    code: str, *arguments: str, python: str = sys.executable, command: Sequence[str] = (), **more: Any
) -> Iterator[Program]:
    """Run a program whose output can be looked at; it is up when this returns."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(
        [*(command or [python]), "-c", code, *arguments], text=True, start_new_session=True, **pipes, **more
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n", process.stderr
        yield Program(process)
    finally:
        kill_group(process)


class Program:
    """A running program and what is seen of it from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid
        self.target: Target = read_target(process.pid)

    def go_on(self) -> None:
        """Let a program that waits for a line run Python again."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.has_gone_on()

    def has_gone_on(self) -> None:
        """Wait until it says that it runs Python again."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "on\n"

    def said_nothing(self) -> bool:
        """End it, and tell whether it wrote nothing to its stderr."""
        assert self.process.stderr is not None
        assert self.process.poll() is None
        self.process.kill()
        text = self.process.stderr.read()
        assert text == ""
        return True

    def left(self) -> list[str]:
        """Return the names of its files in the folder of the socket."""
        folder = socket_path(self.target).parent
        names = os.listdir(folder) if folder.exists() else []
        return sorted(name for name in names if name.startswith((f"{self.pid}.", f"{self.pid}-")))

    def is_left_alone(self) -> bool:
        """Tell whether nobody traces it and no thread of it is stopped."""
        states = []
        for tid in threads_of(self.pid):
            states.append(Path(f"/proc/{self.pid}/task/{tid}/stat").read_text().rpartition(")")[2].split()[0])
        status = Path(f"/proc/{self.pid}/status").read_text()
        return "TracerPid:\t0\n" in status and not {"t", "T"} & set(states)


def join(one: Program, method: str = "auto") -> Attached:
    return attach(one.target, name="test", writable=True, method=method)


def refusal(one: Program, method: str) -> str:
    with pytest.raises(RefusedError) as caught:
        join(one, method)
    return caught.value.refusal.english()


def detach(attached: Attached) -> list[str]:
    path = socket_path(attached.client.target)
    residue = list(attached.client.request("detach")["residue"])
    attached.client.close()
    assert until(lambda: not path.exists())
    return residue
