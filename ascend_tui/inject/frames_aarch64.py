"""Signal frames of aarch64 (struct rt_sigframe in arch/arm64/kernel/signal.c).

Run in an emulated machine (`python -m tests.aarch64`: Linux 6.1, with NEON only and with SVE), never on
hardware. SME and guarded control stacks are refused by what the kernel's source says; no machine has shown
them.
"""

from __future__ import annotations

import struct

from ascend_tui.inject.errors import InjectError, RetryError
from ascend_tui.inject.frames import Places, ReadNote, Registers, Stop

NT_PRFPREG, NT_ARM_SVE, NT_ARM_SSVE, NT_ARM_ZA, NT_ARM_GCS = 2, 0x405, 0x40B, 0x40C, 0x410
NAMES = [f"x{i}" for i in range(31)] + ["sp", "pc", "pstate"]
SIGINFO_SIZE = 128
MASK_AT = SIGINFO_SIZE + 40
SIGCONTEXT_AT = SIGINFO_SIZE + 176
RESERVED_AT = SIGCONTEXT_AT + 288  # fault_address, x0-x30, sp, pc, pstate = 280, aligned to 16
RESERVED_SIZE = 4096
FRAME_SIZE = RESERVED_AT + RESERVED_SIZE
FPSIMD_MAGIC, SVE_MAGIC = 0x46508001, 0x53564501
FPSIMD_SIZE = 528
SVE_HEADER = struct.Struct("<IIHHHH")  # of NT_ARM_SVE: size, max_size, vl, max_vl, flags, reserved
SVE_PT_REGS_SVE = 1
SYS_MMAP, SYS_FUTEX, SYS_RESTART = 222, 98, 128
SYS_CLOCK_NANOSLEEP, SYS_NANOSLEEP = 115, 101
FUTEX_WAIT_BITSET = 9
TIMER_ABSTIME = 1
MAP_FLAGS = 0x100022
SVC = b"\x01\x00\x00\xd4"
BTYPE_AND_STEP = 3 << 10 | 1 << 21
MASK64 = 2**64 - 1


