"""What the tests of the whole way share: trainings, sessions that watch them, and the command line."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ascend_tui.frame import Frame, TargetFrame, as_json
from ascend_tui.session import Session
from ascend_tui.target import Target, read_target, socket_path
from tests.cann_sim.simulator import Simulator

EVERY = 10
"""Steps between two hashes of watched.py."""
START_S = 60.0
PROGRAM = Path(__file__).with_name("watched.py")
COMMAND = [sys.executable, "-c", "import sys; from ascend_tui.cli import main; sys.exit(main())"]
PLAIN = "import threading, time\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
PLAIN += "while True: time.sleep(0.005)\n"


def why_not_here() -> str | None:
    """Return why no training can be attached to on this machine, or None."""
    if platform.machine() not in ("x86_64", "aarch64"):
        return f"no injector for {platform.machine()}"
    probe = subprocess.Popen(["sleep", "5"])
    try:
        os.close(os.open(f"/proc/{probe.pid}/mem", os.O_RDWR))
    except PermissionError:
        return "this machine does not allow tracing"
    finally:
        probe.kill()
        probe.wait()
    return None


WHY_NOT = why_not_here()
needs_ptrace = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


@dataclass(frozen=True)
class Place:
    """Where a training runs: the CPU, or a simulated NPU with a home for the log files of its CANN."""

    device: str
    simulator: Simulator | None = None
    home: Path | None = None

    def environment(self) -> dict[str, str]:
        """Return the environment of a training here."""
        if self.simulator is None:
            return dict(os.environ)
        return self.simulator.environment(home=self.home)

    @property
    def is_npu(self) -> bool:
        """Whether torch_npu is in it."""
        return self.simulator is not None


CPU = Place("cpu")


class Training:
    """One training as a child process; use as a context manager."""

    def __init__(self, folder: Path, *arguments: str, python_path: str = "", place: Place = CPU) -> None:
        self.folder = folder
        self.place = place
        folder.mkdir(parents=True, exist_ok=True)
        env = place.environment()
        if python_path:
            env["PYTHONPATH"] = python_path
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), "--device", place.device, *arguments],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self.process.pid

    def __enter__(self) -> Training:
        assert until(lambda: self.hashes() or self.process.poll() is not None, START_S)
        assert self.process.poll() is None, "the training did not start"
        return self

    def __exit__(self, *_: object) -> None:
        # With its workers, which otherwise look for their parent every five seconds only.
        kill_group(self.process)

    @property
    def target(self) -> Target:
        """What /proc says about it now."""
        return read_target(self.pid)

    def hashes(self) -> dict[int, str]:
        """Return the hash at each step that was written whole so far."""
        path = self.folder / "hashes"
        text = path.read_text() if path.exists() else ""
        pairs = (line.split() for line in text.splitlines(keepends=True) if line.endswith("\n"))
        return {int(step): digest for step, digest in pairs}

    def step(self) -> int:
        """Return the last step with a hash."""
        return max(self.hashes(), default=0)

    def goes_on(self, steps: int = 2 * EVERY) -> bool:
        """Wait until it has made so many steps more; False when it stands still or ended."""
        start = self.step()
        return until(lambda: self.step() >= start + steps or self.process.poll() is not None, 30) and (
            self.process.poll() is None
        )

    def own_view(self) -> dict[str, Any]:
        """Return what it sees of us in itself, at the end of one of its steps."""
        answer = self.folder / "answer"
        answer.unlink(missing_ok=True)
        (self.folder / "question").touch()
        assert until(answer.exists, 30), "the training answers no question"
        return dict(json.loads(answer.read_text()))

    def outside_view(self) -> dict[str, Any]:
        """Return what the kernel shows of us: descriptors, code that no file explains, the socket's path."""
        path = str(socket_path(self.target))
        sockets = Path("/proc/net/unix").read_text().splitlines()
        ours = [f"socket:[{line.split()[6]}]" for line in sockets if line.endswith(" " + path)]
        return {
            "sockets": len([one for one in descriptors(self.pid) if one in ours]),
            "executable": anonymous_code(self.pid),
            "path": os.path.exists(path),
        }


def same_bits(training: Training) -> None:
    """Assert that a training computed what an undisturbed one computes, up to this moment."""
    seen = training.hashes()
    assert len(seen) > 3
    known = undisturbed(max(seen), training.place)
    wrong = [step for step, digest in seen.items() if known[step] != digest]
    assert not wrong, f"other bits from step {min(wrong)} on"


