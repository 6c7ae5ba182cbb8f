"""The machine code, read back by a disassembler that knows nothing of how it was written."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
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


class Arm64:
    """Does what the disassembler says, for the few instructions that stubs are made of.

    A called function destroys all that the calling convention lets it destroy, and returns 0xBEE0 and up.
    """

    def __init__(self, registers: dict[str, int]) -> None:
        self.registers = dict(registers)
        self.lowest = registers["sp"]
        self.stack: dict[int, int] = {}
        self.stores: list[tuple[int, int]] = []
        self.calls: list[tuple[int, tuple[int, ...]]] = []

    def run(self, code: bytes) -> None:
        for line in disassemble(code, "aarch64")[:-1]:
            name, _, rest = line.partition(" ")
            words = [word for word in re.split(r"[\[\], #]+", rest.replace("!", "")) if word]
            getattr(self, f"do_{name}")(words, rest)
        assert disassemble(code, "aarch64")[-1] == "ret"

    def value(self, word: str) -> int:
        if word[0] == "w":
            return self.registers["x" + word[1:]] & 0xFFFF_FFFF
        return self.registers[word] if word in self.registers else int(word, 0)

    def address(self, words: list[str], rest: str) -> int:
        """Work out an address in brackets, with what is added before or after."""
        base, offset = words[0], int(words[1], 0) if len(words) > 1 else 0
        at = self.registers[base]
        if rest.endswith("!"):
            at += offset
            self.registers[base] = at
        elif "]," in rest:
            self.registers[base] = at + offset
        else:
            at += offset
        if base == "sp":
            self.lowest = min(self.lowest, at)
            assert self.registers["sp"] % 16 == 0
        return at

    def do_stp(self, words: list[str], rest: str) -> None:
        at = self.address(words[2:], rest)
        self.stack[at], self.stack[at + 8] = self.value(words[0]), self.value(words[1])

    def do_ldp(self, words: list[str], rest: str) -> None:
        at = self.address(words[2:], rest)
        self.registers[words[0]], self.registers[words[1]] = self.stack[at], self.stack[at + 8]

    def do_str(self, words: list[str], rest: str) -> None:
        at = self.address(words[1:], rest)
        if words[1] == "sp":
            self.stack[at] = self.value(words[0])
        else:
            self.stores.append((at, self.value(words[0])))

    do_stlr = do_str

    def do_ldr(self, words: list[str], rest: str) -> None:
        self.registers[words[0]] = self.stack[self.address(words[1:], rest)]

    def do_mov(self, words: list[str], rest: str) -> None:
        self.registers["x" + words[0][1:] if words[0] != "sp" else "sp"] = self.value(words[1])

    def do_movk(self, words: list[str], rest: str) -> None:
        shift = int(words[3], 0) if len(words) > 3 else 0
        kept = self.registers[words[0]] & ~(0xFFFF << shift)
        self.registers[words[0]] = kept | int(words[1], 0) << shift

    def do_add(self, words: list[str], rest: str) -> None:
        self.registers[words[0]] = self.value(words[1]) + self.value(words[2])

    def do_blr(self, words: list[str], rest: str) -> None:
        self.calls.append((self.value(words[0]), tuple(self.registers[f"x{i}"] for i in range(8))))
        self.registers.update({f"x{i}": 0xDEAD for i in (*range(19), 30)})
        self.registers["x0"] = 0xBEE0 + len(self.calls) - 1


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

    @pytest.mark.parametrize("kind", ["entry", "thread", "pending"])
    def test_a_stub_keeps_what_belongs_to_its_caller(self, kind: str) -> None:
        code = {
            "entry": self.code.entry(FUNCTIONS["pthread_create"], DONE),
            "thread": self.code.thread(FUNCTIONS, RAN),
            "pending": self.code.pending(FUNCTIONS, RAN),
        }[kind]
        before = {f"x{i}": 0x1000 + i for i in range(31)} | {"sp": 0x7000_0000}
        machine = Arm64(before)
        machine.run(code)
        kept = [f"x{i}" for i in range(19, 31)] + ["sp"]
        assert {name: machine.registers[name] for name in kept} == {name: before[name] for name in kept}
        assert machine.lowest >= 0x7000_0000 - 32
        functions, arguments = zip(*machine.calls)
        if kind == "entry":
            # What the borrowed thread brings goes to the function as it is; result first, then the mark.
            assert functions == (FUNCTIONS["pthread_create"],)
            assert arguments[0][:8] == tuple(before[f"x{i}"] for i in range(8))
            assert machine.stores == [(DONE, 0xBEE0), (DONE + 4, 1)]
        elif kind == "thread":
            assert functions == tuple(FUNCTIONS[name] for name in THREAD_ORDER)
            # detach(self), Ensure(), Run(text), Release(state)
            assert [one[0] for one in (arguments[1], arguments[3], arguments[4])] == [
                0xBEE0, before["x0"], 0xBEE2,
            ]  # fmt: skip
            assert machine.stores == [(RAN, 1)]
        else:
            assert functions == (FUNCTIONS["PyRun_SimpleString"],)
            assert arguments[0][0] == before["x0"]
            assert machine.stores == [(RAN, 1)]
        if kind != "entry":
            assert machine.registers["x0"] == 0

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