class Aarch64:
    """Frames of aarch64; run in an emulated machine, never on hardware."""

    name = "aarch64"
    restorer_code = b"\x68\x11\x80\xd2" + SVC  # mov x8,#139; svc #0: __kernel_rt_sigreturn
    restorer_in_vdso = True
    syscall_code = SVC + b"\xc0\x03\x5f\xd6"  # svc #0; ret
    code_align = 4
    pc = "pc"
    sp = "sp"

    def unpack(self, raw: bytes) -> Registers:
        """Name the registers of an NT_PRSTATUS block; raises InjectError for 32-bit code."""
        if len(raw) < 272:
            raise InjectError("not_64bit")
        registers = dict(zip(NAMES, struct.unpack_from("<34Q", raw)))
        if registers["pstate"] & 0x10:
            raise InjectError("not_64bit")
        return registers

    def pack(self, registers: Registers) -> bytes:
        """Make an NT_PRSTATUS block."""
        return struct.pack("<34Q", *(registers[name] & MASK64 for name in NAMES))

    def vector_state(self, read_note: ReadNote) -> bytes:
        """Build the context records of a signal frame: FPSIMD always, SVE when the thread has live SVE state.

        Without the SVE record the upper parts of the vector registers would be lost, without an error.
        Raises RetryError while SME is active, InjectError with a guarded control stack.
        """
        for note in (NT_ARM_SSVE, NT_ARM_ZA):
            raw = read_note(note)
            if raw is None or len(raw) < SVE_HEADER.size:
                continue
            size, _, _, _, flags, _ = SVE_HEADER.unpack_from(raw)
            # ZA off is a bare header; streaming mode off is a record whose flags do not say "SVE registers".
            if size > SVE_HEADER.size if note == NT_ARM_ZA else flags & SVE_PT_REGS_SVE:
                raise RetryError("the thread has SME state")
        guarded = read_note(NT_ARM_GCS)
        if guarded is not None and len(guarded) >= 8 and struct.unpack_from("<Q", guarded)[0] & 1:
            raise InjectError("shadow_stack")
        plain = read_note(NT_PRFPREG)
        if plain is None or len(plain) < FPSIMD_SIZE - 8:
            raise InjectError("no_vector_state")
        fpsr_fpcr = plain[512:520]
        records = struct.pack("<II", FPSIMD_MAGIC, FPSIMD_SIZE) + fpsr_fpcr + plain[:512]
        records += _sve_record(read_note(NT_ARM_SVE))
        if len(records) + 16 > RESERVED_SIZE:
            raise InjectError("vector_state_too_large")
        return records + bytes(16)  # a record of zeros ends the list

    def is_at(self, registers: Registers, sp: int, pc: int) -> bool:
        """Tell whether a stopped thread is where /proc/PID/task/TID/syscall said it waits.

        At the stop pc is already rewound to the svc instruction where the call will be repeated.
        """
        return registers["sp"] == sp and registers["pc"] in (pc, pc - 4)

    def settled(self, stop: Stop) -> tuple[Registers, bool]:
        """Return the registers to come back to, and whether that repeats a system call.

        TRAP: here the kernel has already rewound pc and restored x0, but hides the cause. So the call's
        number decides: a restart block (relative timeouts) is destroyed by sigreturn, everything else
        repeats exactly.
        """
        registers = dict(stop.registers)
        if stop.code[:4] != SVC:
            return registers, False
        number = registers["x8"] & 0xFFFFFFFF
        is_bitset = registers["x1"] & 0x7F == FUTEX_WAIT_BITSET
        if number == SYS_RESTART and is_bitset and "futex" in stop.wchan:
            registers["x8"] = SYS_FUTEX
        elif (
            number in (SYS_RESTART, SYS_NANOSLEEP)
            or (number == SYS_FUTEX and not is_bitset)
            or (number == SYS_CLOCK_NANOSLEEP and not registers["x1"] & TIMER_ABSTIME)
        ):
            raise RetryError(f"system call {number} with a relative timeout cannot be repeated exactly")
        return registers, True

    def places(self, top: int, count: int, vector: bytes) -> Places:
        """Lay out `count` frames below `top`, ascending; the vector state travels inside each frame."""
        last = (top - FRAME_SIZE) & ~15
        return Places(tuple(last - FRAME_SIZE * (count - 1 - i) for i in range(count)), 0)

    def frame(self, restorer: int, registers: Registers, mask: int, vector: bytes, vector_at: int) -> bytes:
        """Return one signal frame that restores `registers`; the FPSIMD record is mandatory in each.

        The alternate signal stack is left alone by invalid ss_flags (3), as on x86_64.
        """
        frame = bytearray(FRAME_SIZE)
        struct.pack_into("<I", frame, SIGINFO_SIZE + 24, 3)
        struct.pack_into("<Q", frame, MASK_AT, mask)
        values = (registers[name] & MASK64 for name in NAMES)
        struct.pack_into("<Q34Q", frame, SIGCONTEXT_AT, 0, *values)
        frame[RESERVED_AT : RESERVED_AT + len(vector)] = vector
        return bytes(frame)

    def mmap_call(
        self, registers: Registers, gadget: int, restorer: int, frame: int, area: tuple[int, int, int]
    ) -> Registers:
        """Return registers that map area (address, size, protection) and then restore `frame`.

        TRAP: the kernel tells by pc whether its restart of an interrupted wait was overruled. A thread that
        waits in the gadget itself would be put into `restart_syscall` instead of mmap.
        """
        if registers["pc"] == gadget:
            raise RetryError("the thread waits at the instruction that is needed")
        address, size, protection = area
        call = {"x0": address, "x1": size, "x2": protection, "x3": MAP_FLAGS, "x4": MASK64, "x5": 0}
        return _redirect(registers, {**call, "x8": SYS_MMAP, "x30": restorer, "sp": frame, "pc": gadget})

    def function_call(
        self, registers: Registers, entry: int, restorer: int, frame: int, args: tuple[int, ...]
    ) -> Registers:
        """Return registers that call `entry` with `args` and then restore `frame`."""
        call = {f"x{i}": value for i, value in enumerate(args)}
        return _redirect(registers, {**call, "x30": restorer, "sp": frame, "pc": entry})

    def abandon(self, registers: Registers, restorer: int, frame: int) -> Registers:
        """Return registers that leave a borrowed call at once and restore `frame`."""
        return _redirect(registers, {"sp": frame, "pc": restorer})


def _redirect(registers: Registers, changes: dict[str, int]) -> Registers:
    result = {**registers, **changes}
    result["pstate"] &= ~BTYPE_AND_STEP  # a pending branch-target check would fault at the new pc
    return result


def _sve_record(raw: bytes | None) -> bytes:
    """Turn NT_ARM_SVE into a signal frame's SVE record; empty when the thread has no live SVE state."""
    if raw is None or len(raw) < SVE_HEADER.size:
        return b""
    _, _, length, _, flags, _ = SVE_HEADER.unpack_from(raw)
    if not flags & SVE_PT_REGS_SVE:
        return b""
    # Z registers, predicates, first-fault register; `length` is the vector's size in bytes.
    registers = 32 * length + 17 * (length // 8)
    size = (16 + registers + 15) & ~15
    head = struct.pack("<IIHHHH", SVE_MAGIC, size, length, 0, 0, 0)
    return (head + raw[16 : 16 + registers]).ljust(size, b"\0")
