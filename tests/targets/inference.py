"""No optimizer: a model that answers requests under no_grad, and fails at some of them."""

import argparse
import time

import haste
import torch
from device import device_of, say_end
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=10.0)
parser.add_argument("--sleep", type=float, default=0.01)
parser.add_argument("--device", default="cpu")
asked = parser.parse_args()


class Rows(nn.Module):
    """Refuse what is no rows of eight: here on the host, where an operator of an NPU would fail later."""

    def forward(self, x):
        return x.reshape(-1, 8)


torch.set_num_threads(1)
device = device_of(asked.device)
model = nn.Sequential(Rows(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).to(device)
haste.over()
end = time.monotonic() + asked.seconds
calls = failures = 0
with torch.no_grad():
    while time.monotonic() < end:
        calls += 1
        try:
            model(torch.randn(2, 7 if calls % 10 == 0 else 8).to(device))
        except RuntimeError:
            failures += 1
        time.sleep(asked.sleep)
say_end(calls, failures)
