"""A training or another program that is attached to, and what it shows of itself meanwhile."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ascend_tui.target import Target, read_target, socket_path

ROOT = Path(__file__).parent.parent
ENTRY = struct.Struct("<dd")
"""Begin and end of a step, as soak/training.py writes them."""
START_S = 180.0


class HarmError(Exception):
    """Say what an attach did to the target: the soak ends here."""


def until(done: Callable[[], object], timeout_s: float, pause_s: float = 0.002) -> bool:
    """Wait until `done()` is true; return whether it came to that."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if done():
            return True
        time.sleep(pause_s)
    return bool(done())


class Living:
    """A child process in a session and a folder of its own; use as a context.

    FOLDER in the command and the environment becomes that folder.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str] = os.environ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ascend-tui-soak-"))
        self.last_words = self.folder / "stderr"
        with open(self.last_words, "wb") as errors:
            self.process = subprocess.Popen(
                [word.replace("FOLDER", str(self.folder)) for word in command],
                cwd=ROOT,
                env={name: value.replace("FOLDER", str(self.folder)) for name, value in env.items()},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def __enter__(self) -> Living:
        return self

    def __exit__(self, *_: object) -> None:
        path = None
        with suppress(Exception):
            path = socket_path(self.target)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        if path is not None:
            path.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def target(self) -> Target:
        """What /proc says about it now."""
        return read_target(self.pid)

    def must_live(self) -> None:
        """Raise HarmError with its last words when it has ended."""
        code = self.process.poll()
        if code is not None:
            words = self.last_words.read_text(errors="replace")[-2000:]
            raise HarmError(f"the target ended with {code}: {words}")

    def hashes(self) -> dict[int, str]:
        """Return the hash at each step that was written whole so far."""
        path = self.folder / "hashes"
        text = path.read_text() if path.exists() else ""
        pairs = (line.split() for line in text.splitlines(keepends=True) if line.endswith("\n"))
        return {int(step): digest for step, digest in pairs}


class Training(Living):
    """One running soak/training.py; a twin repeats the steps of a leader and is attached to by nobody."""

    def __init__(self, device: str = "cpu", leader: Training | None = None, sleep_s: float = 0.012) -> None:
        command = [sys.executable, "-m", "soak.training", "FOLDER", "--device", device]
        if leader is not None:
            # The twin takes what the machine has left.
            command = ["nice", "-n", "5", *command, "--follow", str(leader.folder / "steps")]
            sleep_s = 0.0
        self._view: mmap.mmap | None = None
        super().__init__([*command, "--sleep", str(sleep_s)], environment(device))

    def __enter__(self) -> Training:
        return self

    def wait_for_start(self) -> None:
        """Wait until it trains."""
        if not until(lambda: self.count() > 20 or self.process.poll() is not None, START_S):
            raise HarmError("the training did not start")
        self.must_live()

    def count(self) -> int:
        """Return the number of finished steps."""
        path = self.folder / "steps"
        if self._view is None:
            if not path.exists() or path.stat().st_size == 0:
                return 0
            with path.open("rb") as file:
                self._view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        return int(struct.unpack_from("<Q", self._view, 0)[0])

    def steps(self, first: int, last: int) -> list[tuple[float, float]]:
        """Return when the steps number `first` to `last` began and ended (monotonic seconds)."""
        assert self._view is not None
        size = ENTRY.size
        return list(ENTRY.iter_unpack(self._view[8 + size * (first - 1) : 8 + size * last]))

    def must_go_on(self, steps: int = 2, timeout_s: float = 30.0) -> None:
        """Raise HarmError unless it makes so many steps more."""
        first = self.count()
        moved = until(lambda: self.count() >= first + steps or self.process.poll() is not None, timeout_s)
        self.must_live()
        if not moved:
            raise HarmError(f"no step has ended for {timeout_s:.0f} s (state {self.target.state})")

    def must_equal(self, twin: Training) -> int:
        """Return how many hashes are those of the twin; raises HarmError at the first other one."""
        ours, known = self.hashes(), twin.hashes()
        common = sorted(set(ours) & set(known))
        for step in common:
            if ours[step] != known[step]:
                raise HarmError(f"other bits than the undisturbed run from step {step} on")
        return len(common)

    def own_view(self) -> dict[str, Any]:
        """Return what it sees of us in itself, at the end of one of its steps."""
        found = self.folder / "answer"
        found.unlink(missing_ok=True)
        (self.folder / "question").touch()
        if not until(found.exists, 30):
            self.must_live()
            raise HarmError("the training answers no question within 30 s")
        return dict(json.loads(found.read_text()))


def environment(device: str) -> dict[str, str]:
    """Return the environment of a training on `device`: for an npu the simulated CANN."""
    if device == "cpu":
        # Where torch_npu is installed for the tests, `import torch` would fail for want of CANN.
        return {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    from tests.cann_sim.simulator import simulator, why_not

    reason = why_not()
    if reason is not None:
        raise SystemExit(f"no simulated NPU: {reason}")
    return simulator().environment(home=Path("FOLDER"))
