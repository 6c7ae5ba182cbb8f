"""A GAN: two models, two optimizers, one iteration."""

import argparse
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--sleep", type=float, default=0.0)
asked = parser.parse_args()

torch.manual_seed(1)
torch.set_num_threads(1)
maker, judge = nn.Linear(4, 2), nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
of_maker = torch.optim.Adam(maker.parameters(), lr=1e-3)
of_judge = torch.optim.Adam(judge.parameters(), lr=1e-3)
score = nn.BCEWithLogitsLoss()
for _ in range(asked.steps):
    real, fake = torch.randn(8, 2), maker(torch.randn(8, 4))
    of_judge.zero_grad()
    (score(judge(real), torch.ones(8, 1)) + score(judge(fake.detach()), torch.zeros(8, 1))).backward()
    of_judge.step()
    of_maker.zero_grad()
    score(judge(fake), torch.ones(8, 1)).backward()
    of_maker.step()
    time.sleep(asked.sleep)
print("end", asked.steps, flush=True)
