"""Run stock torch code on the NPU and on the CPU, and print how far the two are apart: one JSON line a case.

    python arithmetic.py GROUP ...

Both compute single-threaded, so where the simulator runs the CPU's own kernel the numbers are equal bit for
bit.  test_numbers.py, whose child this is, knows what is expected of each case.
"""

from __future__ import annotations

import json
import re
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

Case = Callable[[str], "list[torch.Tensor]"]
"""Computes something on a device."""


def apart(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    """Return the largest difference; infinite where a shape, a type or the place of an infinity differs."""
    assert len(one) == len(other) > 0
    worst = 0.0
    for left, right in zip(one, other):
        a, b = left.detach().cpu(), right.detach().cpu()
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if not torch.equal(a, b):
            gaps = (a.double() - b.double()).abs()[(a != b) & ~(a.isnan() & b.isnan())]
            worst = max([worst, *gaps.nan_to_num(float("inf")).tolist()])
    return worst


def compare(case: Case) -> dict[str, Any]:
    """Return how far the NPU is from the CPU."""
    torch.manual_seed(0)
    wanted = case("cpu")
    torch.manual_seed(0)
    return {"apart": apart(wanted, case("npu"))}


def missing(_: Any) -> dict[str, Any]:
    """Return what is said of ops that are not simulated.  Nothing can be computed after the old form."""
    told = {}
    for form, call in {"aclnn": torch.linalg.qr, "aclop": lambda x: torch.norm(x, 4).item()}.items():
        try:
            told[form] = f"returned {call(torch.eye(3, device='npu'))}"
        except RuntimeError as error:
            told[form] = str(error)
    return told


def failing(_: Any) -> dict[str, Any]:
    """Return what is said when a kernel cannot compute.  The device is dead from then on."""
    try:
        return {"said": str(torch.eye(3, device="npu")[torch.tensor([7], device="npu")].tolist())}
    except RuntimeError as error:
        return {"said": str(error)}


def main(asked: list[str]) -> None:
    """Run the groups of cases that are asked for, or single cases of them: "trainings:gpt sdpa"."""
    from layers import FUNCTIONS, LAYERS
    from learning import MIXED, TRAININGS
    from states import STATES

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.npu.set_compile_mode(jit_compile=False)  # an Ascend910A compiles its ops unless it is told not to
    groups: dict[str, tuple[Callable[[Any], dict[str, Any]], dict[str, Any]]] = {
        "layers": (compare, LAYERS),
        "functions": (compare, FUNCTIONS),
        "trainings": (compare, TRAININGS),
        "mixed": (compare, MIXED),
        "state": (lambda state: {"holds": state()}, STATES),
        "missing": (missing, {"missing": None}),
        "failing": (failing, {"failing": None}),
    }
    for group, _, one in (word.partition(":") for word in asked):
        run, cases = groups[group]
        for name in [one] if one else cases:
            started = time.perf_counter()
            try:
                told = run(cases[name])
            except Exception as error:
                told = {"error": re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")[:500]}
            print(
                json.dumps({"case": name, **told, "s": round(time.perf_counter() - started, 2)}), flush=True
            )


if __name__ == "__main__":
    main(sys.argv[1:])
