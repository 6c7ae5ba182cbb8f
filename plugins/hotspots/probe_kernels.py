"""The kernels of a step on an NPU, as msPTI tells them: only where its library is in the process already.

Layouts and names are those of the public mspti_activity.h.  The device lags behind the host, so that what is
told is a stretch as long as the host's step that begins with the first kernel of it: in a steady training
these are as many kernels as a step has, though not all of them the very same ones.
"""

import collections
import ctypes
import os
import threading
import time
from typing import Any

KERNEL = 2
BUFFER = 1 << 20
MOST_BUFFERS = 64
LEAST_LAG_S, MOST_LAG_S = 0.05, 2.0
"""What is waited for the device: as long as the step took, so that one that lags by a whole step is seen."""
MOST_KERNELS = 400_000
MOST_ROWS = 120
HOUR_NS = 3600 * 10**9


def setup(api):
    """Leave it for the files that come after."""
    api.kernels = Kernels(api)


class Record(ctypes.Structure):
    """msptiActivityKernel: packed, its size a multiple of 8; times are nanoseconds of the wall clock.

    Names are addresses: should another version lay them elsewhere, following them would end the training.
    """

    _pack_ = 1
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("device", ctypes.c_uint32),
        ("stream", ctypes.c_uint32),
        ("correlation", ctypes.c_uint64),
        ("type", ctypes.c_uint64),
        ("name", ctypes.c_uint64),
        ("padding", ctypes.c_uint32),
    )


REQUEST = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
COMPLETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class Kernels:
    """msPTI's monitor of kernels, on in a recorded step."""

    def __init__(self, api):
        self.api = api
        self.why = ""
        """Why kernels are not timed: no library, taken, refused, strange, or what the loader said."""
        self.library: Any = None
        self.is_on = False
        self._is_strange = False
        self._lock = threading.Lock()
        self._handle = ctypes.c_void_p()
        self._buffers: dict[int, Any] = {}
        self._records: list[Any] = []
        self._names: dict[int, bytes] = {}
        self._request: Any = None
        self._complete: Any = None
        api.on_close(self.close)

    def begin(self):
        """Switch it on, where there is one; on the training thread."""
        if getattr(self.api.device, "kind", "") != "npu":
            return
        if not self._load():
            return
        library = self.library
        if library.msptiSubscribe(ctypes.byref(self._handle), None, None):
            self.why = "taken"
            return
        self._records = []
        library.msptiActivityRegisterCallbacks(self._request, self._complete)
        if library.msptiActivityEnable(KERNEL):
            library.msptiUnsubscribe(self._handle)
            self.why = "refused"
            return
        self.why = ""
        self.is_on = True

    def end(self, began_ns, ended_ns):
        """Return the stretch that is to be told of later, or None; on the training thread."""
        if not self.is_on:
            return None
        return Stretch(self, began_ns, ended_ns)

    def _load(self):
        if self.library is not None or self._is_strange:
            return not self._is_strange
        path = _loaded("libmspti.so")
        if path is None:
            self.why = "no library"
            return False
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            _declare(library)
            # What the library calls has to live as long as it may call, on a page with code of its own.
            self._request, self._complete = REQUEST(self._give), COMPLETE(self._take)
            self.api.leaves("one page with code, for calls of msPTI (ctypes keeps it for other calls)")
            self.library = library
        except (OSError, AttributeError) as error:
            self.why = str(error)[:200]
            return False
        return True

    def finish(self):
        """Switch it off and return the records; on the shim's thread."""
        if not self.is_on:
            return []
        self.is_on = False
        library = self.library
        library.msptiActivityFlushAll(1)
        library.msptiActivityDisable(KERNEL)
        library.msptiUnsubscribe(self._handle)
        records, self._records = self._records, []
        now_ns = time.time_ns()
        if any(not 0 <= end - start < HOUR_NS or abs(now_ns - end) > HOUR_NS for start, end, *_ in records):
            # Not what this version of the library writes: nothing of it is to be trusted.
            self.why, self.library, self._is_strange = "strange", None, True
            return []
        self._texts({name for *_, name, _ in records} | {core for *_, core in records})
        names = self._names
        return [(start, end, stream, names[name], names[core]) for start, end, stream, name, core in records]

    def close(self):
        """Leave nothing on."""
        self.finish()

    # Called by the library, on a thread of its own or on the one that flushes.

    def _give(self, buffer, size, most):
        size[0], most[0] = 0, 0
        if len(self._buffers) < MOST_BUFFERS:
            memory = ctypes.create_string_buffer(BUFFER + 8)
            # Records are read in place: they want eight bytes each.
            address = (ctypes.addressof(memory) + 7) & ~7
            with self._lock:
                self._buffers[address] = memory
            buffer[0], size[0] = address, BUFFER

    def _take(self, address, size, valid):
        with self._lock:
            memory = self._buffers.pop(address, None)
        if memory is None or not valid:
            return
        at = ctypes.c_void_p()
        get = self.library.msptiActivityGetNextRecord
        last = address + min(valid, BUFFER) - ctypes.sizeof(Record)
        while len(self._records) < MOST_KERNELS and not get(address, valid, ctypes.byref(at)):
            if at.value is None or not address <= at.value <= last:
                break
            one = Record.from_address(at.value)
            if one.kind == KERNEL:
                self._records.append((one.start, one.end, one.stream, one.name, one.type))

    def _texts(self, addresses):
        """Read names where they lie, through the kernel: a wrong address is an error then and no fault."""
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            for address in addresses - set(self._names):
                try:
                    text = os.pread(memory.fileno(), 256, address)
                except (OSError, OverflowError):
                    text = b"?"
                self._names[address] = text.partition(b"\0")[0]


