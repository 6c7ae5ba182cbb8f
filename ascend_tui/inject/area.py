"""Our own memory in the target: two mappings, and a header that tells a later injector their story.

Read-write: one page of header, a stack for the borrowed call, then the payload text. Read-execute: one page
of stubs. They lie a fixed distance apart, so that a dead injector's leftovers can be recognised.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ascend_tui.inject.memory import PAGE, Mapping, Memory

STACK_SIZE = 256 * 1024
GAP = 16 * PAGE
MAGIC = b"ASCTUI01"
HEADER = struct.Struct("<iI8sQQII4xI")
DONE_AT, RAN_AT, THREAD_SLOT_AT = 4, 44, 64
PREPARED, BORROWED, ABANDONED = 1, 2, 3
TEXT_AT = PAGE + STACK_SIZE


class Area(NamedTuple):
    """The two mappings: addresses and sizes in bytes."""

    rw: int
    rw_size: int
    rx: int
    rx_size: int

    @property
    def stack_top(self) -> int:
        """One byte past the stack of the borrowed call."""
        return self.rw + TEXT_AT

    @property
    def text(self) -> int:
        """Where the payload goes."""
        return self.rw + TEXT_AT


class Header(NamedTuple):
    """The first words of the read-write mapping.

    `result` and `done` are written by the entry stub, `ran` by the other stubs as the last thing before they
    return. `frame` is the signal frame to which the thread `tid` comes back; `inner_tid` is what the target
    itself calls that thread, in its own pid namespace.
    """

    result: int
    done: int
    magic: bytes
    frame: int
    tid: int
    state: int
    inner_tid: int
    ran: int


def plan(address: int, payload_size: int) -> Area:
    """Lay out an area at `address` that holds a payload of that many bytes and its final zero byte."""
    text = (payload_size + 1 + PAGE - 1) // PAGE * PAGE
    return Area(address, TEXT_AT + text, address + TEXT_AT + text + GAP, PAGE)


def read_header(memory: Memory, rw: int) -> Header:
    """Return the header of the area at `rw`."""
    return Header(*HEADER.unpack(memory.read(rw, HEADER.size)))


def write_header(
    memory: Memory, rw: int, state: int, frame: int = 0, tid: int = 0, inner_tid: int = 0
) -> None:
    """Reset the header; the frame's address lets a later injector give back a thread that hangs."""
    memory.write(rw, HEADER.pack(0, 0, MAGIC, frame, tid, state, inner_tid, 0), "header")


def is_ours(area: Area, maps: list[Mapping]) -> bool:
    """Tell whether exactly these two anonymous mappings exist."""
    return area in shapes(maps)


def shapes(maps: list[Mapping]) -> list[Area]:
    """Return every pair of mappings that has the shape of an area; only a header's magic proves one."""
    starts = {m.start: m for m in maps if m.perms == "r-xp" and not m.path and m.end - m.start == PAGE}
    pairs = ((m, starts.get(m.end + GAP)) for m in maps if m.perms == "rw-p" and not m.path)
    return [
        Area(m.start, m.end - m.start, code.start, PAGE)
        for m, code in pairs
        if code is not None and m.end - m.start > TEXT_AT
    ]


def is_blank(memory: Memory, area: Area) -> bool:
    """Tell whether nobody has ever written to an area: its injector died before it could mark it."""
    try:
        return not any(memory.read(area.rw, area.rw_size)) and not any(memory.read(area.rx, area.rx_size))
    except OSError:
        return False  # unmapped since the map was read


def leftovers(memory: Memory, maps: list[Mapping]) -> list[tuple[Area, Header]]:
    """Return the areas that earlier injections have left, with their headers."""
    found = []
    for area in shapes(maps):
        try:
            header = read_header(memory, area.rw)
        except OSError:
            continue  # unmapped since the map was read: the shim frees its own area
        if header.magic == MAGIC:
            found.append((area, header))
    return found
