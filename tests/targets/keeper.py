"""A training that keeps each loss in a list, and some memory that pins segments where it has an allocator.

It prints a hash of the parameters every few steps, and at its end whether a memory history is on.  With
--fill it then allocates until its device is full.
"""

import argparse
import hashlib

import haste
import torch
from device import device_of, pause, say_end
from torch import nn
from torch.utils._python_dispatch import _len_torch_dispatch_stack

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=600)
parser.add_argument("--sleep", type=float, default=0.02)
parser.add_argument("--fill", action="store_true")
parser.add_argument("--device", default="cpu")
asked = parser.parse_args()

MIB = 1 << 20
torch.manual_seed(7)
torch.set_num_threads(1)
device = device_of(asked.device)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
haste.over()
losses = []


def pin():
    """Return small blocks that are the only live ones of large segments."""
    if device.type == "cpu":
        return []
    pairs = [(torch.empty(2 * MIB, device=device), torch.empty(9 * MIB, device=device)) for _ in range(6)]
    return [small for small, _ in pairs]


def step():
    """Train once and keep the loss, as a list of floats would not."""
    rows = torch.randn(8, 16).to(device)
    loss = model(rows).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss)


def history():
    """Tell whether the allocator records one."""
    if device.type == "cpu":
        return False
    import torch_npu

    return torch_npu._C._npu_isHistoryEnabled()


pinned = pin()
for number in range(1, asked.steps + 1):
    step()
    if number % 10 == 0:
        digest = hashlib.sha256()
        for parameter in model.parameters():
            digest.update(parameter.detach().cpu().numpy().tobytes())
        print("step", number, digest.hexdigest(), flush=True)
    pause(asked.sleep)
if asked.fill:
    filled = [torch.empty(32 * MIB, device=device) for _ in range(1000)]
say_end("history", history(), "modes", _len_torch_dispatch_stack())
