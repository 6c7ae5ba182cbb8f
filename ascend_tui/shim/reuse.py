"""What makes each device's allocator give back what it keeps for later: the means of "reuse off".

Only what can be undone is here: glibc's thresholds, once set by mallopt, never adapt again, and the variables
that switch a cache off are read once.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from .modes import is_compile_in_use

_PAGE = os.sysconf("SC_PAGE_SIZE")
SPARE_BYTES = 256 << 20
"""What has to stay free on a card beside the working memory of one and a half steps."""


class Means:
    """How one device gives memory back.  `act` and `rest` run at step boundaries, on the training thread."""

    how = ""

    def __init__(self, device: Any) -> None:
        self.device = device

    def reading(self) -> int:
        """Return the bytes that this means can lower, as they are now."""
        raise NotImplementedError

    def act(self) -> None:
        """Begin a step without reuse."""
        raise NotImplementedError

    def restore(self) -> None:
        """Undo what would last; from any thread, also when there is nothing to undo."""


class MallocTrim(Means):
    """glibc's own way to return free heap to the kernel; it sets nothing (malloc_trim(3))."""

    how = "malloc_trim"

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self._trim = _malloc_trim()

    def reading(self) -> int:
        return int(self.device.capture().split()[1]) * _PAGE

    def act(self) -> None:
        # ctypes lets go of the interpreter meanwhile: other Python threads run on.
        self._trim(0)


class EmptyCache(Means):
    """The caching allocator's own call: whole free segments go back to the driver, and nothing lasts."""

    how = "empty_cache"

    def reading(self) -> int:
        return int(self.device.counters()["reserved_bytes"])

    def act(self) -> None:
        self.device.module.empty_cache()


class Uncached(Means):
    """The switch of CUDA's allocator: every block comes from the driver and goes back to it.

    While it is off torch counts no new block; a request that fails is not tried again with the cache emptied;
    a graph's capture cannot get memory; a block cannot be sent to another process.  So where the card has no
    room for a whole step, or torch.compile may record graphs, this goes on as `empty_cache`.
    """

    how = "caching_allocator_enable"

    def __init__(self, device: Any, switch: Any) -> None:
        super().__init__(device)
        self._switch = switch

    def reading(self) -> int:
        """Return what is used on the card: without its cache torch counts nothing."""
        free, total = self.device.module.mem_get_info(self.device.index)
        return int(total) - int(free)

    def act(self) -> None:
        self.device.module.empty_cache()
        if self.how == EmptyCache.how:
            return
        if is_compile_in_use() or not self._has_room():
            self.how = EmptyCache.how
            self.restore()
            return
        # The switch comes last: a fault before it leaves the cache in use.
        self.device.counts_nothing = True
        self._switch(False)

    def _has_room(self) -> bool:
        counters = self.device.counters()
        working = counters["allocated_peak_bytes"] - counters["allocated_bytes"]
        free, _ = self.device.module.mem_get_info(self.device.index)
        return int(free) >= int(working * 1.5) + SPARE_BYTES

    def restore(self) -> None:
        self._switch(True)
        self.device.counts_nothing = False


def of_accelerator(device: Any, switch: Any = None) -> Means:
    """Return the means of a caching allocator; `switch` turns its cache on and off, if such a call is there.

    Raises LookupError with the reason where nothing can be switched.
    """
    if device.is_uncached():
        raise LookupError("reuse is off already, by %s" % device.uncached_by)
    backend = str(getattr(device.module, "get_allocator_backend", lambda: "native")())
    if backend == "pluggable":
        raise LookupError("the training brought an allocator of its own: torch cannot empty that one")
    if switch is None or backend != "native" or is_compile_in_use():
        return EmptyCache(device)
    return Uncached(device, switch)


def _malloc_trim() -> Any:
    """Return glibc's malloc_trim.  Raises LookupError where malloc is somebody else's."""
    ctypes = sys.modules.get("ctypes")
    if ctypes is None:
        raise LookupError("nothing here has loaded ctypes; torch does")
    library = ctypes.CDLL(None)
    name = os.path.basename(_file_at(ctypes.cast(library.malloc, ctypes.c_void_p).value))
    if re.match(r"libc(-[\d.]+)?\.so", name) is None or not hasattr(library, "gnu_get_libc_version"):
        raise LookupError("its malloc is of %s; only glibc's can be trimmed" % (name or "no file"))
    trim = library.malloc_trim
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim


def _file_at(address: int) -> str:
    """Return the file mapped at an address, or nothing."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            parts = line.split(None, 5)
            start, _, end = parts[0].partition("-")
            if int(start, 16) <= address < int(end, 16):
                return parts[5].rstrip("\n") if len(parts) > 5 else ""
    return ""
