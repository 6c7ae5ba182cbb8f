"""What cannot be attached to: each is refused before anything is done, with its code and one sentence."""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from boxes import AS_USER, box, cli_as, needs_root, public_python
from trainings import COMMAND, cli, needs_ptrace, plain, strict, until

from ascend_tui.target import TargetGone, read_target, socket_path

pytestmark = needs_ptrace

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
WAYS = (["--dry-run"], ["--dry-run", "--json"], ["--headless"], ["--json"])


def look(pid: int) -> tuple[object, ...]:
    """Return what an attach would change in a process; what may not be seen is left out."""
    try:
        target = read_target(pid)
    except TargetGone:
        return ()
    status = Path(f"/proc/{pid}/status").read_text()
    found: list[object] = re.findall(r"^(?:TracerPid|Threads|SigPnd|ShdPnd|SigBlk):.*$", status, re.M)
    found += [target.state in "Tt", os.path.exists(socket_path(target))]
    try:
        found += [Path(f"/proc/{pid}/maps").read_text(), sorted(os.listdir(f"/proc/{pid}/fd"))]
    except OSError:
        return tuple(found)
    return tuple(found)


def settled(pid: int) -> tuple[object, ...]:
    """Return the look of a process that has done its start: an interpreter still maps and opens."""
    seen: list[tuple[object, ...]] = []

    def stays() -> bool:
        seen.append(look(pid))
        time.sleep(0.05)
        return seen[-1] == look(pid)

    assert until(stays)
    return seen[-1]


