"""The demo's training, which torch.profiler looks at: one line of JSON with the sums of its key_averages().

It has the model, the batches and the threads of ascend_tui/demo/training.py.
"""

import argparse
import json
import os
import time
from statistics import median

import haste
import torch
from device import device_of, say_end
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from ascend_tui.demo.training import Gpt, cut_batch, write_text

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--rounds", type=int, default=10)
parser.add_argument("--steps", type=int, default=3, help="steps in which it profiles, in each round")
asked = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(max(1, min(4, (os.cpu_count() or 2) // 2)))
device = device_of(asked.device)
text = write_text(2_000_000)
letters = sorted(set(text))
data = torch.tensor([letters.index(letter) for letter in text], dtype=torch.long)
model = Gpt(len(letters)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler(device.type, enabled=False)
haste.over()
times = []


def step():
    """Make one step as the demo does."""
    began = time.perf_counter()
    batch = cut_batch(data).to(device)
    logits = model(batch[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    times.append(time.perf_counter() - began)


activities = [ProfilerActivity.CPU]
if device.type != "cpu":
    activities.append(ProfilerActivity.PrivateUse1)
sums, kernels, took = {}, {}, []
for _ in range(10):
    step()
times.clear()
for _ in range(asked.rounds):
    step()
    with profile(activities=activities) as one:
        for _ in range(asked.steps):
            step()
        if device.type != "cpu":
            torch.npu.synchronize()
    began = time.perf_counter()
    averages = one.key_averages()
    took.append(time.perf_counter() - began)
    for row in averages:
        calls, us = sums.get(row.key, (0, 0.0))
        sums[row.key] = (calls + row.count, us + row.self_cpu_time_total)
        if row.self_device_time_total:
            calls, us = kernels.get(row.key, (0, 0.0))
            kernels[row.key] = (calls + row.count, us + row.self_device_time_total)
count = asked.rounds * asked.steps
print(
    "sums",
    json.dumps(
        {
            "host": {name: (calls / count, us / count) for name, (calls, us) in sums.items()},
            "device": {name: (calls / count, us / count) for name, (calls, us) in kernels.items()},
            "step_s": median(times),
            "key_averages_s": median(took),
        }
    ),
    flush=True,
)
say_end(count)
