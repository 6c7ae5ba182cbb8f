"""How a process ended, as far as the kernel tells a process that is not its parent."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct

from ascend_tui.frozen import frozen
from ascend_tui.target import proc
from ascend_tui.target.facts import Target, TargetGone

# linux/pidfd.h: struct pidfd_info is mask, cgroupid (u64), eleven ids (u32), exit_code (s32): 64 bytes in
# its first version; the ioctl number carries that size, so later kernels fill just these bytes.
_INFO = struct.Struct("=QQ11Ii")
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11


@frozen
class Exit:
    """How a process ended: an exit code, or a signal number, or both None when nobody can tell any more."""

    code: int | None
    signal: int | None


UNKNOWN_EXIT = Exit(None, None)


def exit_of(status: int) -> Exit:
    """Translate a wait status."""
    if os.WIFSIGNALED(status):
        return Exit(None, os.WTERMSIG(status))
    if os.WIFEXITED(status):
        return Exit(os.WEXITSTATUS(status), None)
    return UNKNOWN_EXIT


class ExitWatch:
    """Watch one process for its end, without reaping it and without being fooled by a reused pid.

    `fileno()` becomes readable when the process ends (pidfd, kernel 5.3); -1 means that there is no such
    descriptor and `poll()` has to be called now and then. Sources of the exit status, in order: the pidfd
    itself (kernel 6.15), waitid when it is our child, /proc/PID/stat while it is a zombie.
    Raises TargetGone when the process had already gone or its pid had been reused.
    """

    def __init__(self, target: Target) -> None:
        self._id = target.id
        self._exit: Exit | None = None
        self._fd = _open_pidfd(target.id.pid)
        stat = proc.read_stat(target.id.pid)
        if stat is None or stat.start_ticks != target.id.start_ticks:
            self.close()
            raise TargetGone(target.id.pid)

    def fileno(self) -> int:
        """Return the pidfd to select on, or -1 when this system has none."""
        return self._fd

    def poll(self) -> Exit | None:
        """Return how the process ended, or None while it lives; never blocks."""
        if self._exit is None and self._ended():
            self._exit = self._status()
        elif self._exit == UNKNOWN_EXIT:
            # A zombie's status may become readable only when its parent has reaped it (PIDFD_INFO_EXIT).
            self._exit = _by_pidfd(self._fd) or UNKNOWN_EXIT
        return self._exit

    def close(self) -> None:
        """Release the descriptor; the last known answer of `poll` stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _ended(self) -> bool:
        if self._fd >= 0:
            poller = select.poll()
            poller.register(self._fd, select.POLLIN)
            return bool(poller.poll(0))
        stat = proc.read_stat(self._id.pid)
        return stat is None or stat.start_ticks != self._id.start_ticks or stat.state in "ZX"

    def _status(self) -> Exit:
        return _by_pidfd(self._fd) or self._by_waitid() or self._by_zombie() or UNKNOWN_EXIT

    def _by_waitid(self) -> Exit | None:
        try:
            # WNOWAIT: the status stays there for the one who owns the child (subprocess, multiprocessing).
            found = os.waitid(os.P_PID, self._id.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        if found is None:
            return None
        if found.si_code == os.CLD_EXITED:
            return Exit(found.si_status, None)
        return Exit(None, found.si_status)

    def _by_zombie(self) -> Exit | None:
        stat = proc.read_stat(self._id.pid)
        if stat is None or stat.start_ticks != self._id.start_ticks or stat.state != "Z":
            return None
        # The kernel shows 0 to those who may not trace the process: then 0 proves nothing.
        if stat.exit_status == 0 and proc.read_link(f"/proc/{self._id.pid}/ns/user") is None:
            return None
        return exit_of(stat.exit_status)


def _open_pidfd(pid: int) -> int:
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno == errno.ESRCH:
            raise TargetGone(pid) from None
        return -1


def _by_pidfd(fd: int) -> Exit | None:
    """Ask the kernel for the recorded exit status; None where it does not know (older, not yet reaped)."""
    if fd < 0:
        return None
    buffer = ctypes.create_string_buffer(_INFO.pack(_PIDFD_INFO_EXIT, *(0,) * 13), _INFO.size)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ioctl(fd, ctypes.c_ulong(_PIDFD_GET_INFO), buffer) != 0:
        return None
    values = _INFO.unpack(buffer.raw)
    return exit_of(values[-1]) if values[0] & _PIDFD_INFO_EXIT else None
