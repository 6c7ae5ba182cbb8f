"""Machine code that looks whether the interpreter still is one, before it is called from outside.

TRAP: once Py_FinalizeEx has begun, Py_AddPendingCall and PyGILState_Ensure work on what is being taken down.
A program stays in that state for as long as its exit handlers and those of its libraries take. Measured in a
C exit handler: SIGSEGV of 3.8 to 3.12 by a pending call, and with 3.14 by a new thread now and then.
Py_IsInitialized needs no lock and may be asked at any time.
"""

from __future__ import annotations

import struct

from ascend_tui.inject.stubs import CODE_SIZE

ENTRY_GUARD_AT, THREAD_GUARD_AT = CODE_SIZE, CODE_SIZE + 256
ENDING = -2
"""The result in place of the call's own."""


def with_guards(page: bytes, is_initialized: int, function: int, thread_stub: int, trap: bytes) -> bytes:
    """Return the code page with two guards behind it: of the borrowed call, and of the thread it makes."""
    make = x86_guard if len(trap) == 1 else arm_guard
    filler = trap * (256 // len(trap))
    for target in (function, thread_stub):
        code = make(is_initialized, target)
        page += code + filler[len(code) :]
    return page


def x86_guard(is_initialized: int, target: int) -> bytes:
    """Ask, with the four arguments kept; go on to `target` as if called by the caller, or return ENDING."""
    keep = b"\x57\x56\x52\x51\x48\x83\xec\x08"  # push rdi; push rsi; push rdx; push rcx; sub rsp, 8
    back = b"\x48\x83\xc4\x08\x59\x5a\x5e\x5f"  # add rsp, 8; pop rcx; pop rdx; pop rsi; pop rdi
    return (
        keep
        + b"\x48\xb8" + struct.pack("<Q", is_initialized) + b"\xff\xd0"  # mov rax, address; call rax
        + back
        + b"\x85\xc0\x74\x0c"  # test eax, eax; jz behind the jump
        + b"\x48\xb8" + struct.pack("<Q", target) + b"\xff\xe0"  # mov rax, address; jmp rax
        + b"\xb8" + struct.pack("<i", ENDING) + b"\xc3"  # mov eax, ENDING; ret
    )  # fmt: skip


def arm_guard(is_initialized: int, target: int) -> bytes:
    """Do the same on aarch64: x9 keeps the answer while the arguments come back."""
    return (
        # stp x29, x30, [sp, #-48]!; stp x0, x1, [sp, #16]; stp x2, x3, [sp, #32]
        struct.pack("<3I", 0xA9BD7BFD, 0xA90107E0, 0xA9020FE2)
        + _arm_load(is_initialized)
        + struct.pack("<2I", 0xD63F0200, 0x2A0003E9)  # blr x16; mov w9, w0
        # ldp x0, x1, [sp, #16]; ldp x2, x3, [sp, #32]; ldp x29, x30, [sp], #48
        + struct.pack("<3I", 0xA94107E0, 0xA9420FE2, 0xA8C37BFD)
        + struct.pack("<I", 0x34000009 | 6 << 5)  # cbz w9, behind the jump
        + _arm_load(target)
        + struct.pack("<I", 0xD61F0200)  # br x16
        + struct.pack("<2I", 0x12800020, 0xD65F03C0)  # mov w0, #-2; ret
    )


def _arm_load(value: int) -> bytes:
    """Load 64 bits into x16: movz, then three movk."""
    parts = ((0xF2800010 if i else 0xD2800010) | i << 21 | (value >> 16 * i & 0xFFFF) << 5 for i in range(4))
    return struct.pack("<4I", *parts)