class Stretch:
    """A stretch of the wall clock on the device."""

    def __init__(self, kernels, began_ns, ended_ns):
        self.kernels, self.began_ns, self.ended_ns = kernels, began_ns, ended_ns
        self.is_told = False
        lag_s = min(max((ended_ns - began_ns) / 1e9, LEAST_LAG_S), MOST_LAG_S)
        self._over_ns = ended_ns + int(lag_s * 1e9)

    def is_over(self):
        """Tell whether the device has had its time."""
        return time.time_ns() >= self._over_ns

    def told(self, data_spans):
        """Return the kernels by name, and how the device spent the time; on the shim's thread.

        `data_spans` are microseconds from the begin in which the host waited for data.
        """
        records = self.kernels.finish()
        length = self.ended_ns - self.began_ns
        low = min([start for start, end, *_ in records if end > self.began_ns] or [self.began_ns])
        low = max(low, self.began_ns)
        high = low + length
        sums: dict[Any, Any] = collections.defaultdict(lambda: [0, 0, 0, 1 << 62])
        busy = []
        for start, end, _, name, core in records:
            if min(end, high) > max(start, low):
                busy.append((max(start, low), min(end, high)))
            if low <= start < high:
                # Whole: cut at an end it would count as a short one.
                one, took = sums[(name, core)], end - start
                one[0] += 1
                one[1] += took
                one[2], one[3] = max(one[2], took), min(one[3], took)
        gaps = _gaps(busy, low, high)
        data = [(low + began * 1e3, low + ended * 1e3) for began, ended in data_spans]
        in_data = sum(
            max(0, min(high_, ended) - max(low_, began)) for low_, high_ in gaps for began, ended in data
        )
        idle = sum(end - start for start, end in gaps)
        rows = [
            {
                "name": name.decode("utf-8", "replace")[:256],
                "core": core.decode("utf-8", "replace")[:64],
                "calls": calls,
                "self_us": round(total / 1e3, 3),
                "max_us": round(most / 1e3, 3),
                "min_us": round(least / 1e3, 3),
            }
            for (name, core), (calls, total, most, least) in sums.items()
        ]
        rows.sort(key=lambda one: -one["self_us"])
        return {
            "rows": rows[:MOST_ROWS],
            "count": len(rows),
            "self_us": round(sum(one["self_us"] for one in rows), 3),
            "kernels": sum(calls for calls, *_ in sums.values()),
            "idle_us": round(idle / 1e3, 1),
            "busy_us": round((high - low - idle) / 1e3, 1),
            "in_data_us": round(in_data / 1e3, 1),
            "longest_idle_us": round(max([end - start for start, end in gaps] or [0]) / 1e3, 1),
        }


def _declare(library):
    """Give the functions their types; raises AttributeError where one is missing."""
    pointer = ctypes.c_void_p
    library.msptiSubscribe.argtypes = (ctypes.POINTER(pointer), pointer, pointer)
    library.msptiUnsubscribe.argtypes = (pointer,)
    library.msptiActivityRegisterCallbacks.argtypes = (REQUEST, COMPLETE)
    for name in ("msptiActivityEnable", "msptiActivityDisable", "msptiActivityFlushAll"):
        getattr(library, name).argtypes = (ctypes.c_uint32,)
    library.msptiActivityGetNextRecord.argtypes = (pointer, ctypes.c_size_t, ctypes.POINTER(pointer))


def _gaps(busy, low, high):
    """Return where no kernel ran."""
    gaps, at = [], low
    for start, end in sorted(busy):
        if start > at:
            gaps.append((at, start))
        at = max(at, end)
    if high > at:
        gaps.append((at, high))
    return gaps


def _loaded(name):
    """Return the path of a library that is in this process, or None."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")
                if path[2].rpartition("/")[2].startswith(name):
                    return "/" + path[2]
    except OSError:
        return None
    return None
