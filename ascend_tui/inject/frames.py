"""Signal frames: how a thread is sent into a borrowed call and comes back from it by itself.

A borrowed call is made to look like a signal delivery. A complete signal frame (registers, signal mask,
vector state) is written to memory first; the function returns into libc's or the vdso's own `rt_sigreturn`,
and the kernel puts everything back. So the tracer changes the thread with ONE register write: before it
nothing has changed, after it the thread needs nobody.

Every function here is pure: bytes and dicts in, bytes and dicts out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ascend_tui.inject.errors import InjectError

Registers = dict[str, int]
ReadNote = Callable[[int], "bytes | None"]
RED_ZONE = 128


class Stop(NamedTuple):
    """A stopped thread: registers, signal mask, the code bytes at its pc, and where it waits."""

    registers: Registers
    mask: int
    code: bytes
    wchan: str


class Places(NamedTuple):
    """Where a chain of frames goes: one address per frame, ascending, and that of the vector state image."""

    frames: tuple[int, ...]
    vector: int

    @property
    def lowest(self) -> int:
        """The lowest byte that will be written."""
        return self.frames[0]


class Arch(Protocol):
    """What differs between machines; one module each implements it."""

    name: str
    restorer_code: bytes
    restorer_in_vdso: bool
    syscall_code: bytes
    code_align: int
    pc: str
    sp: str

    def unpack(self, raw: bytes) -> Registers:
        """Name the registers of an NT_PRSTATUS block; raises InjectError for 32-bit code."""
        ...

    def pack(self, registers: Registers) -> bytes:
        """Make an NT_PRSTATUS block."""
        ...

    def vector_state(self, read_note: ReadNote) -> bytes:
        """Return the vector state in the form a signal frame wants; raises RetryError when it cannot."""
        ...

    def is_at(self, registers: Registers, sp: int, pc: int) -> bool:
        """Tell whether a stopped thread is where /proc/PID/task/TID/syscall said it waits."""
        ...

    def settled(self, stop: Stop) -> tuple[Registers, bool]:
        """Return the registers to come back to, and whether that repeats a system call.

        Raises RetryError when the system call cannot be repeated exactly.
        """
        ...

    def places(self, top: int, count: int, vector: bytes) -> Places:
        """Lay out `count` frames and the vector state below `top`."""
        ...

    def frame(self, restorer: int, registers: Registers, mask: int, vector: bytes, vector_at: int) -> bytes:
        """Return one signal frame that restores `registers`; `vector_at` 0 means: vector state is void."""
        ...

    def mmap_call(
        self, registers: Registers, gadget: int, restorer: int, frame: int, area: tuple[int, int, int]
    ) -> Registers:
        """Return registers that map area (address, size, protection) and then restore `frame`."""
        ...

    def function_call(
        self, registers: Registers, entry: int, restorer: int, frame: int, args: tuple[int, ...]
    ) -> Registers:
        """Return registers that call `entry` with `args` and then restore `frame`."""
        ...

    def abandon(self, registers: Registers, restorer: int, frame: int) -> Registers:
        """Return registers that leave a borrowed call at once and restore `frame`."""
        ...


def this_arch() -> Arch:
    """Return the frames of the machine this process runs on; raises InjectError("unsupported_machine")."""
    if os.uname().machine == "x86_64":
        from ascend_tui.inject.frames_x86_64 import X86_64

        return X86_64()
    if os.uname().machine == "aarch64":
        from ascend_tui.inject.frames_aarch64 import Aarch64

        return Aarch64()
    raise InjectError("unsupported_machine", os.uname().machine)
