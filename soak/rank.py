"""One rank of a small job; gradients are averaged by gloo, so each rank waits for the others in each step."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> int:
    folder, rank, step = Path(sys.argv[1]), int(os.environ["RANK"]), 0
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    parent = os.getppid()
    while os.getppid() == parent:
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        step += 1
        (folder / "step").write_text(f"{step} {model.weight.sum().item()!r}")
        time.sleep(0.02)
    return 0


if __name__ == "__main__":
    sys.exit(main())
