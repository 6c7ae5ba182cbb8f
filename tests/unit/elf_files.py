"""Small ELF files made by hand."""

from __future__ import annotations

import struct

Symbol = tuple[str, int, int, int]  # name, value, type, section index


def make_elf(
    tables: dict[int, list[Symbol]], kind: int = 3, first_load: int = 0, machine: int = 0x3E, size: int = 8
) -> bytes:
    """Build a minimal ELF64 file with one load segment and a symbol table of each wanted kind.

    Every symbol has `size` bytes.
    """
    body, sections = b"", [struct.pack("<IIQQQQIIQQ", *(0,) * 10)]
    data_at = 64 + 56
    for table_kind, symbols in tables.items():
        strings, entries = b"\0", bytes(24)
        for name, value, symbol_type, index in symbols:
            entries += struct.pack("<IBBHQQ", len(strings), 0x10 | symbol_type, 0, index, value, size)
            strings += name.encode() + b"\0"
        at = data_at + len(body)
        body += entries + strings
        number = len(sections)
        sections.append(
            struct.pack("<IIQQQQIIQQ", 0, table_kind, 0, 0, at, len(entries), number + 1, 0, 8, 24)
        )
        sections.append(struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, at + len(entries), len(strings), 0, 0, 1, 0))
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, 64, data_at + len(body), 0, 64, 56, 1, 64,
                        len(sections), 0)  # fmt: skip
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, first_load, first_load, 4096, 4096, 4096)
    return head + load + body + b"".join(sections)
