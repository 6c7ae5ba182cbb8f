"""Signal frames of x86_64 (struct rt_sigframe in arch/x86/include/asm/sigframe.h)."""

from __future__ import annotations

import struct

from ascend_tui.inject.errors import InjectError, RetryError
from ascend_tui.inject.frames import Places, ReadNote, Registers, Stop

NT_X86_XSTATE = 0x202
# fmt: off
NAMES = (  # struct user_regs_struct
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi",
    "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs",
)
SIGCONTEXT = (  # struct sigcontext
    "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx",
    "rsp", "rip", "eflags",
)
# fmt: on
FRAME_SIZE = 448  # 8 return address + 304 ucontext + 128 siginfo, rounded up to 64
MASK64 = 2**64 - 1
CS_64BIT = 0x33
DIRECTION_FLAG = 0x400
FP_XSTATE_MAGIC1, FP_XSTATE_MAGIC2 = 0x46505853, 0x46505845
UC_FLAGS = 7  # UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS
AMX_FEATURES = 3 << 17
SIZE_UP_TO_PKRU = 2696
RESTARTS = (-512, -513, -514, -516)
ERESTART_RESTARTBLOCK = -516
SYS_POLL, SYS_FUTEX, SYS_RESTART = 7, 202, 219
SYS_MMAP = 9
FUTEX_WAIT_BITSET = 9
# MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE: a lost race for the address maps nothing (before Linux
# 4.17 the last flag is unknown and the address only a hint, which is harmless too).
MAP_FLAGS = 0x100022


