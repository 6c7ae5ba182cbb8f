"""The guards before a call from outside: read back by a disassembler, and run where this machine can."""

from __future__ import annotations

import ctypes
import mmap
import os

import pytest

from ascend_tui.inject import guards, stubs

capstone = pytest.importorskip("capstone")
ASK, CALL = 0x7F12_3456_7890, 0x7F12_FEDC_BA98


def disassemble(code: bytes, machine: str) -> list[str]:
    kinds = {
        "x86_64": (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
        "aarch64": (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM),
    }
    found = list(capstone.Cs(*kinds[machine]).disasm(code, 0))
    assert sum(one.size for one in found) == len(code), "some bytes are no instruction"
    return [f"{one.address:#x} {one.mnemonic} {one.op_str}".strip() for one in found]


def test_x86_keeps_the_arguments_and_jumps_or_says_no() -> None:
    assert disassemble(guards.x86_guard(ASK, CALL), "x86_64") == [
        "0x0 push rdi", "0x1 push rsi", "0x2 push rdx", "0x3 push rcx", "0x4 sub rsp, 8",
        f"0x8 movabs rax, {ASK:#x}", "0x12 call rax",
        "0x14 add rsp, 8", "0x18 pop rcx", "0x19 pop rdx", "0x1a pop rsi", "0x1b pop rdi",
        "0x1c test eax, eax", "0x1e je 0x2c", f"0x20 movabs rax, {CALL:#x}", "0x2a jmp rax",
        "0x2c mov eax, 0xfffffffe", "0x31 ret",
    ]  # fmt: skip


def test_aarch64_keeps_the_arguments_and_jumps_or_says_no() -> None:
    def loaded(value: int, at: int) -> list[str]:
        parts = [value >> 16 * i & 0xFFFF for i in range(4)]
        lines = [f"{at:#x} mov x16, #{parts[0]:#x}"]
        for i in (1, 2, 3):
            part = f"{parts[i]:#x}" if parts[i] > 9 else str(parts[i])
            lines.append(f"{at + 4 * i:#x} movk x16, #{part}, lsl #{16 * i}")
        return lines

    assert disassemble(guards.arm_guard(ASK, CALL), "aarch64") == [
        "0x0 stp x29, x30, [sp, #-0x30]!", "0x4 stp x0, x1, [sp, #0x10]", "0x8 stp x2, x3, [sp, #0x20]",
        *loaded(ASK, 0xC), "0x1c blr x16", "0x20 mov w9, w0",
        "0x24 ldp x0, x1, [sp, #0x10]", "0x28 ldp x2, x3, [sp, #0x20]", "0x2c ldp x29, x30, [sp], #0x30",
        "0x30 cbz w9, #0x48",
        *loaded(CALL, 0x34), "0x44 br x16",
        "0x48 mov w0, #-2", "0x4c ret",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [stubs.X86Stubs, stubs.Arm64Stubs])
def test_both_guards_lie_behind_the_stubs_in_one_page(kind: type[stubs.X86Stubs | stubs.Arm64Stubs]) -> None:
    page = guards.with_guards(bytes(stubs.CODE_SIZE), ASK, CALL, 0x1000, kind.trap)
    assert len(page) == stubs.CODE_SIZE + 512 <= mmap.PAGESIZE
    make = guards.x86_guard if kind is stubs.X86Stubs else guards.arm_guard
    for at, target in ((guards.ENTRY_GUARD_AT, CALL), (guards.THREAD_GUARD_AT, 0x1000)):
        code = make(ASK, target)
        assert page[at : at + len(code)] == code
        assert page[at + len(code) : at + 256] == kind.trap * ((256 - len(code)) // len(kind.trap))


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="runs the x86_64 guard on this machine")
@pytest.mark.parametrize("is_alive", [1, 0])
def test_the_x86_guard_does_so_when_run(is_alive: int) -> None:
    seen: list[tuple[int, ...]] = []
    number = ctypes.c_long
    ask = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: is_alive)
    call = ctypes.CFUNCTYPE(ctypes.c_int, number, number, number, number)(
        lambda *args: seen.append(args) or 7
    )
    addresses = [ctypes.cast(one, ctypes.c_void_p).value or 0 for one in (ask, call)]
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(guards.x86_guard(*addresses))
        pin = ctypes.c_char.from_buffer(page)
        run = ctypes.CFUNCTYPE(ctypes.c_int, number, number, number, number)(ctypes.addressof(pin))
        assert run(1, -2, 3, 1 << 40) == (7 if is_alive else guards.ENDING)
        del run, pin
    assert seen == ([(1, -2, 3, 1 << 40)] if is_alive else [])