def undisturbed(last: int, place: Place) -> dict[int, str]:
    """Return the hash at each step up to `last` and beyond, computed once for all workers of a test run."""
    path = Path(os.environ[KNOWN]) / place.device.partition(":")[0]
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = {int(step): digest for step, digest in map(str.split, file)}
        if last > max(known, default=0):
            # On the CPU several modules ask, each for a little more.
            steps = last if place.is_npu else max(2000, last + 200)
            with tempfile.TemporaryDirectory() as folder:
                # Loaders' workers change nothing in the numbers, only the time they take.
                quick = ("--steps", str(steps), "--sleep", "0", "--workers", "0")
                calm = Training(Path(folder), *quick, place=place)
                assert calm.process.wait(100) == 0
                known = calm.hashes()
            file.truncate(0)
            file.writelines(f"{step} {digest}\n" for step, digest in known.items())
    return known


KNOWN = "ASCEND_TESTS_UNDISTURBED"
"""The variable that names the folder of these hashes, set in conftest.py."""


def until(done: Callable[[], object], timeout_s: float = 10.0) -> bool:
    """Wait until `done()` is true, asking a hundred times a second; return whether it came to that."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if done():
            return True
        time.sleep(0.01)
    return bool(done())


def kill_group(process: subprocess.Popen[Any]) -> None:
    """End a process of `start_new_session` and all it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    sweep(process.pid)


def sweep(pid: int) -> None:
    """Remove the socket of a killed shim; in a container there is a number behind each of its ids."""
    for name in (f"{pid}.sock", f"{pid}-*.sock"):
        for path in Path("/tmp").glob(f"ascend-tui-{os.geteuid()}*/{name}"):
            path.unlink(missing_ok=True)


@contextmanager
def plain(code: str = PLAIN, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python program without torch: the shim needs none, and it starts a hundred times faster."""
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], start_new_session=True)
    try:
        assert until(lambda: read_target(process.pid).python is not None)
        assert until(lambda: len(threads_of(process.pid)) > 1 or process.poll() is not None)
        yield process
    finally:
        kill_group(process)


def threads_of(pid: int) -> list[str]:
    """Return the ids of a process's threads; they have names of their own from Python 3.14 on only."""
    return os.listdir(f"/proc/{pid}/task")


def descriptors(pid: int | str = "self") -> list[str]:
    """Return what the descriptors of a process lead to."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
        except OSError:
            continue
    return sorted(found)


def anonymous_code(pid: int) -> list[str]:
    """Return the executable mappings that no file explains."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [line for line in lines if "x" in line.split()[1] and len(line.split()) == 5]


class Watcher:
    """A session and the frames it delivered; use as a context manager."""

    def __init__(self, *targets: Target, plugins: Sequence[Any] = (), **options: Any) -> None:
        self.frames: list[Frame] = []
        self.session = Session(plugins, **{"tick_s": 0.1, **options})
        self.session.add(*targets)

    def __enter__(self) -> Watcher:
        self.session.start(self.frames.append)
        return self

    def __exit__(self, *_: object) -> None:
        self.session.stop()

    def frame(self, target: Target) -> TargetFrame | None:
        """Return the newest frame of a target."""
        for one in self.frames[-1].targets if self.frames else ():
            if one.status.id == target.id:
                return one
        return None

    def until(
        self, target: Target, holds: Callable[[TargetFrame], bool], timeout_s: float = 20.0
    ) -> TargetFrame:
        """Wait for a frame of `target` for which `holds`; return it."""
        begin = 0
        found: list[TargetFrame] = []

        def look() -> bool:
            nonlocal begin
            while begin < len(self.frames):
                for one in self.frames[begin].targets:
                    if one.status.id == target.id and holds(one):
                        found.append(one)
                        return True
                begin += 1
            return False

        begin = max(0, len(self.frames) - 1)
        assert until(look, timeout_s), as_json(self.frame(target))
        return found[0]

    def state(self, target: Target, *states: str, timeout_s: float = 20.0) -> TargetFrame:
        """Wait until `target` is in one of the states."""
        return self.until(target, lambda one: one.status.state in states, timeout_s)

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call a method of the session that ends in an outcome; return the outcome."""
        told: list[Any] = []
        getattr(self.session, name)(*arguments, told.append)
        assert until(lambda: told, 20), f"{name} got no answer"
        return told[0]


def cli(
    *arguments: str, env: Mapping[str, str] | None = None, timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run the command line with captured output, and no terminal."""
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def start_cli(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start the command line; its stdout and stderr are pipes."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def strict(text: str) -> list[dict[str, Any]]:
    """Parse JSON lines as strictly as the standard does: NaN and Infinity are none."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    lines = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    assert all(isinstance(line, dict) for line in lines)
    return lines
