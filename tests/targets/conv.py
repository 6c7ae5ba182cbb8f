"""A convolutional net with in-place ReLU and a residual, which torch's full backward hooks would crash."""

import argparse
import hashlib

import haste
import torch
from device import device_of, pause, say_end
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--sleep", type=float, default=0.0)
parser.add_argument("--device", default="cpu")
asked = parser.parse_args()


class Residual(nn.Module):
    """conv, norm, in-place ReLU, and the input added in place."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = (
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        y = self.norm(self.conv(x))
        y += x
        return self.act(y)


torch.manual_seed(1)
torch.set_num_threads(1)
device = device_of(asked.device)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    nn.ReLU(inplace=True),
    Residual(),
    Residual(),
    nn.Flatten(),
    nn.LazyLinear(4),
)
images, labels = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])
# The lazy layer takes its shape, and its numbers, on the CPU.
model(images)
model, images, labels = model.to(device), images.to(device), labels.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
haste.over()
for _ in range(asked.steps):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    pause(asked.sleep)
digest = hashlib.sha256(b"".join(one.detach().cpu().numpy().tobytes() for one in model.parameters()))
say_end(digest.hexdigest())
