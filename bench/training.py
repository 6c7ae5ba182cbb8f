"""The training that is measured: it writes the time of every step into a shared file.

It imports nothing of ascend-tui.  Models: `gpt` (4 layers, 256 wide, 128 tokens, batch 4) and `tiny`
(16 small linear layers: a step of about 0.7 ms, nearly all of it Python).
"""

from __future__ import annotations

import argparse
import hashlib
import mmap
import struct
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

MOST_STEPS = 4_000_000


class Gpt(nn.Module):
    def __init__(self, words: int = 256, wide: int = 256, layers: int = 4, length: int = 128) -> None:
        super().__init__()
        self.tokens = nn.Embedding(words, wide)
        self.places = nn.Parameter(torch.zeros(length, wide))
        layer = nn.TransformerEncoderLayer(wide, 4, 4 * wide, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(wide, words)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.tokens(x) + self.places, mask=self.mask, is_causal=True))


class Tokens(Dataset):
    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randint(256, (129,), generator=torch.Generator().manual_seed(index))


def build(name: str):
    if name == "gpt":
        model = Gpt()
        return model, torch.optim.AdamW(model.parameters(), lr=1e-4)
    layers = [part for _ in range(16) for part in (nn.Linear(32, 32), nn.ReLU())]
    model = nn.Sequential(*layers)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def digest(model: nn.Module) -> str:
    sha = hashlib.sha256()
    for parameter in model.parameters():
        sha.update(parameter.detach().numpy().tobytes())
    return sha.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=("gpt", "tiny"))
    parser.add_argument("out")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--hash-every", type=int, default=0)
    parser.add_argument("--steps", type=int, default=MOST_STEPS)
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with open(options.out, "wb+") as file:
        file.truncate(8 + 8 * MOST_STEPS)
        view = mmap.mmap(file.fileno(), 0)
    hashes = Path(options.out + ".hash").open("w", buffering=1)  # noqa: SIM115 - as long as we live
    model, optimizer = build(options.model)
    batches = None
    if options.workers:
        batches = iter(
            DataLoader(range(1 << 40), batch_size=None, num_workers=options.workers, prefetch_factor=8)
        )
    fixed = torch.randn(8, 32)
    tokens = Tokens()
    for step in range(1, options.steps + 1):
        number = next(batches) if batches is not None else step
        optimizer.zero_grad()
        if options.model == "gpt":
            batch = torch.stack([tokens[4 * int(number) + row] for row in range(4)])
            logits = model(batch[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        else:
            loss = model(fixed * (1.0 + (int(number) % 7))).pow(2).mean()
        loss.backward()
        optimizer.step()
        struct.pack_into("<d", view, 8 * step, time.monotonic())
        struct.pack_into("<Q", view, 0, step)
        if options.hash_every and step % options.hash_every == 0:
            hashes.write(f"{step} {digest(model)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
