"""A process that is on its way out: an attach neither keeps it, nor kills it, nor writes into its log."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from programs import PYTHON_314
from trainings import kill_group, needs_ptrace, until

from ascend_tui import shim
from ascend_tui.inject import choose, inject
from ascend_tui.target import RefusedError, read_target, socket_path

pytestmark = needs_ptrace

# `work` needs no module: it is called when there may be none any more.
CODE = """
import atexit, os, sys, threading, time
threading.Thread(target=threading.Event().wait, daemon=True).start()
def work(sleep=time.sleep, write=os.write, turns=range(100)):
    write(1, b"ending\\n")
    for _ in turns:
        sleep(0.01)
class Late:
    def __init__(self): self.work = work
    def __del__(self): self.work()
if sys.argv[1] == "atexit": atexit.register(work)
elif sys.argv[1] == "modules": keep = Late()
elif sys.argv[1] == "threads": threading.Thread(target=work).start()
else:
    # As the libraries of a device do it, when there is no interpreter any more.
    import ctypes
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit(libc.usleep, ctypes.c_void_p(1000000), None)
    os.write(1, b"ending\\n")
"""


def python_38() -> str:
    # What pyenv puts on PATH is a script that starts one of its versions, or says that it has none.
    found = [*map(str, Path.home().glob(".pyenv/versions/3.8*/bin/python3.8")), shutil.which("python3.8")]
    return next((path for path in found if path), "")


@contextmanager
def ending(python: str, kind: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [python, "-c", CODE, kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ending\n"
        assert until(lambda: choose.snapshot(process.pid).keys() - {process.pid})
        yield process
    finally:
        kill_group(process)


def ends_well(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    assert process.wait(20) == 0
    assert process.stderr.read() == ""


@pytest.mark.parametrize("method", ["thread", "pending"])
@pytest.mark.parametrize("kind", ["threads", "atexit", "modules"])
def test_a_process_that_is_ending_ends_as_it_would_have(kind: str, method: str) -> None:
    with ending(sys.executable, kind) as process:
        target = read_target(process.pid)
        if kind == "modules":
            with pytest.raises(RefusedError) as caught:
                inject(target, shim.payload(), method)
            assert caught.value.refusal.code == "ending"
        else:
            inject(target, shim.payload(), method)
        ends_well(process)
        for name in ("", ".error"):
            path = socket_path(target)
            path.with_name(path.name + name).unlink(missing_ok=True)


def pythons() -> Iterator[str]:
    yield sys.executable
    for version in ("3.8", "3.12"):
        yield from sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")))[:1]
    if PYTHON_314:
        yield PYTHON_314


@pytest.mark.parametrize("python", list(pythons()), ids=lambda path: path.rpartition("python")[2])
def test_a_process_whose_interpreter_has_ended_is_not_called(python: str) -> None:
    # Unguarded, a pending call kills 3.8 to 3.12 here: measured, the exit status is that of SIGSEGV.
    for method in ("thread", "pending"):
        with ending(python, "libraries") as process:
            target = read_target(process.pid)
            # It has said so while Python was still running: wait until main is in the C library's handler.
            assert until(lambda: choose.waits_in(process.pid, process.pid) == "clock_nanosleep")
            with pytest.raises(RefusedError) as caught:
                inject(target, shim.payload(), method)
            # 3.8 looks at the main thread, and this wait of it cannot be repeated exactly.
            codes = ("ending", "gone", "no_usable_thread") if target.python == "3.8" else ("ending",)
            assert caught.value.refusal.code in codes
            ends_well(process)


@pytest.mark.skipif(not python_38(), reason="no Python 3.8 on PATH or below ~/.pyenv")
@pytest.mark.parametrize("kind", ["threads", "atexit", "modules"])
def test_python_3_8_that_is_ending_gets_no_pending_call(kind: str) -> None:
    # It would write through a NULL pointer: measured, the process dies of it.
    with ending(python_38(), kind) as process:
        time.sleep(0.05)
        with pytest.raises(RefusedError) as caught:
            inject(read_target(process.pid), shim.payload(), "pending")
        assert caught.value.refusal.code == "ending"
        ends_well(process)
