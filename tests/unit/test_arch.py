"""What a target is built of: each kind is handled or refused by name, decided on files made for it."""

from __future__ import annotations

import builtins
import dataclasses
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from elf_files import make_elf

from ascend_tui.inject import entry, memory
from ascend_tui.inject.elf import SHT_DYNSYM, SHT_SYMTAB
from ascend_tui.inject.errors import InjectError
from ascend_tui.inject.frames_x86_64 import X86_64
from ascend_tui.inject.memory import LIBC_NAMES, PYTHON_NAMES, Mapping, find_functions
from ascend_tui.target import TargetGone, preflight, proc, read_target
from ascend_tui.target.facts import _python_version, read_arch
from ascend_tui.target.preflight import gather

THREADS = ("pthread_create", "pthread_detach")
EXE, LIBC, OTHER = 0x5555_0000_0000, 0x7F00_0000_0000, 0x7F10_0000_0000


class Process:
    """A process of files: what is mapped where, and with which symbols."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pid = os.getpid()
        self.maps: list[Mapping] = []
        self.memory: dict[int, bytes] = {}
        self._folder = folder
        self._patch = monkeypatch
        monkeypatch.setattr(memory, "_openable", lambda pid, mapping, is_exe: mapping.path)

    def add(
        self, name: str, start: int, names: tuple[str, ...], table: int = SHT_DYNSYM, is_exe: bool = False
    ) -> None:
        """Map a file that defines `names`, one every 0x100 bytes."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        symbols = [(one, 0x1000 + 0x100 * at, 2, 5) for at, one in enumerate(names)]
        path.write_bytes(make_elf({table: symbols}, size=0x100))
        self.maps.append(Mapping(start, start + 0x10000, "r-xp", 0, str(path)))
        self.memory[start] = path.read_bytes()
        if is_exe:
            self._patch.setattr(memory.os, "readlink", lambda link: str(path))

    def read(self, address: int, size: int) -> bytes:
        """Return what lies at the start of a mapping."""
        return self.memory[address][:size]

    def functions(self) -> dict[str, int]:
        return find_functions(self, sorted(self.maps))  # type: ignore[arg-type]


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(tmp_path, monkeypatch)


# Where the functions lie.


def test_a_shared_python_on_a_new_glibc(process: Process) -> None:
    process.add("bin/python3.11", EXE, (), is_exe=True)
    process.add("lib/libpython3.11.so.1.0", OTHER, PYTHON_NAMES)
    process.add("lib/libc.so.6", LIBC, LIBC_NAMES)
    found = process.functions()
    assert found["PyGILState_Ensure"] == OTHER + 0x1000
    assert found["pthread_create"] == LIBC + 0x1000
    assert set(found) == {*PYTHON_NAMES, *LIBC_NAMES}


@pytest.mark.parametrize("version", ["2.17", "2.28", "2.31"])
def test_a_glibc_before_2_34_has_its_threads_in_a_library_of_their_own(
    process: Process, version: str
) -> None:
    process.add("bin/python3.8", EXE, PYTHON_NAMES, is_exe=True)
    process.add(f"lib/libc-{version}.so", LIBC, ("pthread_self", "mmap"))
    process.add(f"lib/libpthread-{version}.so", OTHER, (*THREADS, "pthread_self"))
    found = process.functions()
    assert (found["pthread_create"], found["pthread_detach"]) == (OTHER + 0x1000, OTHER + 0x1100)
    assert found["pthread_self"] == LIBC + 0x1000


def test_a_python_of_conda_keeps_to_its_own_copy(process: Process) -> None:
    # The interpreter is in the program itself; an extension has brought the library in beside it. The two
    # have states of their own, and only that of the program runs.
    process.add("conda/bin/python3.11", EXE, PYTHON_NAMES, is_exe=True)
    process.add("conda/lib/libpython3.11.so.1.0", OTHER, PYTHON_NAMES)
    process.add("usr/lib64/libc.so.6", LIBC, LIBC_NAMES)
    assert process.functions()["Py_AddPendingCall"] == EXE + 0x1300


def test_a_static_python_has_everything_in_itself(process: Process) -> None:
    process.add("bin/python3.12", EXE, (*PYTHON_NAMES, *LIBC_NAMES), table=SHT_SYMTAB, is_exe=True)
    found = process.functions()
    assert found["pthread_create"] == EXE + 0x1000 + 0x100 * len(PYTHON_NAMES)


def test_a_python_without_symbols_is_refused_and_one_without_threads_is_not(process: Process) -> None:
    process.add("bin/python3.12", EXE, PYTHON_NAMES[:2], is_exe=True)
    with pytest.raises(InjectError, match="Py_AddPendingCall") as caught:
        process.functions()
    assert caught.value.code == "no_symbols"
    process.add("bin/python3.12", EXE, PYTHON_NAMES, is_exe=True)
    assert "pthread_create" not in process.functions()


@pytest.mark.parametrize(
    "name", ["lib/libc.so.6", "lib/libc-2.31.so", "lib/libpthread-2.31.so", "bin/python3"]
)
def test_the_way_back_is_found_in_the_c_library_or_in_a_static_program(process: Process, name: str) -> None:
    code = X86_64.restorer_code
    process.add("bin/python3", EXE, (), is_exe=True)
    process.add("lib/libother.so", OTHER, ())
    for mapping in process.maps:
        process.memory[mapping.start] = bytes(mapping.end - mapping.start)
    # Another library's copy is not the one to use: only the C library's is known to be whole.
    process.memory[OTHER] = process.memory[OTHER][:64] + code
    assert memory.find_code(process, process.maps, code, 1) is None  # type: ignore[arg-type]
    start = EXE if name.startswith("bin") else LIBC
    process.add(name, start, (), is_exe=start == EXE)
    process.memory[start] = bytes(100) + code
    assert memory.find_code(process, process.maps, code, 1) == start + 100  # type: ignore[arg-type]
    assert memory.find_code(process, process.maps, code, 8) is None  # type: ignore[arg-type]


