"""The training that is measured: it writes the time of every step into a shared file.

It imports nothing of ascend-tui.  Models: `gpt` (4 layers, 256 wide, 128 tokens, batch 4), `conv` (a residual
net on images) and `tiny` (16 small linear layers: a step of about 0.7 ms, nearly all of it Python).
With `--peers` SIGUSR1 switches torch's anomaly mode and SIGUSR2 msprobe's statistics on and off.
"""

from __future__ import annotations

import argparse
import hashlib
import mmap
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

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


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.second(self.act(self.first(x))) + x)


class Peers:
    """The field's own tools, switched by signals."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.folder = tempfile.TemporaryDirectory()
        self.anomaly = self.wanted = self.is_on = False
        self.debugger: Any = None
        signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "anomaly", not self.anomaly))
        signal.signal(signal.SIGUSR2, lambda *_: setattr(self, "wanted", not self.wanted))

    def begin(self) -> None:
        if torch.is_anomaly_enabled() != self.anomaly:
            torch.autograd.set_detect_anomaly(self.anomaly)
        if self.wanted and self.debugger is None:
            from msprobe.pytorch import PrecisionDebugger

            self.debugger = PrecisionDebugger(dump_path=self.folder.name, task="statistics", level="L0")
        self.is_on = self.wanted
        if self.is_on:
            self.debugger.start(self.model)

    def end(self) -> None:
        if self.is_on:
            self.debugger.stop()
            self.debugger.step()


class Tokens(Dataset):
    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randint(256, (129,), generator=torch.Generator().manual_seed(index))


def build(name: str):
    if name == "gpt":
        model = Gpt()
        return model, torch.optim.AdamW(model.parameters(), lr=1e-4)
    if name == "conv":
        parts = [nn.Conv2d(3, 16, 3, padding=1), *(Residual(16) for _ in range(4)), nn.AdaptiveAvgPool2d(1)]
        model = nn.Sequential(*parts, nn.Flatten(), nn.Linear(16, 10))
        return model, torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
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
    parser.add_argument("model", choices=("gpt", "conv", "tiny"))
    parser.add_argument("out")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--hash-every", type=int, default=0)
    parser.add_argument("--peers", action="store_true")
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
    images, labels = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
    peers = Peers(model) if options.peers else None
    tokens = Tokens()
    for step in range(1, options.steps + 1):
        number = next(batches) if batches is not None else step
        if peers is not None:
            peers.begin()
        optimizer.zero_grad()
        if options.model == "gpt":
            batch = torch.stack([tokens[4 * int(number) + row] for row in range(4)])
            logits = model(batch[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        elif options.model == "conv":
            loss = functional.cross_entropy(model(images), labels)
        else:
            loss = model(fixed * (1.0 + (int(number) % 7))).pow(2).mean()
        loss.backward()
        optimizer.step()
        if peers is not None:
            peers.end()
        struct.pack_into("<d", view, 8 * step, time.monotonic())
        struct.pack_into("<Q", view, 0, step)
        if options.hash_every and step % options.hash_every == 0:
            hashes.write(f"{step} {digest(model)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
