"""The machine code, read back by a disassembler that knows nothing of how it was written."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct

import pytest

from ascend_tui.inject import frames_aarch64, frames_x86_64, stubs

capstone = pytest.importorskip("capstone")
NAMES = (
    "pthread_create", "pthread_detach", "pthread_self", "PyGILState_Ensure", "PyRun_SimpleString",
    "PyGILState_Release", "Py_AddPendingCall",
)  # fmt: skip
FUNCTIONS = {name: 0x7F12_3456_7000 + 16 * i for i, name in enumerate(NAMES)}
DONE, RAN = 0x5500_1234_0000, 0x5500_1234_002C
THREAD_ORDER = NAMES[2], NAMES[1], NAMES[3], NAMES[4], NAMES[5]


def disassemble(code: bytes, machine: str) -> list[str]:
    if machine == "x86_64":
        engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    else:
        engine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    lines = [f"{i.mnemonic} {i.op_str}".strip() for i in engine.disasm(code, 0)]
    assert sum(i.size for i in engine.disasm(code, 0)) == len(code), "some bytes are no instruction"
    return lines


def loaded_by_movk(lines: list[str]) -> list[int]:
    """Collect the constants that mov/movk sequences build, in order."""
    values: list[int] = []
    for line in lines:
        if line.startswith("mov x16, #") or line.startswith("mov x19, #"):
            values.append(int(line.rpartition("#")[2], 0))
        elif line.startswith("movk"):
            value, _, shift = line.partition("#")[2].partition(", lsl #")
            values[-1] |= int(value, 0) << int(shift or 0)
    return values


class TestX86:
    code = stubs.X86Stubs()

    def test_entry_records_result_then_done(self) -> None:
        assert disassemble(self.code.entry(FUNCTIONS["pthread_create"], DONE), "x86_64") == [
            "push rbx",
            f"movabs rbx, {DONE:#x}",
            f"movabs rax, {FUNCTIONS['pthread_create']:#x}",
            "call rax",
            "mov dword ptr [rbx], eax",
            "mov dword ptr [rbx + 4], 1",
            "pop rbx",
            "ret",
        ]

    def test_thread_calls_in_order_with_an_aligned_stack(self) -> None:
        lines = disassemble(self.code.thread(FUNCTIONS, RAN), "x86_64")
        calls = [int(line.split(", ")[1], 0) for line in lines if line.startswith("movabs rax")]
        assert calls == [*(FUNCTIONS[name] for name in THREAD_ORDER), RAN]
        assert lines[:4] == ["push rbx", "push rbp", "sub rsp, 8", "mov rbx, rdi"]
        assert lines[-6:] == [
            "mov dword ptr [rax], 1", "xor eax, eax", "add rsp, 8", "pop rbp", "pop rbx", "ret",
        ]  # fmt: skip
        at = lines.index(f"movabs rax, {FUNCTIONS['PyRun_SimpleString']:#x}")
        assert lines[at - 2 : at] == ["mov ebp, eax", "mov rdi, rbx"]

    def test_pending_returns_zero_always(self) -> None:
        lines = disassemble(self.code.pending(FUNCTIONS, RAN), "x86_64")
        assert lines[0] == "sub rsp, 8"
        assert lines[-3:] == ["xor eax, eax", "add rsp, 8", "ret"]

    @pytest.mark.skipif(os.uname().machine != "x86_64", reason="runs x86_64 code")
    def test_entry_and_pending_really_run(self) -> None:
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        base = ctypes.addressof(ctypes.c_char.from_buffer(page))
        called: list[bytes] = []

        @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)
        def run(text: bytes) -> int:
            called.append(text)
            return -5

        address = ctypes.cast(run, ctypes.c_void_p).value
        assert address is not None
        functions = {**FUNCTIONS, "PyRun_SimpleString": address}
        page[0:256] = self.code.entry(address, base + 2048).ljust(256, b"\xcc")
        page[256:512] = self.code.pending(functions, base + 2048 + 44).ljust(256, b"\xcc")
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)
        prototype(base)(b"one")
        assert struct.unpack_from("<iI", page, 2048) == (-5, 1)
        assert prototype(base + 256)(b"two") == 0
        assert struct.unpack_from("<I", page, 2048 + 44) == (1,)
        assert called == [b"one", b"two"]


class TestAarch64:
    code = stubs.Arm64Stubs()

    def test_entry_records_result_then_done(self) -> None:
        lines = disassemble(self.code.entry(FUNCTIONS["pthread_create"], DONE), "aarch64")
        assert lines[:2] == ["stp x29, x30, [sp, #-0x20]!", "str x19, [sp, #0x10]"]
        assert loaded_by_movk(lines) == [DONE, FUNCTIONS["pthread_create"]]
        assert lines[-8:] == [
            "blr x16",
            "str w0, [x19]",
            "mov w0, #1",
            "add x19, x19, #4",
            "stlr w0, [x19]",
            "ldr x19, [sp, #0x10]",
            "ldp x29, x30, [sp], #0x20",
            "ret",
        ]

    def test_thread_calls_in_order_and_restores(self) -> None:
        lines = disassemble(self.code.thread(FUNCTIONS, RAN), "aarch64")
        assert loaded_by_movk(lines) == [*(FUNCTIONS[name] for name in THREAD_ORDER), RAN]
        assert lines[:4] == [
            "stp x29, x30, [sp, #-0x20]!", "mov x29, sp", "stp x19, x20, [sp, #0x10]", "mov x19, x0",
        ]  # fmt: skip
        assert lines.count("blr x16") == 5
        assert lines[-6:] == [
            "mov w0, #1", "stlr w0, [x16]", "mov x0, #0", "ldp x19, x20, [sp, #0x10]",
            "ldp x29, x30, [sp], #0x20", "ret",
        ]  # fmt: skip

    def test_pending_returns_zero_always(self) -> None:
        lines = disassemble(self.code.pending(FUNCTIONS, RAN), "aarch64")
        assert loaded_by_movk(lines) == [FUNCTIONS["PyRun_SimpleString"], RAN]
        assert lines[-3:] == ["mov x0, #0", "ldp x29, x30, [sp], #0x10", "ret"]

    def test_gadgets_are_what_they_are_called(self) -> None:
        arch = frames_aarch64.Aarch64()
        assert disassemble(arch.restorer_code, "aarch64") == ["mov x8, #0x8b", "svc #0"]
        assert disassemble(arch.syscall_code, "aarch64") == ["svc #0", "ret"]


def test_x86_gadgets_are_what_they_are_called() -> None:
    arch = frames_x86_64.X86_64()
    assert disassemble(arch.restorer_code, "x86_64") == ["mov rax, 0xf", "syscall"]
    assert disassemble(arch.syscall_code, "x86_64") == ["syscall", "ret"]


@pytest.mark.parametrize("kind", [stubs.X86Stubs(), stubs.Arm64Stubs()], ids=["x86_64", "aarch64"])
def test_the_page_keeps_the_stubs_apart(kind: stubs.X86Stubs | stubs.Arm64Stubs) -> None:
    page = stubs.code_page(kind, stubs.Addresses(1, DONE, RAN, FUNCTIONS), kind.trap)
    assert len(page) == stubs.CODE_SIZE
    assert page.startswith(kind.entry(1, DONE) + kind.trap)
    assert page[stubs.THREAD_AT :].startswith(kind.thread(FUNCTIONS, RAN) + kind.trap)
    assert page[stubs.PENDING_AT :].startswith(kind.pending(FUNCTIONS, RAN) + kind.trap)
    only_python = {name: value for name, value in FUNCTIONS.items() if name.startswith("Py")}
    without = stubs.code_page(kind, stubs.Addresses(1, DONE, RAN, only_python), kind.trap)
    assert without[stubs.THREAD_AT :].startswith(kind.trap)
