"""ptrace requests by ctypes, and one stopped thread: stop it, read it, redirect it or let it go unchanged."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import struct
import time
from collections.abc import Callable

from ascend_tui.inject.errors import InjectError, RetryError
from ascend_tui.inject.frames import Arch, Registers, Stop
from ascend_tui.inject.memory import Memory
from ascend_tui.inject.stage import stage

REQUESTS = {
    "CONT": 7,
    "DETACH": 17,
    "GETREGSET": 0x4204,
    "SETREGSET": 0x4205,
    "SEIZE": 0x4206,
    "INTERRUPT": 0x4207,
    "GETSIGMASK": 0x420A,
    "GET_RSEQ": 0x420F,
}
NT_PRSTATUS = 1
WALL = 0x40000000
PTRACE_EVENT_STOP = 128
NOTE_SIZE = 16384
STOP_TIMEOUT_S = 1.0
YIELD_S = 0.002

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

# TRAP: the kernel copies a register block word by word out of our memory. With SIGKILL pending, a page fault
# in the middle would end it half way. So the block lives in one locked, touched page: all or nothing.
_page = mmap.mmap(-1, mmap.PAGESIZE)
_page_at = ctypes.addressof(ctypes.c_char.from_buffer(_page))
_IOVEC_AT, _NOTE_AT = 1024, 2048
_note = ctypes.create_string_buffer(NOTE_SIZE)
_libc.mlock(ctypes.c_void_p(_page_at), ctypes.c_size_t(mmap.PAGESIZE))


def ptrace(request: str, tid: int, address: int = 0, data: int = 0) -> None:
    """Make one ptrace request; raises OSError with the kernel's errno."""
    stage(f"before {request}")
    if _libc.ptrace(REQUESTS[request], tid, address, data) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace {request}: {os.strerror(number)}")
    stage(f"after {request}")


