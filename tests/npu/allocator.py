"""What the caching allocator of torch_npu says on the simulated devices: one line of JSON a case.

python allocator.py CASE ...
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch

MIB = 1 << 20


def floats(mib: float, device: str = "npu:0") -> torch.Tensor:
    """Return a tensor of so many MiB."""
    return torch.empty(int(mib * MIB) // 4, device=device)


def used(device: int = 0) -> int:
    """Return the bytes of the device that anybody holds."""
    free, total = torch.npu.mem_get_info(device)
    return total - free


def numbers(device: int = 0) -> dict[str, int]:
    """Return the four numbers of the memory pane."""
    stats = torch.npu.memory_stats(device)
    return {
        "allocated": torch.npu.memory_allocated(device),
        "active": stats.get("active_bytes.all.current", 0),
        "reserved": torch.npu.memory_reserved(device),
        "used": used(device),
    }


def plain() -> dict[str, Any]:
    """Two tensors, one of them dropped, then the cache given back."""
    before = used()
    kept, dropped = floats(100), floats(60)
    both = numbers()
    del dropped
    one = numbers()
    torch.npu.empty_cache()
    told = {"before": before, "both": both, "one": one, "emptied": numbers()}
    del kept
    return {**told, "total": torch.npu.mem_get_info()[1], "summary": torch.npu.memory_summary()}


def out_of_memory() -> dict[str, Any]:
    """More than the device has; and the training goes on."""
    kept = floats(300)
    try:
        floats(2000)
    except torch.OutOfMemoryError as error:
        said = str(error)
    return {"said": said, "kind": torch.OutOfMemoryError.__name__, "after": float((kept[:4].fill_(1)).sum())}


def fragmentation() -> dict[str, Any]:
    """Every second block dropped: what is left free fits nothing large, and cannot be given back."""
    torch.npu.empty_cache()
    blocks = [floats(9) for _ in range(20)]
    del blocks[::2]
    torch.npu.empty_cache()
    segments = torch.npu.memory_snapshot()
    told = {**numbers(), "segments": len(segments)}
    told["inactive"] = torch.npu.memory_stats()["inactive_split_bytes.all.current"]
    return told


def two_devices() -> dict[str, Any]:
    """Tensors on two devices, a copy across, a thread with its own current device."""
    import threading

    here, there = torch.ones(MIB, device="npu:0"), torch.ones(3 * MIB, device="npu:1")
    across = here.to("npu:1") + there[:MIB]
    seen: list[int] = []

    def other() -> None:
        seen.append(torch.npu.current_device())
        torch.npu.set_device(1)
        seen.append(torch.empty(2, device="npu").device.index)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    try:
        torch.empty(1, device="npu:2")
    except RuntimeError as error:
        refused = str(error)
    return {
        "count": torch.npu.device_count(),
        "allocated": [torch.npu.memory_allocated(device) for device in (0, 1)],
        "used": [used(device) for device in (0, 1)],
        "sum": float(across.sum().cpu()),
        "thread": seen,
        "main": torch.npu.current_device(),
        "refused": refused,
    }


def uncached() -> dict[str, Any]:
    """What PYTORCH_NO_NPU_MEMORY_CACHING=1 leaves of the statistics."""
    before = used()
    kept = floats(100)
    held = numbers()
    sums = []
    for _ in range(50):
        # Freed while the stream may still work on it.
        sums.append(((floats(1).fill_(2) * 3)[:10]).sum())
    total = float(torch.stack(sums).sum())
    del kept, sums
    return {
        "before": before,
        "held": held,
        "total": total,
        "after": used(),
        "snapshot": len(torch.npu.memory_snapshot()),
    }


def expandable() -> dict[str, Any]:
    """Expandable segments grow where they lie, and give memory back from their end."""
    kept = [floats(30).fill_(number) for number in range(5)]
    held = numbers()
    kind = {one["segment_type"] for one in torch.npu.memory_snapshot()}
    values = [float(one[-1]) for one in kept]
    del kept[2:]
    torch.npu.empty_cache()
    return {
        "held": held,
        "kinds": sorted(kind),
        "values": values,
        "emptied": numbers(),
        "expandable": any(one.get("is_expandable") for one in torch.npu.memory_snapshot()),
    }


def neighbour() -> None:
    """Hold 200 MiB, and say what the device has lost with each line that is read."""
    kept = floats(200)
    torch.npu.synchronize()
    print(used(), flush=True)
    for _ in sys.stdin:
        print(used(), flush=True)
    assert kept.numel()
    os._exit(0)


if __name__ == "__main__":
    torch.npu.set_compile_mode(jit_compile=False)
    torch.empty(1, device="npu:0")  # opens the device
    torch.npu.empty_cache()
    if sys.argv[1:] == ["neighbour"]:
        neighbour()
    for case in sys.argv[1:]:
        print(json.dumps({"case": case, **globals()[case]()}), flush=True)
