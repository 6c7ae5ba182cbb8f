"""Machine code that a borrowed thread or a new one runs: small, calling absolute addresses.

Three pieces lie in one page: `entry` (calls a function and records its result), `thread` (the start routine
of our new thread) and `pending` (what the interpreter calls between two bytecodes).
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Protocol

ENTRY_AT, THREAD_AT, PENDING_AT = 0, 256, 768
CODE_SIZE = 1024


class Addresses(NamedTuple):
    """What the stubs need to know: function addresses and the two words they write."""

    entry_function: int
    done: int
    ran: int
    functions: dict[str, int]


class Stubs(Protocol):
    """The three stubs of one machine."""

    def entry(self, function: int, done: int) -> bytes:
        """Call `function` with the registers as they are; store its 32-bit result at `done`, 1 behind it."""
        ...

    def thread(self, functions: dict[str, int], ran: int) -> bytes:
        """Detach the thread, take the GIL, run the source text given as argument, release, set `ran` to 1."""
        ...

    def pending(self, functions: dict[str, int], ran: int) -> bytes:
        """Run the source text given as argument, set `ran` to 1, and return 0 always.

        Any other result without an exception set would raise SystemError in the training loop.
        """
        ...


def code_page(stubs: Stubs, addresses: Addresses, trap: bytes) -> bytes:
    """Return the content of the code page; gaps are filled with `trap` instructions."""
    has_threads = "pthread_create" in addresses.functions
    pieces = {
        ENTRY_AT: stubs.entry(addresses.entry_function, addresses.done),
        THREAD_AT: stubs.thread(addresses.functions, addresses.ran) if has_threads else b"",
        PENDING_AT: stubs.pending(addresses.functions, addresses.ran),
    }
    page = bytearray(trap * (CODE_SIZE // len(trap)))
    for at, code in pieces.items():
        page[at : at + len(code)] = code
    return bytes(page)


class X86Stubs:
    """Stubs of x86_64 (System V calling convention)."""

    trap = b"\xcc"

    def entry(self, function: int, done: int) -> bytes:
        """Call `function`; record its result. One push keeps sp aligned to 16 at the call."""
        return (
            b"\x53"  # push rbx
            + b"\x48\xbb" + struct.pack("<Q", done)  # mov rbx, done
            + _x86_call(function)
            + b"\x89\x03"  # mov [rbx], eax
            + b"\xc7\x43\x04\x01\x00\x00\x00"  # mov dword [rbx+4], 1
            + b"\x5b\xc3"  # pop rbx; ret
        )  # fmt: skip

    def thread(self, functions: dict[str, int], ran: int) -> bytes:
        """Start routine: rbx keeps the text, ebp the GIL state."""
        return (
            b"\x53\x55\x48\x83\xec\x08"  # push rbx; push rbp; sub rsp, 8
            + b"\x48\x89\xfb"  # mov rbx, rdi
            + _x86_call(functions["pthread_self"])
            + b"\x48\x89\xc7"  # mov rdi, rax
            + _x86_call(functions["pthread_detach"])
            + _x86_call(functions["PyGILState_Ensure"])
            + b"\x89\xc5"  # mov ebp, eax
            + b"\x48\x89\xdf"  # mov rdi, rbx
            + _x86_call(functions["PyRun_SimpleString"])
            + b"\x89\xef"  # mov edi, ebp
            + _x86_call(functions["PyGILState_Release"])
            + _x86_set(ran)
            + b"\x31\xc0\x48\x83\xc4\x08\x5d\x5b\xc3"  # xor eax, eax; add rsp, 8; pop rbp; pop rbx; ret
        )

    def pending(self, functions: dict[str, int], ran: int) -> bytes:
        """Pending call: returns 0 always."""
        return (
            b"\x48\x83\xec\x08"  # sub rsp, 8
            + _x86_call(functions["PyRun_SimpleString"])
            + _x86_set(ran)
            + b"\x31\xc0\x48\x83\xc4\x08\xc3"  # xor eax, eax; add rsp, 8; ret
        )


class Arm64Stubs:
    """Stubs of aarch64 (AAPCS64); run in an emulated machine, never on hardware."""

    trap = b"\x00\x00\x20\xd4"  # brk #0

    def entry(self, function: int, done: int) -> bytes:
        """Call `function`; record its result. x19 is callee-saved, so it keeps the address of the word."""
        return (
            _words(0xA9BE7BFD, 0xF9000BF3)  # stp x29, x30, [sp, #-32]!; str x19, [sp, #16]
            + _arm_load(19, done)
            + _arm_call(function)
            + _words(0xB9000260)  # str w0, [x19]
            + _words(0x52800020, 0x91001273, 0x889FFE60)  # mov w0, #1; add x19, x19, #4; stlr w0, [x19]
            + _words(0xF9400BF3, 0xA8C27BFD, 0xD65F03C0)  # ldr x19, [sp, #16]; ldp x29, x30, [sp], #32; ret
        )

    def thread(self, functions: dict[str, int], ran: int) -> bytes:
        """Start routine: x19 keeps the text, w20 the GIL state."""
        return (
            # stp x29, x30, [sp, #-32]!; mov x29, sp; stp x19, x20, [sp, #16]; mov x19, x0
            _words(0xA9BE7BFD, 0x910003FD, 0xA90153F3, 0xAA0003F3)
            + _arm_call(functions["pthread_self"])
            + _arm_call(functions["pthread_detach"])
            + _arm_call(functions["PyGILState_Ensure"])
            + _words(0x2A0003F4, 0xAA1303E0)  # mov w20, w0; mov x0, x19
            + _arm_call(functions["PyRun_SimpleString"])
            + _words(0x2A1403E0)  # mov w0, w20
            + _arm_call(functions["PyGILState_Release"])
            + _arm_set(ran)
            # mov x0, #0; ldp x19, x20, [sp, #16]; ldp x29, x30, [sp], #32; ret
            + _words(0xD2800000, 0xA94153F3, 0xA8C27BFD, 0xD65F03C0)
        )

    def pending(self, functions: dict[str, int], ran: int) -> bytes:
        """Pending call: returns 0 always."""
        return (
            _words(0xA9BF7BFD)  # stp x29, x30, [sp, #-16]!
            + _arm_call(functions["PyRun_SimpleString"])
            + _arm_set(ran)
            + _words(0xD2800000, 0xA8C17BFD, 0xD65F03C0)  # mov x0, #0; ldp x29, x30, [sp], #16; ret
        )


def _x86_call(address: int) -> bytes:
    return b"\x48\xb8" + struct.pack("<Q", address) + b"\xff\xd0"  # mov rax, address; call rax


def _x86_set(word: int) -> bytes:
    # mov rax, word; mov dword [rax], 1
    return b"\x48\xb8" + struct.pack("<Q", word) + b"\xc7\x00\x01\x00\x00\x00"


def _words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def _arm_load(register: int, value: int) -> bytes:
    """Load 64 bits in four steps: movz, then three movk."""
    steps = (
        (0xF2800000 if i else 0xD2800000) | i << 21 | (value >> 16 * i & 0xFFFF) << 5 | register
        for i in range(4)
    )
    return _words(*steps)


def _arm_call(address: int) -> bytes:
    return _arm_load(16, address) + _words(0xD63F0200)  # blr x16


def _arm_set(word: int) -> bytes:
    return _arm_load(16, word) + _words(0x52800020, 0x889FFE00)  # mov w0, #1; stlr w0, [x16]
