"""Mixed precision with a GradScaler that skips every fifth step, where the gradients are infinite."""

import argparse

import haste
import torch
from device import device_of, pause, say_end
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--sleep", type=float, default=0.0)
parser.add_argument("--device", default="cpu")
asked = parser.parse_args()

torch.manual_seed(1)
torch.set_num_threads(1)
device = device_of(asked.device)
model = nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
haste.over()
scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
skipped = 0
for step in range(1, asked.steps + 1):
    optimizer.zero_grad()
    loss = model(torch.randn(2, 4).to(device)).square().mean()
    if step % 5 == 0:
        loss = loss * float("inf")
        skipped += 1
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    pause(asked.sleep)
say_end(asked.steps, skipped)