class StoppedThread:
    """One thread stopped with its registers read; leave it by `go` (redirected) or `drop` (unchanged).

    Only this thread stops; the others run on. `stopped_ms` is filled when it has been let go. The death of
    this process lets it go too, unchanged: PTRACE_O_EXITKILL is never set. Raises RetryError when the
    thread cannot be borrowed now, InjectError when it never can.
    """

    def __init__(self, memory: Memory, tid: int, arch: Arch) -> None:
        self.tid = tid
        self.stopped_ms = 0.0
        self._memory = memory
        self._arch = arch
        self._gone = False
        # Read before the stop: every read inside it is time the thread does not run.
        wchan = _read_text(f"/proc/{memory.pid}/task/{tid}/wchan")
        try:
            ptrace("SEIZE", tid)
        except ProcessLookupError:
            raise RetryError("the thread has ended") from None
        except PermissionError as error:
            raise InjectError("ptrace_refused", str(error)) from None
        self._urgent = _set_urgent(True)
        self._since = time.monotonic()
        try:
            self._stop()
            self.registers = arch.unpack(self._note(NT_PRSTATUS) or b"")
            mask = self._small("GETSIGMASK", 8)
            pc = self.registers[arch.pc]
            code = self._code_at(pc)
            self.stop = Stop(self.registers, struct.unpack("<Q", mask)[0], code, wchan)
            self._check_restartable_sequence(pc)
        except ProcessLookupError:
            self.drop()
            raise RetryError("the thread has ended") from None
        except BaseException:
            self.drop()
            raise

    def vector_state(self) -> bytes:
        """Return the vector state as a signal frame wants it."""
        return self._arch.vector_state(self._note)

    def come_back(self) -> Registers:
        """Return the registers that the thread must find when it goes on alone.

        Raises RetryError when a wait cannot be repeated exactly, or when a signal is pending for a thread
        in a wait: handled during the borrow, it would no longer interrupt that wait (Python's Ctrl-C needs
        it to).
        """
        registers, repeats = self._arch.settled(self.stop)
        if repeats and self._signals_pending():
            raise RetryError("a signal is pending")
        return registers

    def go(self, registers: Registers) -> None:
        """Make the single register write, then leave the thread to itself."""
        block = self._arch.pack(registers)
        _page[0 : len(block)] = block
        _page[_IOVEC_AT : _IOVEC_AT + 16] = struct.pack("<QQ", _page_at, len(block))
        ptrace("SETREGSET", self.tid, NT_PRSTATUS, _page_at + _IOVEC_AT)
        self.drop()

    def drop(self) -> None:
        """Let the thread go on; harmless when it has gone already."""
        if self._gone:
            return
        self._gone = True
        try:
            ptrace("DETACH", self.tid)
        except ProcessLookupError:
            self.stopped_ms = 0.0
        self.stopped_ms = (time.monotonic() - self._since) * 1e3
        if self._urgent:
            _set_urgent(False)

    def _stop(self) -> None:
        ptrace("INTERRUPT", self.tid)
        end = self._since + STOP_TIMEOUT_S
        while True:
            stage("before wait")
            got, status = os.waitpid(self.tid, WALL | os.WNOHANG)
            stage("after wait")
            now = time.monotonic()
            if not got:
                if now > end:
                    raise RetryError("the thread did not stop")
                # The thread may be waiting for the very core we run on: give it up, do not spin on it.
                if self._urgent or now - self._since > YIELD_S:
                    time.sleep(0.00005)
                else:
                    os.sched_yield()
            elif os.WIFEXITED(status) or os.WIFSIGNALED(status):
                self._gone = True
                raise RetryError("the thread has ended")
            elif status >> 16 == PTRACE_EVENT_STOP:
                break
            else:
                # TRAP: a signal got in first. Hand it on at once: kept for later, it would be lost with us.
                ptrace("CONT", self.tid, 0, 0 if status >> 16 else os.WSTOPSIG(status))
        if os.WSTOPSIG(status) != signal.SIGTRAP:
            raise InjectError("stopped")

    def _note(self, kind: int) -> bytes | None:
        """Read one register set; None when this machine or thread has none."""
        vector = struct.pack("<QQ", ctypes.addressof(_note), NOTE_SIZE)
        _page[_IOVEC_AT : _IOVEC_AT + 16] = vector
        try:
            ptrace("GETREGSET", self.tid, kind, _page_at + _IOVEC_AT)
        except ProcessLookupError:
            raise RetryError("the thread has ended") from None
        except OSError:
            return None
        size = struct.unpack_from("<Q", _page, _IOVEC_AT + 8)[0]
        return _note.raw[:size]

    def _small(self, request: str, size: int) -> bytes:
        ptrace(request, self.tid, size, _page_at + _NOTE_AT)
        return bytes(_page[_NOTE_AT : _NOTE_AT + size])

    def _code_at(self, pc: int) -> bytes:
        try:
            return self._memory.read(pc, 4)
        except OSError:
            return b""

    def _check_restartable_sequence(self, pc: int) -> None:
        # TRAP: taking pc out of a restartable sequence (tcmalloc has them) clears the kernel's mark for it;
        # coming back would run the rest of it unprotected. Let go and try again.
        try:
            area = struct.unpack_from("<Q", self._small("GET_RSEQ", 24))[0]
        except OSError:
            return  # kernel before 5.13: glibc registers none there that could be seen
        if not area:
            return
        (descriptor,) = struct.unpack("<Q", self._memory.read(area + 8, 8))
        if descriptor:
            start, length = struct.unpack("<QQ", self._memory.read(descriptor + 8, 16))
            if start <= pc < start + length:
                raise RetryError("inside a restartable sequence")

    def _signals_pending(self) -> bool:
        text = _read_text(f"/proc/{self._memory.pid}/task/{self.tid}/status")
        lines = (line.split() for line in text.splitlines() if line.startswith(("SigPnd:", "ShdPnd:")))
        return any(int(words[1], 16) & ~self.stop.mask for words in lines)


def _set_urgent(on: bool) -> bool:
    """Run ahead of everything else while a thread is stopped, where this user may; returns whether it worked.

    Being preempted in that moment is what makes a stop long on busy cores. Only for the stop: a real-time
    process that computes would itself disturb the training.
    """
    policy, priority = (os.SCHED_FIFO, 1) if on else (os.SCHED_OTHER, 0)
    try:
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    except OSError:
        return False
    return True


def wait_until(done: Callable[[], bool], timeout_s: float, name: str) -> bool:
    """Poll `done` until it holds or the time is over; returns whether it held."""
    end = time.monotonic() + timeout_s
    while True:
        stage(f"wait {name}")
        if done():
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.0002)


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