class X86_64:
    """Frames of x86_64; measured on hardware."""

    name = "x86_64"
    restorer_code = (
        b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"  # mov rax,15; syscall: __restore_rt of glibc and musl
    )
    restorer_in_vdso = False
    syscall_code = b"\x0f\x05\xc3"  # syscall; ret: the tail of getpid() and friends
    code_align = 1
    pc = "rip"
    sp = "rsp"

    def unpack(self, raw: bytes) -> Registers:
        """Name the registers of an NT_PRSTATUS block; raises InjectError for 32-bit code."""
        registers = dict(zip(NAMES, struct.unpack_from("<27Q", raw)))
        if registers["cs"] != CS_64BIT:
            raise InjectError("not_64bit")
        return registers

    def pack(self, registers: Registers) -> bytes:
        """Make an NT_PRSTATUS block."""
        return struct.pack("<27Q", *(registers[name] & MASK64 for name in NAMES))

    def vector_state(self, read_note: ReadNote) -> bytes:
        """Turn the XSTATE image of ptrace into that of a signal frame: other marker bytes, and a trailer.

        With the markers wrong the kernel restores x87 and SSE only, without an error: silent wrong results.
        """
        raw = read_note(NT_X86_XSTATE)
        if raw is None or len(raw) < 576:
            raise InjectError("no_vector_state")
        size = len(raw)
        (features,) = struct.unpack_from("<Q", raw, 464)
        (in_use,) = struct.unpack_from("<Q", raw, 512)
        if features & AMX_FEATURES:
            # TRAP: with AMX the kernel reports the machine's maximum here, and refuses the vector part of a
            # frame larger than the task's own size. A task without tile data uses the layout up to PKRU.
            if in_use & AMX_FEATURES:
                raise RetryError("the thread has AMX tile state")
            size = min(size, SIZE_UP_TO_PKRU)
            features &= ~AMX_FEATURES
        image = bytearray(raw[:size])
        struct.pack_into("<IIQI28x", image, 464, FP_XSTATE_MAGIC1, size + 4, features, size)
        return bytes(image) + struct.pack("<I", FP_XSTATE_MAGIC2)

    def is_at(self, registers: Registers, sp: int, pc: int) -> bool:
        """Tell whether a stopped thread is where /proc/PID/task/TID/syscall said it waits."""
        return registers["rsp"] == sp and registers["rip"] == pc

    def settled(self, stop: Stop) -> tuple[Registers, bool]:
        """Return the registers to come back to, and whether that repeats a system call.

        TRAP: a thread stopped in a wait shows rax = -ERESTART*; on resume the kernel would rewind it, but
        sigreturn has no such step, so it is done here. -516 (a restart block) is worse: sigreturn destroys
        it. Repeating is exact only for FUTEX_WAIT_BITSET, whose timeout is absolute, and poll without
        timeout.
        """
        registers = dict(stop.registers)
        number, result = _signed(registers["orig_rax"]), _signed(registers["rax"])
        if number < 0 or result not in RESTARTS:
            return registers, False
        if result == ERESTART_RESTARTBLOCK:
            is_bitset = registers["rsi"] & 0x7F == FUTEX_WAIT_BITSET
            if is_bitset and (number == SYS_FUTEX or (number == SYS_RESTART and "futex" in stop.wchan)):
                number = SYS_FUTEX
            elif not (number == SYS_POLL and registers["rdx"] >> 31 & 1):
                raise RetryError(f"system call {number} with a relative timeout cannot be repeated exactly")
        registers["rip"] -= 2
        registers["rax"] = number
        return registers, True

    def places(self, top: int, count: int, vector: bytes) -> Places:
        """Lay out `count` frames and the vector state below `top`.

        TRAP: ascending in the order of use. A signal that arrives between two links of the chain pushes its
        own frame below sp, and so hits only frames that were already used.
        """
        vector_at = (top - len(vector)) & ~63  # xrstor wants 64
        # A frame's first word is a return address: at a function's entry sp % 16 must be 8.
        last = vector_at - 512 + 8
        return Places(tuple(last - FRAME_SIZE * (count - 1 - i) for i in range(count)), vector_at)

    def frame(self, restorer: int, registers: Registers, mask: int, vector: bytes, vector_at: int) -> bytes:
        """Return one signal frame that restores `registers`; `vector_at` 0 means: vector state is void.

        TRAP: sigreturn also sets the alternate signal stack, which ptrace cannot read. Invalid ss_flags (3)
        make the kernel refuse that part, silently, and keep the present one.
        """
        head = struct.pack("<QQQQIIQ", restorer, UC_FLAGS, 0, 0, 3, 0, 0)
        general = struct.pack("<18Q", *(registers[name] & MASK64 for name in SIGCONTEXT))
        segments = struct.pack("<4H", registers["cs"] & 0xFFFF, 0, 0, registers["ss"] & 0xFFFF)
        rest = struct.pack("<4QQ64x", 0, 0, 0, 0, vector_at) + struct.pack("<Q", mask)
        return (head + general + segments + rest).ljust(FRAME_SIZE, b"\0")

    def mmap_call(
        self, registers: Registers, gadget: int, restorer: int, frame: int, area: tuple[int, int, int]
    ) -> Registers:
        """Return registers that map area (address, size, protection) and then restore `frame`."""
        address, size, protection = area
        call = {"rip": gadget, "rsp": frame, "rax": SYS_MMAP, "rdi": address, "rsi": size, "rdx": protection}
        call.update(r10=MAP_FLAGS, r8=MASK64, r9=0)
        return _redirect(registers, call)

    def function_call(
        self, registers: Registers, entry: int, restorer: int, frame: int, args: tuple[int, ...]
    ) -> Registers:
        """Return registers that call `entry` with `args` and then restore `frame`.

        The frame's first word is the restorer, so the function's own `ret` goes there.
        """
        call = {"rip": entry, "rsp": frame, "rax": 0}
        call.update(zip(("rdi", "rsi", "rdx", "rcx"), args))
        return _redirect(registers, call)

    def abandon(self, registers: Registers, restorer: int, frame: int) -> Registers:
        """Return registers that leave a borrowed call at once and restore `frame`."""
        return _redirect(registers, {"rip": restorer, "rsp": frame + 8})


def _redirect(registers: Registers, changes: dict[str, int]) -> Registers:
    result = {**registers, **changes}
    result["orig_rax"] = MASK64  # not in a system call: the kernel must not rewind pc
    result["eflags"] &= ~DIRECTION_FLAG
    return result


def _signed(value: int) -> int:
    return value - 2**64 if value >> 63 else value
