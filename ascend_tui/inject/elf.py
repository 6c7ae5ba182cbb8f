"""Read what we need from ELF64 files: the machine, load segments, symbol addresses, needed libraries.

Only the headers and the symbol sections are touched (the file is mapped, not read): libtorch has hundreds of
megabytes, libpython thirty with debug information.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable

from ascend_tui.frozen import frozen
from ascend_tui.inject.errors import InjectError

ET_EXEC = 2
PT_LOAD = 1
SHT_SYMTAB, SHT_DYNAMIC, SHT_DYNSYM = 2, 6, 11
DT_NEEDED, DT_RPATH, DT_RUNPATH = 1, 15, 29
STT_TLS, STT_GNU_IFUNC = 6, 10
# Enough to hold the program headers and, in most builds, the build id: tells one build from another.
HEAD_SIZE = 1024
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<QQ")


@frozen
class Links:
    """What a file asks of the dynamic loader: names, and folders with $ORIGIN in them as written."""

    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


class Elf:
    """One ELF64 little-endian file, mapped for reading; use as a context manager.

    Raises InjectError("not_elf") when the file is something else, OSError when it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            try:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise InjectError("not_elf", path) from None
        data = self._data
        if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
            raise InjectError("not_elf", path)
        self.head: bytes = data[: min(len(data), HEAD_SIZE)]
        self.kind, self.machine = struct.unpack_from("<HH", data, 16)
        program_offset, section_offset = struct.unpack_from("<QQ", data, 32)
        program_size, programs, section_size, sections = struct.unpack_from("<HHHH", data, 54)
        self._segments = [
            _SEGMENT.unpack_from(data, program_offset + i * program_size) for i in range(programs)
        ]
        self._sections = [
            _SECTION.unpack_from(data, section_offset + i * section_size)
            for i in range(sections if section_offset else 0)
        ]

    def __enter__(self) -> Elf:
        return self

    def __exit__(self, *_: object) -> None:
        self._data.close()

    def bias(self, mapped_at: int, page: int) -> int:
        """Return what to add to a symbol's value when the file's first page is mapped at `mapped_at`."""
        if self.kind == ET_EXEC:
            return 0
        first = min((s[3] for s in self._segments if s[0] == PT_LOAD), default=0)
        return mapped_at - (first & ~(page - 1))

    def symbols(self, names: Iterable[str]) -> dict[str, int]:
        """Return the file-relative values of those `names` that this file defines."""
        return {name: value for name, (value, _) in self.ranges(names).items()}

    def ranges(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return value and size in bytes of those `names` that this file defines.

        The dynamic table comes first; the full one (large, often stripped) is read only for what is missing.
        """
        wanted = {name.encode() for name in names}
        found: dict[str, tuple[int, int]] = {}
        for kind in (SHT_DYNSYM, SHT_SYMTAB):
            missing = wanted - {name.encode() for name in found}
            for section in self._sections:
                if missing and section[1] == kind:
                    for name, extent in self._look(section, missing).items():
                        found.setdefault(name.decode(), extent)
        return found

    def links(self) -> Links:
        """Return what this file asks of the dynamic loader."""
        found: dict[int, list[str]] = {DT_NEEDED: [], DT_RPATH: [], DT_RUNPATH: []}
        for section in (one for one in self._sections if one[1] == SHT_DYNAMIC):
            strings = self._sections[section[6]][4]
            entries = self._data[section[4] : section[4] + section[5] // 16 * 16]
            for tag, value in _DYNAMIC.iter_unpack(entries):
                if tag in found:
                    at = strings + value
                    text = self._data[at : self._data.find(b"\0", at)].decode("utf-8", "surrogateescape")
                    found[tag] += [text] if tag == DT_NEEDED else text.split(":")
        return Links(*(tuple(one for one in names if one) for names in found.values()))

    def _look(self, section: tuple[int, ...], wanted: set[bytes]) -> dict[bytes, tuple[int, int]]:
        strings = self._sections[section[6]]
        table = self._data[strings[4] : strings[4] + strings[5]]
        offsets = {offset: name for name in wanted for offset in _offsets(table, name)}
        found: dict[bytes, tuple[int, int]] = {}
        if offsets:
            symbols = self._data[section[4] : section[4] + section[5] // 24 * 24]
            for name_at, info, _, section_index, value, size in _SYMBOL.iter_unpack(symbols):
                if (
                    name_at in offsets
                    and section_index
                    and value
                    and info & 15 not in (STT_TLS, STT_GNU_IFUNC)
                ):
                    found.setdefault(offsets[name_at], (value, size))
        return found


def _offsets(table: bytes, name: bytes) -> list[int]:
    """Find every place where `name` ends a string: linkers let a symbol share the tail of a longer one."""
    places, at = [], table.find(name + b"\0")
    while at >= 0:
        places.append(at)
        at = table.find(name + b"\0", at + 1)
    return places
