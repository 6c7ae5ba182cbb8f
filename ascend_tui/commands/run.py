"""`ascend-tui run -- CMD`: start a training with the shim inside, without ptrace, and watch it."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ascend_tui import shim
from ascend_tui.attach import has_shim, target_of
from ascend_tui.commands import OK, REFUSED, USAGE
from ascend_tui.commands.output import say
from ascend_tui.commands.watch import Joining, Watch, watch
from ascend_tui.config import Config
from ascend_tui.inject.launch import prepare
from ascend_tui.rundir import RunFolder, default_root
from ascend_tui.target import RefusedError, Target, is_launcher, ranks_below

UNCACHED = ("PYTORCH_NO_NPU_MEMORY_CACHING", "PYTORCH_NO_CUDA_MEMORY_CACHING")
NO_REUSE = (
    "reuse is off for the whole run: each block of NPU and CUDA memory comes from the driver and goes back "
    "there, which is slow; torch counts none, so the curve is the whole card's; a CPU training is unchanged"
)
START_S = 30.0
TELL_S = 15.0


def run(
    command: Sequence[str], how: Watch, config: Config, allow_ptrace: bool = False, no_reuse: bool = False
) -> int:
    """Run `command` with the shim inside it; its exit code is ours when it ends by itself.

    `no_reuse` switches the caching allocators off for its whole life, which only the environment of its start
    can do on an NPU.

    What it starts gets a shim too: of a launcher, every rank is watched. Its output goes to a file while the
    screen has the terminal, and to stderr with --headless.
    """
    if not command:
        say("say what to run: ascend-tui run -- python train.py")
        return USAGE
    place = Path(tempfile.mkdtemp(prefix="ascend-tui-run-"))
    try:
        environment = prepare(os.environ, shim.payload(), place, allow_ptrace)
        if no_reuse:
            environment.update(dict.fromkeys(UNCACHED, "1"))
            say(NO_REUSE)
        log = None if how.headless else _log(config)
        try:
            child = start(command, environment, log)
        except OSError as error:
            say(f"cannot run {command[0]}: {error.strerror}; check the name and the PATH")
            return 127
        code = _watch(child, how, config)
    finally:
        # Children of the training that start later would miss the payload, so it stays as long as we do.
        shutil.rmtree(place, ignore_errors=True)
    return code


def _log(config: Config) -> Path:
    path = RunFolder(default_root(config.run_root), os.getpid()).path("output", "stdout.log")
    say(f"its output goes to {path}")
    return path


def start(command: Sequence[str], environment: dict[str, str], log: Path | None) -> subprocess.Popen[bytes]:
    """Start a child whose output is kept off our stdout, which is data."""
    output: IO[bytes] | int = sys.stderr.fileno() if log is None else log.open("ab")
    return subprocess.Popen(
        list(command), env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
    )


def trainings(pid: int) -> list[Target]:
    """Return what there is to watch of a command that was started with the shim: its ranks, else itself."""
    ranks = ranks_below(pid)
    try:
        found = [target for _, target in ranks] if ranks else [target_of(pid)]
    except RefusedError:
        return []
    return [one for one in found if one.python is not None and not is_launcher(one) and has_shim(one)]


def _watch(child: subprocess.Popen[bytes], how: Watch, config: Config) -> int:
    started = time.monotonic()
    tell_at = started + TELL_S
    while child.poll() is None:
        found = trainings(child.pid)
        if found:
            joining = Joining(lambda: trainings(child.pid), lambda: child.poll() is not None)
            # What we start ourselves is ours to ask.
            watch(found, how, dataclasses.replace(config, readonly=False), joining)
            return _end(child)
        now = time.monotonic()
        launches = _is_launching(child.pid)
        if now - started > START_S and not launches:
            say(f"no shim appeared in process {child.pid} within {START_S:.0f} s: is it Python? It runs on")
            child.wait()
            return REFUSED
        if now > tell_at and launches:
            tell_at = now + TELL_S
            say(f"process {child.pid} is a launcher; waiting for its ranks ({now - started:.0f} s)")
        time.sleep(0.02)
    say(f"the command ended with {child.returncode} before the shim was up")
    return _code(child.returncode)


def _is_launching(pid: int) -> bool:
    try:
        return is_launcher(target_of(pid))
    except RefusedError:
        return False


def _end(child: subprocess.Popen[bytes]) -> int:
    if child.poll() is None:
        say(f"the training runs on as process {child.pid}; stop it with: kill {child.pid}")
        return OK
    return _code(child.returncode)


def _code(returncode: int) -> int:
    # A shell shows a death by signal as 128 + its number.
    return 128 - returncode if returncode < 0 else returncode


def stop(child: subprocess.Popen[bytes]) -> None:
    """End a child of ours, politely first."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(5.0)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
