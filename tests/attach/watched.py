"""A training that knows nothing of us, and of which the tests can ask what it finds of us in itself.

It forks two DataLoader workers, anew for each epoch, and appends a line `step hash` of all losses and
parameters to a file every few steps, so that two runs can be compared bit for bit.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    gc.disable()  # see collect_again()

import torch
from torch.nn.modules import module
from torch.optim import optimizer as optimizers
from torch.overrides import _len_torch_function_stack
from torch.utils._python_dispatch import _len_torch_dispatch_stack
from torch.utils.data import DataLoader, TensorDataset

EVERY = 10


def collect_again() -> None:
    """Let garbage be collected, as in any training, once the optimizer is made; what there is counts as old.

    Until then thousands of modules are imported, of which nothing is garbage; looking for some takes a fifth
    of a training's start.
    """
    gc.freeze()
    gc.unfreeze()
    gc.enable()


def own_view() -> dict[str, Any]:
    """Return what is left of a monitor, seen from inside."""
    return {
        "modules": sorted(name for name in sys.modules if "ascend_tui" in name),
        "threads": sorted(one.name for one in threading.enumerate()),
        "optimizer_hooks": len(optimizers._global_optimizer_post_hooks),
        "module_hooks": len(module._global_forward_hooks) + len(module._global_forward_pre_hooks),
        "modes": _len_torch_dispatch_stack() + _len_torch_function_stack(),
        "main_names": sorted(name for name in vars(sys.modules["__main__"]) if "ascend" in name),
    }


def train() -> int:
    """Train until the steps are done or the parent is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--sleep", type=float, default=0.015)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--exit", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    multiprocessing.set_start_method("fork")
    torch.manual_seed(3)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(400, 16), torch.randn(400, 1))
    net = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1)
    )
    if asked.device != "cpu":
        torch.npu.set_compile_mode(jit_compile=False)
    net = net.to(asked.device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    collect_again()
    digest = hashlib.sha256()
    question, parent, step = asked.folder / "question", os.getppid(), 0
    with open(asked.folder / "hashes", "w", buffering=1) as out:
        while step < asked.steps and os.getppid() == parent:
            loader = DataLoader(data, 4, shuffle=True, num_workers=asked.workers)
            for features, label in loader:
                loss = ((net(features.to(asked.device)) - label.to(asked.device)) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                digest.update(loss.detach().cpu().numpy().tobytes())
                if step % EVERY == 0:
                    for parameter in net.parameters():
                        digest.update(parameter.detach().cpu().numpy().tobytes())
                    out.write(f"{step} {digest.hexdigest()}\n")
                    if os.getppid() != parent:
                        break
                if (asked.folder / "stop").exists():
                    return int(asked.exit)
                if question.exists():
                    question.unlink()
                    draft = asked.folder / "answer.new"
                    draft.write_text(json.dumps(own_view()))
                    draft.rename(asked.folder / "answer")
                if step >= asked.steps:
                    break
                time.sleep(asked.sleep)
    return int(asked.exit)


if __name__ == "__main__":
    code = train()
    gc.freeze()  # to leave sooner: there are many of these
    sys.exit(code)
