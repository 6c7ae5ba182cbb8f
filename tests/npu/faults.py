"""What torch_npu says when a simulated device fails: one line of JSON a case.

python faults.py CASE ...
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

CANN = ctypes.CDLL("libascendcl.so")
X = torch.arange(-4.0, 5.0)


def control(words: str) -> int:
    """Ask for faults; nonzero if the words were not understood."""
    return int(CANN.cann_sim_control(words.encode()))


def caught(call: Callable[[], Any]) -> dict[str, Any]:
    """Return what the call raised, and at which lines of this file."""
    try:
        call()
    except RuntimeError as error:
        frames = traceback.extract_tb(error.__traceback__)
        return {"said": str(error), "lines": [one.line for one in frames if one.filename == __file__]}
    return {"said": "", "lines": []}


def values(x: torch.Tensor) -> float:
    """Return a number that needs both ops to have run."""
    return float(torch.relu(x).sum())


def failures() -> list[dict[str, Any]]:
    """Each kind of device failure: the op, two waits, and a device as good as new."""
    x = X.npu()
    told = []
    for words in (
        "exception op=aclnnRelu",
        "exception op=aclnnRelu code=507015",
        "exception op=aclnnRelu code=507011",
        "timeout op=aclnnRelu",
        "timeout op=aclnnRelu code=507034",
        "ecc op=aclnnRelu",
    ):
        control(words)
        y = torch.relu(x)
        first, second = caught(lambda y=y: y.sum().item()), caught(lambda: torch.npu.synchronize())
        control("heal")
        told.append({"words": words, "first": first, "second": second, "healed": values(x)})
    return told


def waits() -> dict[str, Any]:
    """Each way to wait for a device that has failed."""
    x, event = X.npu(), torch.npu.Event()
    control("exception op=aclnnRelu")
    y = torch.relu(x)
    event.record()
    time.sleep(0.1)
    told = {
        "item": caught(lambda: y.sum().item()),
        "cpu": caught(lambda: y.cpu()),
        "device": caught(lambda: torch.npu.synchronize()),
        "stream": caught(lambda: torch.npu.current_stream().synchronize()),
        "event": caught(lambda: event.synchronize()),
        "query": caught(lambda: event.query()),
    }
    control("heal")
    return told


def counting() -> dict[str, Any]:
    """The third run of an op, the second of any, and a hang that was given up before it came."""
    x = X.npu()
    values(x)
    control("exception op=aclnnRelu at=3")
    one = [bool(caught(lambda: values(x))["said"]) for _ in range(4)]
    control("heal; exception op=* at=2")
    two = [bool(caught(lambda: torch.relu(x).cpu())["said"]) for _ in range(3)]
    control("heal; hang op=aclnnRelu; release")
    return {"third": one, "any": two, "given up": values(x)}


def rejected() -> dict[str, Any]:
    """A parameter error is raised where it is, and nothing stays."""
    x = X.npu()
    control("reject op=aclnnRelu")
    return {"error": caught(lambda: torch.relu(x)), "after": values(x)}


def hangs() -> dict[str, Any]:
    """Each way to wait while a kernel never ends; another thread must go on."""
    x, event, ticks = X.npu(), torch.npu.Event(), []
    over = threading.Event()

    def tick() -> None:
        while not over.wait(0.02):
            ticks.append(time.monotonic())

    def by_event(_: torch.Tensor) -> None:
        event.record()
        event.synchronize()

    def hang(wait: Callable[[torch.Tensor], Any]) -> dict[str, float]:
        control("hang op=aclnnRelu")
        y = torch.relu(x)
        threading.Timer(0.3, control, ["release"]).start()
        start = time.monotonic()
        wait(y)
        end = time.monotonic()
        return {"seconds": end - start, "ticks": sum(start < at < end for at in ticks)}

    thread = threading.Thread(target=tick)
    thread.start()
    told: dict[str, Any] = {
        "item": hang(lambda y: y.sum().item()),
        "cpu": hang(lambda y: y.cpu()),
        "device": hang(lambda _: torch.npu.synchronize()),
        "stream": hang(lambda _: torch.npu.current_stream().synchronize()),
        "event": hang(by_event),
    }
    over.set()
    thread.join()
    return {**told, "after": values(x)}


def full_queue() -> dict[str, Any]:
    """A launch that does not return: the training stops where it enqueues, once the queue is full."""
    x = torch.zeros(1).npu()
    torch.relu(x)
    torch.npu.synchronize()
    control("hang-launch op=aclnnRelu")
    torch.relu(x)
    threading.Timer(1.5, control, ["release"]).start()
    longest, at, last = 0.0, 0, time.monotonic()
    for number in range(5000):
        x.add_(1)
        now = time.monotonic()
        if now - last > longest:
            longest, at = now - last, number
        last = now
    return {"longest": longest, "at": at, "sum": float(x)}


def time_limits() -> dict[str, Any]:
    """Waits that run out of the time they were given."""
    x = X.npu()
    control("hang op=aclnnRelu")
    y = torch.relu(x)
    os.environ["ACL_STREAM_TIMEOUT"] = "200"  # milliseconds
    os.environ["ACL_DEVICE_SYNC_TIMEOUT"] = "1"  # seconds
    told = {
        "stream": caught(lambda: torch.npu.current_stream().synchronize()),
        "device": caught(lambda: torch.npu.synchronize()),
    }
    del os.environ["ACL_STREAM_TIMEOUT"], os.environ["ACL_DEVICE_SYNC_TIMEOUT"]
    control("release")
    return {**told, "after": float(y.sum())}


def words() -> dict[str, int]:
    """Words that mean nothing are refused, and change nothing."""
    bad = (
        "nonsense",
        "exception",
        "exception op=",
        "exception op=aclnnRelu at=0",
        "exception op=aclnnRelu at=x",
        "exception op=aclnnRelu code=1",
        "ecc op=aclnnRelu code=507015",
        "release op=aclnnRelu",
        "exception op=aclnnRelu; nonsense",
    )
    told = {one: control(one) for one in bad}
    values(X.npu())
    return {**told, " ; ": control(" ; ")}


def blocking() -> dict[str, Any]:
    """The same with ASCEND_LAUNCH_BLOCKING=1: each error is raised by its op."""
    x = X.npu()
    control("exception op=aclnnRelu")
    failure = caught(lambda: torch.relu(x))
    control("heal; refuse op=aclnnRelu")
    refusal = caught(lambda: torch.relu(x))
    return {"failure": failure, "refusal": refusal, "after": values(x)}


def refused() -> dict[str, Any]:
    """A launch error reaches the training at some later op; the last case: the queue is dead after it."""
    x = X.npu()
    values(x)
    control("refuse op=aclnnRelu")
    torch.relu(x)
    time.sleep(0.3)
    return {"later": caught(lambda: x.add_(1)), "again": caught(lambda: x.add_(1)), "value": x.cpu().tolist()}


def compact() -> dict[str, Any]:
    """The same with TORCH_NPU_COMPACT_ERROR_OUTPUT=1; the device stays as it is."""
    x = X.npu()
    control("reject op=aclnnRelu at=2")
    control("exception op=aclnnRelu")
    y = torch.relu(x)
    return {"failure": caught(lambda: y.sum().item()), "rejected": caught(lambda: torch.relu(x))}


if __name__ == "__main__":
    torch.npu.set_compile_mode(jit_compile=False)
    for case in sys.argv[1:]:
        print(json.dumps({"case": case, "told": globals()[case]()}), flush=True)
