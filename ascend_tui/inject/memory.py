"""The target's memory: its map, one descriptor to read and write it, and where functions and gadgets lie."""

from __future__ import annotations

import errno
import mmap
import os
import random
import re
from collections.abc import Iterable
from typing import NamedTuple

from ascend_tui.inject.elf import Elf
from ascend_tui.inject.errors import InjectError
from ascend_tui.inject.stage import stage

PAGE = mmap.PAGESIZE
PYTHON_NAMES = (
    "PyGILState_Ensure", "PyRun_SimpleString", "PyGILState_Release", "Py_AddPendingCall", "Py_IsInitialized",
)  # fmt: skip
LIBC_NAMES = ("pthread_create", "pthread_detach", "pthread_self", "mmap")
_LIBRARY = re.compile(r"libpython\d|libc[.-]|libpthread[.-]|ld-musl|ld-linux")
_LIBC = re.compile(r"/(libc[.-]|ld-musl|libpthread[.-])")


class Mapping(NamedTuple):
    """One line of /proc/PID/maps; addresses and offset in bytes."""

    start: int
    end: int
    perms: str
    offset: int
    path: str


def read_maps(pid: int) -> list[Mapping]:
    """Return the target's memory map, in ascending order."""
    result = []
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            words = line.rstrip("\n").split(None, 5)
            start, _, end = words[0].partition("-")
            path = words[5] if len(words) > 5 else ""
            result.append(Mapping(int(start, 16), int(end, 16), words[1], int(words[2], 16), path))
    return result


class Memory:
    """Read and write a process through one /proc/PID/mem descriptor.

    Opened once, before any stop: an open costs a permission check each time, and the descriptor stays bound
    to this address space, so that an exec in the target cannot make us write into another program.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self._fd)

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes; raises OSError where nothing is mapped."""
        data = os.pread(self._fd, size, address)
        if len(data) != size:
            # A part of it went away in the middle: the same as if it had never been there.
            raise OSError(errno.EIO, f"only {len(data)} of {size} bytes could be read at {address:#x}")
        return data

    def write(self, address: int, data: bytes, name: str) -> None:
        """Write all of `data`; `name` is the stage that a test sees. Raises OSError where nothing is."""
        stage(f"before write {name}")
        if os.pwrite(self._fd, data, address) != len(data):
            raise InjectError("memory", f"short write at {address:#x}")
        stage(f"after write {name}")

    def is_mapped(self, address: int) -> bool:
        """Tell whether a byte can be read there."""
        try:
            return len(os.pread(self._fd, 1, address)) == 1
        except OSError:
            return False


def find_functions(memory: Memory, maps: list[Mapping]) -> dict[str, int]:
    """Return the addresses of the CPython and libc functions that an injection calls.

    Raises InjectError("no_symbols") when CPython's functions are not found.
    """
    ranges = find_ranges(memory, maps, PYTHON_NAMES + LIBC_NAMES)
    absent = [name for name in PYTHON_NAMES if name not in ranges]
    if absent:
        raise InjectError("no_symbols", ", ".join(absent))
    return {name: start for name, (start, _) in ranges.items()}


def find_ranges(memory: Memory, maps: list[Mapping], names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return address and size of functions of the interpreter and the C library, as far as they are found.

    Files are opened through /proc (root, exe, map_files), so that containers and interpreters that were
    upgraded or deleted on disk are read as the target runs them; a file whose first bytes are not those in
    memory is another build, and calling its addresses would crash the target.
    """
    pid = memory.pid
    exe = os.readlink(f"/proc/{pid}/exe")
    found: dict[str, tuple[int, int]] = {}
    seen = set()
    for mapping in maps:
        path = mapping.path
        if mapping.offset or path in seen or not path.startswith("/"):
            continue
        if path != exe and not _LIBRARY.match(os.path.basename(path)):
            continue
        seen.add(path)
        missing = [name for name in names if name not in found]
        real = _openable(pid, mapping, path == exe)
        if missing and real is not None:
            with Elf(real) as elf:
                if elf.head != memory.read(mapping.start, len(elf.head)):
                    continue
                bias = elf.bias(mapping.start, PAGE)
                found.update((name, (bias + at, size)) for name, (at, size) in elf.ranges(missing).items())
    return found


def leads_into(memory: Memory, stack: tuple[int, int], function: tuple[int, int]) -> bool:
    """Tell whether a stack (start, end) holds a way back into a function (address, size)."""
    start, end = stack[0] & ~7, stack[1]
    address, size = function
    return any(
        address < word < address + size for word in memoryview(memory.read(start, end - start)).cast("Q")
    )


def find_code(
    memory: Memory, maps: list[Mapping], pattern: bytes, align: int, vdso: bool = False
) -> int | None:
    """Return the address of an instruction sequence in code the target already has (nothing is patched)."""
    exe = os.readlink(f"/proc/{memory.pid}/exe")

    def rank(mapping: Mapping) -> int:
        if vdso:
            return 0 if mapping.path == "[vdso]" else 9
        # A static executable carries libc inside itself.
        return 0 if _LIBC.search(mapping.path) else 1 if mapping.path == exe else 9

    for mapping in sorted((m for m in maps if "x" in m.perms and rank(m) < 9), key=rank):
        code = memory.read(mapping.start, mapping.end - mapping.start)
        at = code.find(pattern)
        while at >= 0 and at % align:
            at = code.find(pattern, at + 1)
        if at >= 0:
            return mapping.start + at
    return None


def free_range(maps: list[Mapping], size: int) -> int:
    """Choose an address with `size` free bytes: a random page deep inside the largest hole.

    Random, so that two injectors do not meet; far from its neighbours, so that the kernel does not merge our
    mapping with one of them. Raises InjectError("no_address_range") when there is no such hole.
    """
    pairs = zip(maps, maps[1:])
    # TRAP: programs end at 47 bits on x86_64 and at 48 on aarch64; only x86_64 has a page beyond its end.
    holes = [(high.start - low.end, low.end) for low, high in pairs if high.path != "[vsyscall]"]
    length, start = max(holes, default=(0, 0))
    if length < 4 * size + (1 << 30):
        raise InjectError("no_address_range")
    pages = (length - (512 << 20) - size) // PAGE
    return start + (256 << 20) + random.randrange(pages) * PAGE


def _openable(pid: int, mapping: Mapping, is_exe: bool) -> str | None:
    """Return a path under /proc that leads to the very file the target has mapped, or None."""
    # TRAP: the kernel writes the map from our point of view: in a chroot, with the folder that is its root.
    root = os.readlink(f"/proc/{pid}/root").rstrip("/")
    inside = mapping.path[len(root) :] if mapping.path.startswith(f"{root}/") else mapping.path
    below = f"/proc/{pid}/root{inside}"
    choices = [below, f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}"]
    if is_exe:
        choices.insert(0, f"/proc/{pid}/exe")
    if mapping.path.endswith(" (deleted)"):
        # A new file may lie at the old path: only the mapping itself still leads to the old one.
        choices.remove(below)
        choices.append(below[: -len(" (deleted)")])
    return next((path for path in choices if os.access(path, os.R_OK)), None)
