"""What torch_npu says of numbers that are too large, on one chip: one line of JSON a case.

python chips.py CASE ...
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch_npu
from torch_npu.npu import utils


def said(call: Any) -> Any:
    """Return what the call returned, or what it raised."""
    try:
        return call()
    except RuntimeError as error:
        return str(error)


def chip() -> dict[str, Any]:
    """What kind of chip torch_npu takes it for."""
    return {"name": torch.npu.get_device_name(0), "inf_nan": utils.is_support_inf_nan()}


def numbers() -> dict[str, str]:
    """Results that do not fit."""
    half = torch.full((2,), 60000.0, dtype=torch.float16).npu()
    zero = torch.zeros(2).npu()
    one = torch.ones(2).npu()
    return {
        "half": str((half * 2).cpu()[0].item()),
        "negative": str((half * -2).cpu()[0].item()),
        "float": str((one / zero).cpu()[0].item()),
        "nan": str((zero / zero).cpu()[0].item()),
        "fits": str((half + 0).cpu()[0].item()),
    }


def register() -> list[Any]:
    """The sticky register: set by an op, kept, cleared."""
    half = torch.full((2,), 60000.0, dtype=torch.float16).npu()
    told = [said(utils.clear_npu_overflow_flag), said(utils.get_npu_overflow_flag)]
    half * 2
    told += [said(utils.get_npu_overflow_flag), said(utils.get_npu_overflow_flag)]
    half + 0
    told += [
        said(utils.get_npu_overflow_flag),
        said(utils.clear_npu_overflow_flag),
        said(utils.get_npu_overflow_flag),
    ]
    return told


def raw_register() -> list[float]:
    """The same by torch_npu's three ops, in the order of the stream."""
    status = torch_npu.npu_alloc_float_status(torch.zeros(8).npu())
    half = torch.full((2,), 60000.0, dtype=torch.float16).npu()
    told = [float(status.abs().sum())]
    for _ in range(2):
        half * 2
        read = torch_npu.npu_get_float_status(torch.zeros(8).npu())
        torch_npu.npu_clear_float_status(read)
        again = torch_npu.npu_get_float_status(torch.zeros(8).npu())
        told += [float(read[0]), float(again[0])]
    return told


def masked() -> dict[str, Any]:
    """An infinity that is put in on purpose is no overflow."""
    utils.clear_npu_overflow_flag()
    scores = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).npu()
    mask = torch.tensor([[False, True], [False, False]]).npu()
    kept = torch.softmax(scores.masked_fill(mask, float("-inf")), -1)
    return {"kept": kept.cpu().tolist(), "flag": said(utils.get_npu_overflow_flag)}


def scaler() -> dict[str, Any]:
    """An overflow in the backward pass: the gradients are finite where the chip saturates."""
    model = torch.nn.Linear(8, 8).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    grad_scaler = torch.amp.GradScaler("npu", init_scale=2.0**34)
    before = model.weight.detach().cpu().clone()
    with torch.autocast("npu", torch.float16):
        loss = model(torch.ones(4, 8).npu()).float().pow(2).mean()
    grad_scaler.scale(loss).backward()
    finite = bool(torch.isfinite(model.weight.grad.cpu()).all())
    grad_scaler.step(optimizer)
    grad_scaler.update()
    return {
        "scale": grad_scaler.get_scale(),
        "finite": finite,
        "stepped": not torch.equal(before, model.weight.detach().cpu()),
    }


def old_way() -> str:
    """An op that has no aclnn on this chip; the last case: torch_npu's queue is dead after it."""
    image, weight = torch.ones(1, 1, 4, 4).npu(), torch.ones(1, 1, 2, 2).npu()
    return str(said(lambda: torch.conv2d(image, weight).sum().item()))


if __name__ == "__main__":
    torch.npu.set_compile_mode(jit_compile=False)
    for case in sys.argv[1:]:
        print(json.dumps({"case": case, "told": globals()[case]()}), flush=True)
