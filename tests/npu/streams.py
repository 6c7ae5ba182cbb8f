"""Streams, events and a race on the simulated device: one line of JSON a case.

Run with CANN_SIM_COSTS=aclnnMm=20ms;aclnnInplaceFillScalar=50ms.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import torch
from torch_npu.npu import _sanitizer

MATMULS, MATMUL_MS = 5, 20


def order_and_time() -> dict[str, Any]:
    """Launches return at once, waits take as long as the work, events tell how long it took."""
    x = torch.ones(8, 8, device="npu")
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    torch.npu.synchronize()
    begin = time.monotonic()
    start.record()
    for _ in range(MATMULS):
        x = torch.mm(x, x) / 8
    end.record()
    launched = time.monotonic()
    early = end.query()
    end.synchronize()
    waited = time.monotonic()
    return {
        "early": early,
        "late": end.query(),
        "share_of_the_wait": (waited - launched) / (waited - begin),
        "elapsed_ms": start.elapsed_time(end),
        "sum": float(x.sum()),
    }


def overlap() -> dict[str, Any]:
    """Two streams work at the same time."""
    x = torch.ones(8, 8, device="npu")
    streams = [torch.npu.Stream(), torch.npu.Stream()]
    marks = [[torch.npu.Event(enable_timing=True) for _ in range(2)] for _ in streams]
    torch.npu.synchronize()
    for stream, (start, end) in zip(streams, marks):
        with torch.npu.stream(stream):
            start.record()
            for _ in range(MATMULS):
                torch.mm(x, x)
            end.record()
    torch.npu.synchronize()
    return {
        "second_starts_ms_before_first_ends": marks[1][0].elapsed_time(marks[0][1]),
        "busy_ms": [start.elapsed_time(end) for start, end in marks],
    }


def race(wait: bool) -> float:
    """Write a tensor on one stream and read it on another, with or without waiting for the writer."""
    x = torch.zeros(4, device="npu")
    other = torch.npu.Stream()
    torch.npu.synchronize()
    written = torch.npu.Event()
    x.fill_(7)
    written.record()
    with torch.npu.stream(other):
        if wait:
            other.wait_event(written)
        y = x + 0
    torch.npu.synchronize()
    return float(y[0])


def found_by_the_sanitizer() -> dict[str, Any]:
    """What torch_npu's stream sanitizer says of the race; it cannot be switched off again."""
    x = torch.zeros(4, device="npu")
    other = torch.npu.Stream()
    _sanitizer.enable_npu_sanitizer()
    with torch.npu.stream(other):
        other.wait_stream(torch.npu.current_stream())
    x.fill_(1)
    with torch.npu.stream(other):
        try:
            x + 0
        except Exception as error:
            return {"kind": type(error).__name__, "said": [str(one) for one in error.errors]}
    return {"kind": None, "said": []}


def released_gil() -> dict[str, Any]:
    """Another thread goes on while this one waits for the device."""
    x = torch.ones(8, 8, device="npu")
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.002):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    for _ in range(MATMULS):
        torch.mm(x, x)
    begin = time.monotonic()
    torch.npu.synchronize()
    end = time.monotonic()
    stop.set()
    thread.join()
    return {"ticks_while_waiting": len([one for one in ticks if begin < one < end])}


if __name__ == "__main__":
    torch.npu.set_compile_mode(jit_compile=False)
    for name, case in (
        ("order_and_time", order_and_time),
        ("overlap", overlap),
        ("race", lambda: {"with_a_wait": race(True), "without": race(False)}),
        ("released_gil", released_gil),
        ("found_by_the_sanitizer", found_by_the_sanitizer),
    ):
        print(json.dumps({"case": name, **case()}), flush=True)
