"""No optimizer: a model that answers requests under no_grad, and fails at some of them."""

import argparse
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=10.0)
parser.add_argument("--sleep", type=float, default=0.01)
asked = parser.parse_args()

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
end = time.monotonic() + asked.seconds
calls = failures = 0
with torch.no_grad():
    while time.monotonic() < end:
        calls += 1
        try:
            model(torch.randn(2, 7 if calls % 10 == 0 else 8))
        except RuntimeError:
            failures += 1
        time.sleep(asked.sleep)
print("end", calls, failures, flush=True)
