"""The profilers on the simulated device: one line of JSON a case.  Run with CANN_SIM_COSTS=aclnnMm=3ms.

python profilers.py FOLDER
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch_npu
from torch.profiler import ProfilerActivity

BUFFER_BYTES = 1 << 16
KERNEL = 2


class KernelRecord(ctypes.Structure):
    """msptiActivityKernel of mspti_activity.h: packed."""

    _pack_ = 1
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("start_ns", ctypes.c_uint64),
        ("end_ns", ctypes.c_uint64),
        ("device", ctypes.c_uint32),
        ("stream", ctypes.c_uint32),
        ("correlation", ctypes.c_uint64),
        ("type", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
    )


def work() -> float:
    """Three matrix products and two additions."""
    x = torch.ones(8, 8, device="npu")
    torch.npu.synchronize()
    for _ in range(3):
        x = torch.mm(x, x)
    y = x + x
    y.add_(x)
    torch.npu.synchronize()
    return float(y[0, 0])


def mspti() -> dict[str, Any]:
    """Kernel records, read as a client in C does."""
    library = ctypes.CDLL("libmspti.so")
    buffers: list[ctypes.Array[ctypes.c_char]] = []
    records: list[dict[str, Any]] = []

    def request(buffer: Any, size: Any, most: Any) -> None:
        buffers.append(ctypes.create_string_buffer(BUFFER_BYTES))
        buffer[0], size[0], most[0] = ctypes.addressof(buffers[-1]), BUFFER_BYTES, 0

    def complete(buffer: int, size: int, valid: int) -> None:
        record = ctypes.c_void_p()
        while (
            library.msptiActivityGetNextRecord(
                ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)
            )
            == 0
        ):
            one = KernelRecord.from_address(record.value or 0)
            records.append({name: getattr(one, name) for name, _ in KernelRecord._fields_})

    size_p = ctypes.POINTER(ctypes.c_size_t)
    requested = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), size_p, size_p)(request)
    completed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)(complete)
    subscriber = ctypes.c_void_p()
    codes = [
        library.msptiSubscribe(ctypes.byref(subscriber), None, None),
        library.msptiActivityRegisterCallbacks(requested, completed),
        library.msptiActivityEnable(KERNEL),
    ]
    work()
    codes += [library.msptiActivityFlushAll(1), library.msptiActivityDisable(KERNEL)]
    work()
    codes += [library.msptiActivityFlushAll(1), library.msptiUnsubscribe(subscriber)]
    for one in records:
        one["name"], one["type"] = one["name"].decode(), one["type"].decode()
    return {"codes": codes, "records": records}


def torch_profiler(folder: Path) -> dict[str, Any]:
    """torch.profiler with its NPU activity, which takes its kernels from msPTI."""
    with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profile:
        work()
    path = folder / "trace.json"
    profile.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    kernels = [one for one in events if one.get("cat") == "kernel"]
    return {
        "kernels": Counter(one["name"] for one in kernels),
        "mm_us": [one["dur"] for one in kernels if "Mm" in one["name"]],
        "host": sorted({one["name"] for one in events if one.get("cat") == "cpu_op"}),
    }


def one_step(folder: Path) -> dict[str, Any]:
    """A capture of one step by torch_npu.profiler."""
    profiler = torch_npu.profiler
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        schedule=profiler.schedule(wait=1, warmup=1, active=1, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(str(folder), analyse_flag=True),
    ) as profile:
        for _ in range(4):
            work()
            profile.step()
    traces = list(folder.rglob("trace_view.json"))
    events = json.loads(traces[0].read_text())
    return {
        "captures": len(traces),
        "files": sorted(one.name for one in traces[0].parent.iterdir()),
        "categories": Counter(str(one.get("cat")) for one in events),
        "names": sorted({one["name"] for one in events if one.get("ph") == "X"}),
    }


if __name__ == "__main__":
    torch.npu.set_compile_mode(jit_compile=False)
    place = Path(sys.argv[1])
    print(json.dumps({"case": "mspti", **mspti()}), flush=True)
    print(json.dumps({"case": "torch_profiler", **torch_profiler(place)}), flush=True)
    print(json.dumps({"case": "one_step", **one_step(place / "npu")}), flush=True)
