"""A small real GPT: embeddings, causal attention, dropout, AdamW, forked DataLoader workers.

It prints a hash of the losses and parameters every few steps, so that two runs can be compared bit
for bit.  With --hold it waits at the end until its standard input closes.
"""

import argparse
import hashlib
import sys

import haste
import torch
from device import device_of, pause, say_end
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--hash-every", type=int, default=50)
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--sleep", type=float, default=0.0)
parser.add_argument("--hold", action="store_true")
parser.add_argument("--device", default="cpu")
asked = parser.parse_args()

VOCABULARY, WIDTH, LENGTH, HEADS, BATCH = 64, 32, 16, 4, 8


class Text(Dataset):
    """Random token rows that depend on nothing but their number."""

    def __len__(self):
        return asked.steps * BATCH

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randint(0, VOCABULARY, (LENGTH + 1,), generator=generator)


class Block(nn.Module):
    """One transformer block."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)
        )

    def forward(self, x):
        shape = x.shape
        q, k, v = (
            one.view(shape[0], shape[1], HEADS, -1).transpose(1, 2)
            for one in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(shape))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """Two blocks and a head."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, rows):
        x = self.tokens(rows) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(asked.seed)
torch.set_num_threads(1)
device = device_of(asked.device)
model = Gpt().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
haste.over()
loader = DataLoader(Text(), batch_size=BATCH, num_workers=asked.workers, shuffle=True)
digest = hashlib.sha256()
for step, rows in enumerate(loader, 1):
    rows = rows.to(device)
    logits = model(rows[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    digest.update(b"%r" % loss.item())
    if step % asked.hash_every == 0:
        for parameter in model.parameters():
            digest.update(parameter.detach().cpu().numpy().tobytes())
        print("step", step, digest.hexdigest(), flush=True)
    pause(asked.sleep)
say_end(digest.hexdigest())
if asked.hold:
    sys.stdin.read()
