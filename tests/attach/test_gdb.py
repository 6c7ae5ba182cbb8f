"""gdb, for who asks for it: it brings the shim in, is told of, and must leave nothing stopped."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from programs import RUNS, WAITS, detach, join, program, refusal
from trainings import needs_ptrace, until

from ascend_tui.attach import has_shim
from ascend_tui.inject import gdb

pytestmark = needs_ptrace
needs_gdb = pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")


@needs_gdb
def test_gdb_brings_the_shim_in_warns_and_lets_everything_go() -> None:
    with program("import ctypes\n" + RUNS) as one:
        attached = join(one, "gdb")
        assert (attached.method, attached.reason) == ("gdb", "asked for")
        assert attached.warning == gdb.WARNING
        assert attached.longest_stop_ms > 1
        assert one.is_left_alone()
        assert one.left() == [f"{one.pid}.sock"]
        # The two pages that gdb had the target map are given back.
        assert not any("mapped pages" in line for line in detach(attached))
        assert one.said_nothing()


@needs_gdb
def test_gdb_that_finds_no_running_python_leaves_a_call_that_does_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gdb, "RUN_S", 0.3)
    with program(WAITS) as one:
        assert "ran no Python" in refusal(one, "gdb")
        assert one.is_left_alone()
        one.go_on()
        time.sleep(0.2)
        assert not has_shim(one.target)
        assert one.left() == []
        assert one.said_nothing()


def fake_gdb(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = folder / "gdb"
    path.write_text(f"#!{sys.executable}\nimport os, signal, sys, time\npid = int(sys.argv[-3])\n{text}")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_gdb_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gdb(tmp_path, monkeypatch, "print('reading symbols', flush=True); time.sleep(60)")
    monkeypatch.setattr(gdb, "GDB_S", 0.3)
    with program(RUNS) as one:
        began = time.monotonic()
        assert "reading symbols" in refusal(one, "gdb")
        assert time.monotonic() - began < 10
        assert one.left() == []
        assert one.said_nothing()


def test_a_training_that_gdb_leaves_stopped_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gdb(tmp_path, monkeypatch, "os.kill(pid, signal.SIGSTOP); sys.exit('died')")
    monkeypatch.setattr(gdb, "LEAVE_S", 0.2)
    with program(RUNS) as one:
        assert "died" in refusal(one, "gdb")
        assert until(one.is_left_alone)
        assert one.said_nothing()


def test_a_training_that_gdb_still_holds_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It leaves a child that traces on.
    code = "import ctypes\nlibc = ctypes.CDLL(None)\n"
    code += "if os.fork(): time.sleep(0.3); sys.exit('died')\n"
    code += "libc.ptrace(0x4206, pid, None, None); libc.ptrace(0x4207, pid, None, None)\n"
    code += "open(sys.argv[0] + '.pid', 'w').write(str(os.getpid())); time.sleep(60)"
    fake_gdb(tmp_path, monkeypatch, code)
    monkeypatch.setattr(gdb, "LEAVE_S", 0.3)
    with program(RUNS) as one:
        try:
            text = refusal(one, "gdb")
            assert "has ended and left it stopped" in text
            assert "TracerPid" in text
        finally:
            os.kill(int((tmp_path / "gdb.pid").read_text()), signal.SIGKILL)
        assert until(one.is_left_alone)


def test_gdb_is_not_let_near_a_python_3_8() -> None:
    with program(RUNS) as one:
        one.target = dataclasses.replace(one.target, python="3.8")
        assert "Python 3.8" in refusal(one, "gdb")


def test_gdb_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with program(RUNS) as one:
        assert "gdb is not installed" in refusal(one, "gdb")
        assert join(one).method != "gdb"


def test_a_training_that_ends_under_gdb_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gdb(tmp_path, monkeypatch, "os.kill(pid, signal.SIGKILL); time.sleep(0.1); print('queued 0')")
    with program(RUNS) as one:
        assert "it has ended" in refusal(one, "gdb")