# Version and machine.


@pytest.mark.parametrize(
    ("exe", "maps", "version"),
    [
        (
            "/opt/conda/bin/python3.11",
            b"/opt/conda/lib/python3.11/lib-dynload/_json.cpython-311-x.so",
            "3.11",
        ),
        ("/opt/py/bin/python3.14t", b"x", "3.14t"),
        ("/usr/bin/app", b"... /opt/py/lib/libpython3.13t.so.1.0\n", "3.13t"),
        ("/usr/bin/app", b"... /x/_json.cpython-314t-aarch64-linux-gnu.so\n", "3.14t"),
    ],
)
def test_builds_are_told_apart_by_their_files(exe: str, maps: bytes, version: str) -> None:
    assert _python_version(exe, maps) == version


@pytest.mark.parametrize(
    ("machine", "name"), [(0x3E, "x86_64"), (0xB7, "aarch64"), (0x03, "i386"), (0x28, "arm"), (0x08, None)]
)
def test_a_machine_is_read_from_the_file(tmp_path: Path, machine: int, name: str | None) -> None:
    path = tmp_path / "python3"
    path.write_bytes(make_elf({}, machine=machine))
    assert read_arch(str(path)) == (name or f"elf-machine-{machine}")


MUSL = (
    b"55d0c0000000-55d0c0001000 r--p 00000000 fe:00 1 /usr/bin/python3.12\n"
    b"7f1000000000-7f1000010000 r-xp 00000000 fe:00 2 /usr/lib/libpython3.12.so.1.0\n"
    b"7f1000100000-7f1000200000 r-xp 00014000 fe:00 3 /lib/ld-musl-%s.so.1\n"
)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bytes], None]:
    """Let one file of every process be what a test says."""
    real = proc.read_bytes

    def record(name: str, text: bytes) -> None:
        monkeypatch.setattr(
            proc, "read_bytes", lambda path: text if path.endswith("/" + name) else real(path)
        )

    return record


@pytest.mark.parametrize("machine", [b"x86_64", b"aarch64"])
def test_musl_is_seen_by_its_loader_and_refused(
    recorded: Callable[[str, bytes], None], machine: bytes
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        recorded("maps", MUSL % machine)
        target = read_target(child.pid)
        assert target.python == "3.12"
        refusal = preflight(target)
        child.kill()
    assert refusal is not None
    assert refusal.code == "musl"
    child.wait()
    with pytest.raises(TargetGone):
        preflight(target)


# Shadow stacks.

SHSTK = "Name:\tpython3.11\nTracerPid:\t0\nx86_Thread_features:\tshstk wrss \nx86_Thread_features_locked:\t\n"
PLAIN = SHSTK.replace("shstk wrss ", "")


@pytest.mark.parametrize(("python", "code"), [("3.11", "shadow_stack"), ("3.14", None)])
def test_a_shadow_stack_stops_what_borrows_a_thread(
    recorded: Callable[[str, bytes], None], monkeypatch: pytest.MonkeyPatch, python: str, code: str | None
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        target = dataclasses.replace(read_target(child.pid), python=python)
        status = (proc.read_bytes(f"/proc/{child.pid}/status") or b"").replace(
            b"x86_Thread_features:\t", b"x86_Thread_features:\tshstk "
        )
        if b"shstk" not in status:
            status += b"x86_Thread_features:\tshstk \n"
        recorded("status", status)
        assert gather(target).shadow_stack
        refusal = preflight(target)
        child.kill()
    assert (refusal.code if refusal else None) == code


def test_the_injector_looks_for_a_shadow_stack_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    text = PLAIN

    def fake(path: str, *_: Any, **__: Any) -> io.StringIO:
        assert path == "/proc/7/status"
        return io.StringIO(text)

    monkeypatch.setattr(builtins, "open", fake)
    entry.check_shadow_stack(7)
    text = SHSTK
    with pytest.raises(InjectError) as caught:
        entry.check_shadow_stack(7)
    assert caught.value.code == "shadow_stack"


# The end of an interpreter.


@pytest.mark.parametrize(
    ("word", "ending"),
    [
        (EXE + 0x1000 + 0x20, True),
        (EXE + 0x1000, False),  # the address of the function itself is no way back into it
        (EXE + 0x1100, False),
        (0, False),
    ],
)
def test_an_ending_python_3_8_is_seen_on_the_stack(process: Process, word: int, ending: bool) -> None:
    process.add("bin/python3.8", EXE, ("Py_FinalizeEx", *PYTHON_NAMES), is_exe=True)
    stack = 0x7FFC_0000_0000
    process.maps.append(Mapping(stack, stack + 64, "rw-p", 0, "[stack]"))
    process.memory[stack] = bytes(24) + word.to_bytes(8, "little") + bytes(32)
    process.memory[stack + 32] = bytes(32)
    assert is_ending(process) is ending
    assert is_ending(process, "3.9") is False  # has another way to say it
    # Below sp nothing counts when the thread is stopped.
    assert is_ending(process, sp=stack + 32) is False


def is_ending(process: Process, python: str = "3.8", sp: int | None = None) -> bool:
    shutdown = entry.Shutdown(process, process.maps, python)  # type: ignore[arg-type]
    try:
        shutdown.check(sp)
    except InjectError as error:
        return error.code == "ending"
    return False


def test_without_the_function_nothing_is_known_to_be_ending(process: Process) -> None:
    process.add("bin/python3.8", EXE, PYTHON_NAMES, is_exe=True)
    assert not is_ending(process)
