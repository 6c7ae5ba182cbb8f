"""One small adapter per device kind; each gives the same numbers under the same names.

All of them read what torch already keeps.  None starts a device: an adapter is chosen only when
the training has initialised that device itself.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import Any, Callable, Dict, Optional

from .reuse import MallocTrim, Means, of_accelerator

_PAGE = os.sysconf("SC_PAGE_SIZE")
_SPLIT = "inactive_split_bytes"
_COUNTED = (
    *(one + end for one in ("allocated", "active", "reserved") for end in ("_bytes", "_peak_bytes")),
    _SPLIT,
)


class Device:
    """The embedded default: host memory, from a kept descriptor of /proc/self/statm (1.2 us a read).

    Bytes held by live tensors are not given: the CPU has no caching allocator that counts them, and
    walking all objects stops a training for tens of milliseconds.
    """

    kind = "cpu"
    index: Optional[int] = None

    def __init__(self) -> None:
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def describe(self) -> Dict[str, Any]:
        """Return the kind, index and name for the hello."""
        return {"kind": self.kind, "index": self.index, "name": self.name()}

    def name(self) -> str:
        return ""

    def label(self) -> str:
        """Return the device as torch writes it."""
        return self.kind if self.index is None else "%s:%d" % (self.kind, self.index)

    def capture(self) -> Any:
        """Take the present counters as they are, for `decode`: the training thread must not wait longer.

        Raises OSError or RuntimeError when they cannot be read.
        """
        return os.pread(self._statm, 64, 0)

    def capture_at_step(self) -> Any:
        """Take what `capture` takes and what only the training thread may ask for, outside graph capture."""
        return self.capture()

    def decode(self, captured: Any) -> Dict[str, Any]:
        """Return captured counters in bytes, with the device's label."""
        # The peak only grows, so reading it late makes it no less true; Linux counts it in KiB.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {
            "rss_bytes": int(captured.split()[1]) * _PAGE,
            "rss_peak_bytes": peak,
            "device": self.label(),
        }

    def memory(self) -> Dict[str, Any]:
        """Return the present memory."""
        return self.decode(self.capture())

    def on_training_thread(self) -> None:
        """Learn what only the training thread can say (which device is current there)."""

    def is_capturing(self) -> bool:
        """Tell whether the calling thread records a graph; then nothing of ours may run on the device."""
        return False

    def oom_observer(self) -> Optional[Callable[[Callable[..., None]], Any]]:
        """Return what attaches an out-of-memory observer, for good, or None."""
        return None

    def means(self, wanted: str = "") -> Means:
        """Return what gives memory back here (reuse.py), `wanted` where there is a choice.

        Raises LookupError where nothing does.
        """
        return MallocTrim(self)

    def close(self) -> None:
        descriptor, self._statm = self._statm, -1
        if descriptor >= 0:
            os.close(descriptor)


