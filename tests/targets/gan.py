"""A GAN: two models, two optimizers, one iteration."""

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
maker, judge = nn.Linear(4, 2), nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
maker, judge = maker.to(device), judge.to(device)
of_maker = torch.optim.Adam(maker.parameters(), lr=1e-3)
of_judge = torch.optim.Adam(judge.parameters(), lr=1e-3)
haste.over()
score = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(8, 1).to(device), torch.zeros(8, 1).to(device)
for _ in range(asked.steps):
    real, fake = torch.randn(8, 2).to(device), maker(torch.randn(8, 4).to(device))
    of_judge.zero_grad()
    (score(judge(real), ones) + score(judge(fake.detach()), zeros)).backward()
    of_judge.step()
    of_maker.zero_grad()
    score(judge(fake), ones).backward()
    of_maker.step()
    pause(asked.sleep)
say_end(asked.steps)
