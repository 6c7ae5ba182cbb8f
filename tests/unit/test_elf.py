"""The ELF reader, against small files made here and against this very interpreter."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

import pytest
from elf_files import make_elf

from ascend_tui.inject.elf import ET_EXEC, SHT_DYNSYM, SHT_SYMTAB, Elf
from ascend_tui.inject.errors import InjectError
from ascend_tui.inject.memory import (
    LIBC_NAMES,
    PYTHON_NAMES,
    Mapping,
    Memory,
    find_functions,
    free_range,
    read_maps,
)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.so"
    dynamic = [
        ("xPyRun", 0x100, 2, 5),
        ("Py_Undefined", 0, 2, 0),
        ("Py_Thread", 0x10, 6, 5),
        ("Py_Indirect", 0x20, 10, 5),
        ("PyRun", 0x200, 2, 5),
    ]
    path.write_bytes(
        make_elf({SHT_DYNSYM: dynamic, SHT_SYMTAB: [("PyRun", 0x999, 2, 5), ("hidden", 0x300, 2, 5)]})
    )
    return path


def test_finds_defined_symbols_only(small: Path) -> None:
    names = ["PyRun", "Py_Undefined", "Py_Thread", "Py_Indirect", "absent", "Run"]
    with Elf(str(small)) as elf:
        assert elf.machine == 0x3E
        assert elf.symbols(names) == {"PyRun": 0x200}


def test_the_full_table_serves_what_the_dynamic_one_lacks(small: Path) -> None:
    with Elf(str(small)) as elf:
        assert elf.symbols(["PyRun", "hidden"]) == {"PyRun": 0x200, "hidden": 0x300}


def test_strings_may_share_a_tail(tmp_path: Path) -> None:
    path = tmp_path / "shared.so"
    raw = bytearray(make_elf({SHT_DYNSYM: [("xPyRun", 0x100, 2, 5), ("other", 0x200, 2, 5)]}))
    at = 64 + 56 + 2 * 24  # the second symbol's name now points into the first one's
    struct.pack_into("<I", raw, at, 2)
    path.write_bytes(raw)
    with Elf(str(path)) as elf:
        assert elf.symbols(["PyRun"]) == {"PyRun": 0x200}


def test_bias_follows_the_first_load_segment(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(make_elf({}, first_load=0x400123))
    with Elf(str(path)) as elf:
        assert elf.bias(0x7F00_0040_0000, 4096) == 0x7F00_0000_0000
    path.write_bytes(make_elf({}, kind=ET_EXEC, first_load=0x400000))
    with Elf(str(path)) as elf:
        assert elf.bias(0x400000, 4096) == 0


@pytest.mark.parametrize(
    "raw", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(100), b"\x7fELF\x02\x02" + bytes(99)]
)
def test_other_files_are_refused(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(raw)
    with pytest.raises(InjectError) as caught:
        Elf(str(path))
    assert caught.value.code == "not_elf"


def test_addresses_in_this_process_are_those_of_the_loader() -> None:
    pid = os.getpid()
    memory = Memory(pid)
    try:
        found = find_functions(memory, read_maps(pid))
    finally:
        memory.close()
    program = ctypes.CDLL(None)
    for name in PYTHON_NAMES + LIBC_NAMES:
        assert found[name] == ctypes.cast(getattr(program, name), ctypes.c_void_p).value, name


def test_another_build_at_the_same_path_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    pid = os.getpid()
    memory = Memory(pid)
    monkeypatch.setattr(Memory, "read", lambda self, address, size: bytes(size))
    with pytest.raises(InjectError) as caught:
        find_functions(memory, read_maps(pid))
    memory.close()
    assert caught.value.code == "no_symbols"


def test_a_free_range_is_deep_inside_the_largest_hole() -> None:
    low, high = 0x5000_0000_0000, 0x7000_0000_0000
    maps = [Mapping(0x1000, 0x2000, "r--p", 0, ""), Mapping(low - 4096, low, "rw-p", 0, "")]
    maps += [
        Mapping(high, high + 4096, "rw-p", 0, ""),
        Mapping(2**64 - 8192, 2**64 - 4096, "r-xp", 0, "[vsyscall]"),
    ]
    starts = {free_range(maps, 0x50000) for _ in range(20)}
    assert len(starts) > 1
    for start in starts:
        assert start % 4096 == 0
        assert 0x2000 + (200 << 20) < start < low - (200 << 20)
    tight = [Mapping(0, 4096, "r--p", 0, ""), Mapping(1 << 29, 1 << 30, "r--p", 0, "")]
    with pytest.raises(InjectError):
        free_range(tight, 4096)


def test_a_free_range_is_found_where_addresses_have_48_bits() -> None:
    # python3.11 of Debian on aarch64, as recorded: everything but the program lies above 47 bits.
    python, heap = 0x400000, 0x0F890000
    low = [
        Mapping(python, 0x916000, "r-xp", 0, "/usr/bin/python3.11"),
        Mapping(heap, 0xFC92000, "rw-p", 0, "[heap]"),
    ]
    high = [
        Mapping(0xFFFF70000000, 0xFFFF70021000, "rw-p", 0, ""),
        Mapping(0xFFFFDAE25000, 0xFFFFDAE46000, "rw-p", 0, "[stack]"),
    ]
    for maps in (
        [*low, *high],
        [Mapping(0xAAAAC0000000, 0xAAAAC0400000, "r-xp", 0, "/usr/bin/python3"), *high],
    ):
        start = free_range(maps, 0x50000)
        assert maps[-3].end < start < high[0].start - 0x50000


def test_a_free_range_is_not_before_the_kernels_own_page() -> None:
    maps = [
        Mapping(0x400000, 0x500000, "r-xp", 0, "/usr/bin/python3"),
        Mapping(0x7FFE00000000, 0x7FFE00021000, "rw-p", 0, "[stack]"),
        Mapping(0xFFFFFFFFFF600000, 0xFFFFFFFFFF601000, "--xp", 0, "[vsyscall]"),
    ]
    assert free_range(maps, 0x50000) < 0x7FFE00000000