def refused(pid: int, code: str, *words: str, run: Cli = cli) -> None:
    """Assert that each way to ask ends in the same refusal, and that the process is as it was."""
    before = settled(pid)
    sentences = set()
    for way in WAYS:
        done = run("attach", str(pid), *way)
        assert done.returncode == 3, (way, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        sentences.add(done.stderr.splitlines()[0])
        if "--json" in way:
            (line,) = strict(done.stdout)
            told = line["refused"]
            assert told["code"] == code
            assert all(told[name] and "{" not in told[name] for name in ("what", "why", "next_step"))
        else:
            assert done.stdout == ""
    (sentence,) = sentences
    assert str(pid) in sentence
    for word in words:
        assert word in sentence
    assert look(pid) == before


def test_the_monitor_itself() -> None:
    code = "import os, sys; from ascend_tui.cli import main\n"
    code += "sys.exit(main(['attach', str(os.getpid()), *sys.argv[1:]]))"
    for way in WAYS:
        command = [sys.executable, "-c", code, *way]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 3, done.stderr
        assert "it is this monitor itself" in done.stderr
        if "--json" in way:
            (line,) = strict(done.stdout)
            assert line["refused"]["code"] == "own_process"
        else:
            assert done.stdout == ""


@needs_root
def test_another_users_process() -> None:
    with box("setpriv", "--inh-caps=-all", python=public_python()) as pid:
        refused(pid, "other_user", "user id 0", run=cli_as)
    # Root reaches everybody's.
    with box(*AS_USER, python=public_python()) as pid:
        assert cli("attach", str(pid), "--dry-run").returncode == 0


def test_a_process_that_somebody_traces() -> None:
    with plain() as process:
        code = (
            "import ctypes, time; libc = ctypes.CDLL(None)\n"
            f"print(libc.ptrace(0x4206, {process.pid}, None, None), flush=True); time.sleep(60)"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as tracer:
            try:
                assert tracer.stdout is not None
                assert tracer.stdout.readline() == b"0\n"
                refused(process.pid, "traced", f"process {tracer.pid} (", "Detach")
            finally:
                tracer.kill()
        assert cli("attach", str(process.pid), "--dry-run").returncode == 0


def test_a_process_under_strace() -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    with plain() as process:
        command = ["strace", "-f", "-o", os.devnull, "-p", str(process.pid)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracer:
            try:
                assert until(lambda: read_target(process.pid).tracer_pid == tracer.pid)
                done = cli("attach", str(process.pid), "--json")
                (line,) = strict(done.stdout)
                assert (done.returncode, line["refused"]["code"]) == (3, "traced")
                assert "(strace)" in line["refused"]["why"]
            finally:
                tracer.terminate()


def test_a_zombie() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    try:
        assert until(lambda: read_target(process.pid).state == "Z")
        refused(process.pid, "zombie", "already ended")
    finally:
        process.wait()


def test_a_stopped_process_and_then_it_goes_on() -> None:
    with plain() as process:
        os.kill(process.pid, signal.SIGSTOP)
        assert until(lambda: read_target(process.pid).state == "T")
        refused(process.pid, "stopped", f"kill -CONT {process.pid}")
        os.kill(process.pid, signal.SIGCONT)
        assert until(lambda: read_target(process.pid).state in "SR")
        assert cli("attach", str(process.pid), "--dry-run").returncode == 0


def test_what_is_no_python() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            refused(process.pid, "not_python", "(sleep)", "ascend-tui ps")
        finally:
            process.kill()


def test_a_thread_of_the_kernel() -> None:
    stat = Path("/proc/2/stat")
    if not stat.exists() or "kthreadd" not in stat.read_text():
        pytest.skip("no kernel threads are visible here")
    refused(2, "kernel_thread", "a thread of the kernel")
    if os.geteuid() == 0:
        done = cli_as("attach", "2", "--json")
        assert strict(done.stdout)[0]["refused"]["code"] == "kernel_thread"


def test_a_process_that_has_ended() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    refused(process.pid, "gone", "there is no such process", "ascend-tui ps")


@needs_root
def test_a_process_that_proc_hides_is_not_said_to_be_gone() -> None:
    hide = ("sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "-")
    with box("unshare", "--mount", "--pid", "--fork", "--kill-child", *hide) as pid:
        enter = ("nsenter", f"--target={pid}", "--mount", "--pid", *AS_USER)
        done = cli_as("attach", "1", "--json", prefix=enter)
        assert done.returncode == 3
        assert strict(done.stdout)[0]["refused"]["code"] == "hidden"


# 32-bit code.


@contextmanager
def program_of_32_bit(path: Path) -> Iterator[int]:
    """Run a 32-bit program for x86 that only waits: a header, a segment, and three instructions."""
    code = b"\xb8\x1d\0\0\0\xcd\x80\xeb\xf7"  # pause(), for ever
    at, size = 0x8048000, 52 + 32 + len(code)
    head = b"\x7fELF\1\1\1" + bytes(9)
    head += struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, at + 84, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    path.write_bytes(head + struct.pack("<IIIIIIII", 1, 0, at, at, size, size, 5, 0x1000) + code)
    path.chmod(0o700)
    try:
        process = subprocess.Popen([str(path)])
    except OSError as error:
        pytest.skip(f"this kernel runs no 32-bit x86 programs: {error.strerror}")
    try:
        assert until(lambda: Path(f"/proc/{process.pid}/exe").resolve() == path.resolve())
        assert process.poll() is None
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_a_32_bit_program_that_is_no_python(tmp_path: Path) -> None:
    with program_of_32_bit(tmp_path / "waiter") as pid:
        assert read_target(pid).arch == "i386"
        refused(pid, "not_python", "(waiter)")


def test_a_32_bit_python_is_told_to_start_with_the_shim_inside(tmp_path: Path) -> None:
    # An interpreter without a library of its own is known by its name, as Debian's is.
    with program_of_32_bit(tmp_path / "python3.11") as pid:
        refused(pid, "not_64bit", "i386", "ascend-tui run")


# Several at once.


def test_of_several_the_first_that_is_refused_is_named_and_none_is_touched() -> None:
    with plain() as good, subprocess.Popen(["sleep", "60"]) as bad:
        try:
            before = settled(good.pid)
            done = subprocess.run(
                [*COMMAND, "attach", str(good.pid), str(bad.pid), "--json"],
                capture_output=True,
                text=True,
                timeout=60,
                stdin=subprocess.DEVNULL,
            )
            assert done.returncode == 3
            assert strict(done.stdout)[-1]["refused"]["params"]["pid"] == bad.pid
            assert look(good.pid) == before
        finally:
            bad.kill()