class Accelerator(Device):
    """What cuda and npu share: a caching allocator with statistics and a card that others use too."""

    uncached_by = ""
    """The environment variable that switches the allocator's cache off."""
    counts_nothing = False
    """The cache is switched off just now, by us: torch does not count what it gets meanwhile."""

    def __init__(self, torch: Any, module: Any) -> None:
        super().__init__()
        self.torch = torch
        self.module = module
        self.index = self._busiest()
        self._names: Dict[Optional[int], str] = {}

    def _busiest(self) -> int:
        held = [
            (self._stats(self._raw(index)).get("reserved_bytes", 0), -index) for index in range(self._count())
        ]
        return -max(held)[1] if held else 0

    def _count(self) -> int:
        return int(self.module.device_count())

    def _raw(self, index: int) -> Dict[str, Any]:
        raise NotImplementedError

    @staticmethod
    def _stats(raw: Dict[str, Any]) -> Dict[str, int]:
        stats = {}
        for ours, theirs in (
            ("allocated", "allocated_bytes"),
            ("active", "active_bytes"),
            ("reserved", "reserved_bytes"),
        ):
            pool = raw.get(theirs, {}).get("all", {})
            stats[ours + "_bytes"] = int(pool.get("current", 0))
            stats[ours + "_peak_bytes"] = int(pool.get("peak", 0))
        split = raw.get(_SPLIT)
        if split is not None:
            stats[_SPLIT] = int(split.get("all", {}).get("current", 0))
        return stats

    def counters(self) -> Dict[str, int]:
        """Return the allocator's counters alone, as they are now."""
        return self._stats(self._raw(self.index or 0))

    def name(self) -> str:
        if self.index not in self._names:
            self._names[self.index] = str(self.module.get_device_name(self.index))
        return self._names[self.index]

    def capture(self) -> Any:
        index = self.index or 0
        return index, self._raw(index), None, super().capture()

    def capture_at_step(self) -> Any:
        # A call into the driver can spoil a graph that another thread captures, and only the training
        # thread knows whether one is being captured: the shim's own thread asks the allocator alone.
        index, raw, _, statm = self.capture()
        return index, raw, self.module.mem_get_info(index), statm

    def decode(self, captured: Any) -> Dict[str, Any]:
        index, raw, driver, statm = captured
        found: Dict[str, Any] = super().decode(statm)
        found.update(self._stats(raw))
        if driver is not None:
            free, total = driver
            found["device_used_bytes"] = int(total) - int(free)
            found["device_total_bytes"] = int(total)
        for_good = not self._counts(found)
        if self.counts_nothing or for_good:
            found = {name: value for name, value in found.items() if name not in _COUNTED}
        if for_good:
            found["reuse"] = "off"
        found["device"] = "%s:%d" % (self.kind, index)
        return found

    def _counts(self, found: Dict[str, Any]) -> bool:
        """Tell whether the statistics mean anything.

        With the cache switched off by its variable, before the first allocation and for good, torch counts
        nothing: no number is better than a zero that is not true.
        """
        switched_off = os.environ.get(self.uncached_by, "").strip() not in ("", "0")
        return not switched_off or found["allocated_peak_bytes"] > 0

    def is_uncached(self) -> bool:
        """Tell whether the allocator's cache is off for good."""
        return not self._counts(self.counters())

    def means(self, wanted: str = "") -> Means:
        return of_accelerator(self)

    def on_training_thread(self) -> None:
        self.index = int(self.module.current_device())


class Cuda(Accelerator):
    """The caching allocator of torch.cuda, by the call that does not flatten its answer."""

    kind = "cuda"
    uncached_by = "PYTORCH_NO_CUDA_MEMORY_CACHING"

    def _raw(self, index: int) -> Dict[str, Any]:
        return dict(self.torch._C._cuda_memoryStats(index))

    def is_capturing(self) -> bool:
        return bool(self.module.is_current_stream_capturing())

    def oom_observer(self) -> Optional[Callable[[Callable[..., None]], Any]]:
        return getattr(self.torch._C, "_cuda_attach_out_of_memory_observer", None)

    def means(self, wanted: str = "") -> Means:
        # A graph that is captured within a step, or a tensor sent to another process, fails while it is off.
        switch = getattr(self.module, "caching_allocator_enable", None)
        return of_accelerator(self, switch if wanted == "allocator" else None)


class Npu(Accelerator):
    """The caching allocator of torch_npu: `_npu_memoryStats` costs 10 us where memory_stats costs 74."""

    kind = "npu"
    uncached_by = "PYTORCH_NO_NPU_MEMORY_CACHING"

    def __init__(self, torch: Any, module: Any, torch_npu: Any) -> None:
        self.torch_npu = torch_npu
        super().__init__(torch, module)

    def _raw(self, index: int) -> Dict[str, Any]:
        return dict(self.torch_npu._C._npu_memoryStats(index))

    def oom_observer(self) -> Optional[Callable[[Callable[..., None]], Any]]:
        return getattr(self.torch_npu._C, "_npu_attach_out_of_memory_observer", None)

    def is_capturing(self) -> bool:
        check = getattr(self.module, "is_current_stream_capturing", None)
        return bool(check()) if check is not None else False


def choose(present: Device) -> Optional[Device]:
    """Return an adapter better than `present`, or None.  Asked again until an accelerator is in use."""
    if present.kind != "cpu":
        return None
    torch = sys.modules.get("torch")
    torch_npu = sys.modules.get("torch_npu")
    npu = getattr(torch_npu, "npu", None)
    if npu is not None and npu.is_initialized():
        return Npu(torch, npu, torch_npu)
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return Cuda(torch, cuda)
    return None
