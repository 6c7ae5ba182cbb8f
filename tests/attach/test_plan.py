"""A dry run: what an attach would do, on every kind of process, without a trace in any of them."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from programs import HASHES, PYTHON_314, RUNS, WAITS, Program, detach, join, needs_python_314, program
from trainings import needs_ptrace, threads_of, until

from ascend_tui.attach import plan, target_of
from ascend_tui.inject import choose
from ascend_tui.inject.plan import Plan
from ascend_tui.target import Refusal, RefusedError, read_target, socket_path

pytestmark = needs_ptrace
ORDER = ["reuse", "remote_exec", "thread", "pending", "gdb"]


def planned(one: Program, method: str = "auto") -> Plan:
    found = plan(one.target, method)
    assert isinstance(found, Plan), found
    assert [layer.layer for layer in found.layers] in (ORDER, ["reuse"])
    assert all(layer.reason for layer in found.layers)
    assert json.loads(json.dumps(found.as_json()))["layers"][0]["layer"] == "reuse"
    return found


def refused(pid: int, method: str = "auto") -> str:
    found = plan(read_target(pid), method)
    assert isinstance(found, Refusal), found
    return found.code


def possible(found: Plan) -> list[str]:
    return [layer.layer for layer in found.layers if layer.possible and layer.layer != "gdb"]


# What is said is what an attach then does.


@pytest.mark.parametrize("method", ["auto", "thread", "pending"])
def test_the_plan_is_what_an_attach_then_does(method: str) -> None:
    with program(RUNS) as one:
        assert until(lambda: choose.snapshot(one.pid).keys() - {one.pid})
        found = planned(one, method)
        assert found.socket == str(socket_path(one.target))
        assert (found.pid, found.title, found.python) == (one.pid, "-c", one.target.python)
        assert possible(found) == ["thread", "pending"]
        assert found.thread is not None
        assert str(found.thread.tid) in threads_of(one.pid)
        assert found.thread.name == Path(f"/proc/{one.pid}/task/{found.thread.tid}/comm").read_text().strip()
        if method != "pending":
            assert (found.thread.is_main, found.thread.waits_in) == (False, "futex")
        assert found.maps_bytes[0] > 256 * 1024
        assert found.maps_bytes[1] == 4096
        attached = join(one, method)
        assert (attached.method, attached.reason) == (found.chosen, found.reason)
        detach(attached)


@needs_python_314
def test_the_plan_for_a_new_python_says_which_layers_it_passes_over() -> None:
    with program(RUNS, python=PYTHON_314) as one:
        found = planned(one)
        assert (found.chosen, found.thread, found.maps_bytes) == ("remote_exec", None, (0, 0))
        assert possible(found) == ["remote_exec", "thread", "pending"]
    with program(WAITS, python=PYTHON_314) as one:
        assert until(lambda: choose.main_waits(one.pid))
        found = planned(one)
        assert found.chosen == "thread"
        assert found.reason.startswith("remote_exec passed over: the main thread waits in a native call; ")
        assert possible(found) == ["thread", "pending"]
        assert "it would run when that returns" in found.layers[3].reason
        assert refused(one.pid, "remote_exec") == "remote_exec"


def test_a_shim_that_is_there_is_used() -> None:
    with program(RUNS) as one:
        attached = join(one)
        found = planned(one, "thread")
        assert (found.chosen, found.thread) == ("reuse", None)
        detach(attached)


def test_a_lone_main_thread_gets_a_pending_call_wherever_it_is() -> None:
    with program("print('up', flush=True)\nwhile True: sum(range(1000))") as one:
        found = planned(one)
        assert found.chosen == "pending"
        assert "one thread" in found.reason
        assert found.thread is not None
        assert (found.thread.tid, found.thread.is_main, found.thread.waits_in) == (one.pid, True, "")
        assert refused(one.pid, "thread") == "no_usable_thread"


def test_gdb_is_planned_only_by_name_and_with_its_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with program(RUNS) as one:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert refused(one.pid, "gdb") == "gdb"
        assert planned(one).layers[4].reason == "gdb is not installed"
        (tmp_path / "gdb").write_text("#!/bin/sh\n")
        (tmp_path / "gdb").chmod(0o755)
        found = planned(one, "gdb")
        assert (found.chosen, found.maps_bytes) == ("gdb", (8192, 0))
        assert "stops all threads" in found.warning
        assert planned(one).chosen != "gdb"


# Nothing is touched.


@pytest.mark.parametrize("code", [RUNS, WAITS, HASHES], ids=["runs", "waits", "computes"])
def test_a_dry_run_leaves_no_trace(code: str) -> None:
    with program(code, "100000000") as one:
        assert until(lambda: choose.snapshot(one.pid).keys() - {one.pid})
        idle = min(choose.snapshot(one.pid).keys() - {one.pid})
        before = view(one, idle)
        for method in ("auto", "thread", "pending", "gdb"):
            plan(one.target, method)
        assert view(one, idle) == before
        assert one.said_nothing()


def view(one: Program, idle: int) -> tuple[object, ...]:
    """Return its memory map, its files with us, its threads, and how often one that only waits was woken."""
    status = Path(f"/proc/{one.pid}/task/{idle}/status").read_text().splitlines()
    switches = [line for line in status if "ctxt_switches" in line]
    return Path(f"/proc/{one.pid}/maps").read_text(), one.left(), threads_of(one.pid), switches


# Every kind of process that is refused.


def test_ourselves_and_the_kernel() -> None:
    assert refused(os.getpid()) == "own_process"
    if "kthreadd" in Path("/proc/2/stat").read_text() if os.path.exists("/proc/2/stat") else False:
        assert refused(2) == "kernel_thread"


def test_one_that_is_stopped_and_stays_so() -> None:
    with program(RUNS) as one:
        os.kill(one.pid, signal.SIGSTOP)
        assert until(lambda: read_target(one.pid).state == "T")
        assert refused(one.pid) == "stopped"
        assert read_target(one.pid).state == "T"


def test_one_that_has_ended() -> None:
    with program(RUNS) as one:
        one.process.kill()
        assert until(lambda: read_target(one.pid).state == "Z")
        assert refused(one.pid) == "zombie"
        one.process.wait()
        found = plan(one.target)
        assert isinstance(found, Refusal)
        assert found.code == "gone"
        with pytest.raises(RefusedError, match="no such process"):
            target_of(one.pid)


def test_one_that_is_no_python() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert refused(process.pid) == "not_python"
        process.kill()


def test_one_that_is_traced() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with program(RUNS) as one:
        read_end, write_end = os.pipe()
        tracer = os.fork()
        if not tracer:
            os.write(write_end, b"%d" % libc.ptrace(0x4206, one.pid, None, None))
            time.sleep(60)
            os._exit(0)
        assert os.read(read_end, 8) == b"0"
        assert refused(one.pid) == "traced"
        os.kill(tracer, signal.SIGKILL)
        os.waitpid(tracer, 0)
        os.close(read_end)
        os.close(write_end)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_one_of_another_user() -> None:
    with program(RUNS) as one:
        read_end, write_end = os.pipe()
        child = os.fork()
        if not child:
            os.setgroups([])
            os.setgid(12345)
            os.setuid(12345)
            found = plan(read_target(one.pid))
            os.write(write_end, found.code.encode() if isinstance(found, Refusal) else b"a plan")
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write_end)
        with os.fdopen(read_end) as file:
            assert file.read() == "other_user"


def test_one_of_32_bits(tmp_path: Path) -> None:
    with small_program(tmp_path / "python3.11") as pid:
        assert refused(pid) == "not_64bit"


@contextmanager
def small_program(path: Path) -> Iterator[int]:
    """Run a 32-bit ELF file of one instruction sequence: pause() for ever."""
    if os.uname().machine != "x86_64":
        pytest.skip("this machine code is of x86")
    code = b"\xb8\x1d\x00\x00\x00\xcd\x80\xeb\xf7"  # mov eax, 29; int 0x80; jmp to the start
    base, head = 0x08048000, 52 + 32
    elf = b"\x7fELF\x01\x01\x01" + bytes(9)
    elf += struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + head, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    size = head + len(code)
    elf += struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, 0x1000) + code
    path.write_bytes(elf)
    path.chmod(0o755)
    try:
        process = subprocess.Popen([str(path)])
    except OSError:
        pytest.skip("this kernel runs no 32-bit programs")
    try:
        time.sleep(0.1)
        if process.poll() is not None:
            pytest.skip("this kernel runs no 32-bit programs")
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_one_that_another_injector_works_on() -> None:
    with program(RUNS) as one:
        code = "import fcntl, os, sys, time\n"
        code += "fcntl.flock(os.open('/proc/' + sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)\n"
        code += "print('up', flush=True); time.sleep(60)"
        with subprocess.Popen([sys.executable, "-c", code, str(one.pid)], stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            assert refused(one.pid) == "busy"
            other.kill()
        assert planned(one)
