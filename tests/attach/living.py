"""A training with what happens beside the steps: loader workers that keep what they load, evaluations, saves.

What it is to do next is a file in its folder: `evaluate`, `save`, `slow`.  None of it changes a number of the
training, so that its hashes are those of a run in which nothing happened.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import sys
import time
import weakref
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    gc.disable()  # see collect_again()

import torch
from torch.utils.data import DataLoader, Dataset
from watched import EVERY, collect_again, own_view

KEPT_BYTES = 1 << 18
SAVED_BYTES = 24 << 20
PINNED_BYTES = 4 << 20


class Samples(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Make samples out of their numbers, and keep something for each of them."""

    def __init__(self) -> None:
        self.kept: list[torch.Tensor] = []

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        if torch.utils.data.get_worker_info() is not None:
            self.kept.append(torch.ones(KEPT_BYTES // 4))
        sample = torch.sin(torch.arange(16) * (1.0 + number % 97))
        return sample, sample.sum(0, keepdim=True)


class Slow(torch.nn.Module):
    """Take its time, as larger layers do."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return given


class Training:
    """The network and what is done with it."""

    def __init__(self, folder: Path, device: str, sleep_s: float) -> None:
        self.folder, self.device, self.sleep_s = folder, device, sleep_s
        if device != "cpu":
            torch.npu.set_compile_mode(jit_compile=False)
            self.pinned = torch.empty(PINNED_BYTES, dtype=torch.uint8).pin_memory()
        first, last = torch.nn.Linear(16, 32), torch.nn.Linear(32, 1)
        layers = (first, torch.nn.ReLU(), torch.nn.Dropout(0.1), last, Slow(sleep_s / 2))
        self.net = torch.nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        collect_again()
        self.big = torch.zeros(SAVED_BYTES // 4)
        self.digest = hashlib.sha256()

    def step(self, features: torch.Tensor, label: torch.Tensor, number: int) -> str | None:
        """Make one step; return the digest where one is due."""
        loss = ((self.net(features.to(self.device)) - label.to(self.device)) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.digest.update(loss.detach().cpu().numpy().tobytes())
        if number % EVERY:
            return None
        for parameter in self.net.parameters():
            self.digest.update(parameter.detach().cpu().numpy().tobytes())
        return self.digest.hexdigest()

    def is_asked(self, what: str) -> bool:
        """Tell, once, whether something is to be done."""
        found = (self.folder / what).exists()
        if found:
            (self.folder / what).unlink()
        return found

    def do_what_is_asked(self) -> None:
        """Do what happens between two steps."""
        if self.is_asked("evaluate"):
            self.net.eval()
            with torch.no_grad():
                for _ in range(20):
                    self.net(torch.ones(4, 16, device=self.device))
                    time.sleep(0.05)
            self.net.train()
        if self.is_asked("save"):
            torch.save({"net": self.net.state_dict(), "big": self.big}, self.folder / "checkpoint.pt")
        if self.is_asked("slow"):
            time.sleep(1.5)
        if self.is_asked("question"):
            view: dict[str, Any] = {**own_view(), "weak": weakref.getweakrefcount(self.net)}
            draft = self.folder / "answer.new"
            draft.write_text(json.dumps(view))
            draft.rename(self.folder / "answer")
        time.sleep(self.sleep_s / 2)


def main() -> int:
    """Train until the steps are done or the parent is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--sleep", type=float, default=0.02)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    training = Training(asked.folder, asked.device, asked.sleep)
    parent = os.getppid()
    loader = DataLoader(Samples(), 2, num_workers=asked.workers)
    with open(asked.folder / "hashes", "w", buffering=1) as out:
        for number, (features, label) in enumerate(loader, 1):
            digest = training.step(features, label, number)
            if digest:
                out.write(f"{number} {digest}\n")
                if os.getppid() != parent:
                    break
            if number >= asked.steps:
                break
            training.do_what_is_asked()
    return 0


if __name__ == "__main__":
    code = main()
    gc.freeze()
    sys.exit(code)
