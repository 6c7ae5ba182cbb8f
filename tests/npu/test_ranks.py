"""Two ranks, each on its own simulated NPU, that average their gradients by gloo: HCCL is not simulated."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.attach.trainings import COMMAND, needs_ptrace
from tests.cann_sim.simulator import Simulator

RANK = """
import os, time
import torch
import torch.distributed as dist

torch.npu.set_compile_mode(jit_compile=False)
torch.set_num_threads(1)
rank, parent, step = int(os.environ["RANK"]), os.getppid(), 0
dist.init_process_group("gloo")
torch.npu.set_device(rank)
torch.manual_seed(0)
model = torch.nn.Linear(16, 1).to("npu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(rank)
while os.getppid() == parent:
    optimizer.zero_grad()
    model(torch.randn(8, 16).to("npu")).square().mean().backward()
    for parameter in model.parameters():
        sum_of_both = parameter.grad.cpu()
        dist.all_reduce(sum_of_both)
        parameter.grad.copy_(sum_of_both / 2)
    optimizer.step()
    step += 1
    if step == 5:
        print("weights", model.weight.sum().item(), flush=True)
    time.sleep(0.02)
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@needs_ptrace
def test_each_rank_is_seen_on_its_own_device(simulator: Simulator, tmp_path: Path) -> None:
    env = simulator.environment(devices=2, ledger=tmp_path / "ledger", home=tmp_path)
    env.update(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    with ExitStack() as stack:
        ranks = []
        for rank in range(2):
            process = subprocess.Popen(
                [sys.executable, "-c", RANK],
                env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            ranks.append(process)
        weights = [next(line for line in one.stdout or () if line.startswith("weights")) for one in ranks]
        assert weights[0] == weights[1]
        words = ("attach", *(str(one.pid) for one in ranks), "--headless", "--json", "--seconds", "60")
        monitor = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True)
        stack.enter_context(monitor)
        stack.callback(monitor.kill)
        seen: dict[int, dict[str, Any]] = {}
        for line in map(json.loads, monitor.stdout or ()):
            if (
                line["target"]["state"] == "live"
                and line["plugins"]["memory"]["current"]["device_used_bytes"]
            ):
                seen[line["target"]["id"]["pid"]] = line
            if len(seen) == 2:
                break
    for rank, process in enumerate(ranks):
        target = seen[process.pid]["target"]
        assert (target["rank"], target["world_size"], target["device"]) == (rank, 2, f"npu:{rank}")
        memory = seen[process.pid]["plugins"]["memory"]["current"]
        # Nobody else is on its card.
        assert memory["device_used_bytes"] == memory["reserved_bytes"] + (64 << 20)
