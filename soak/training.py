"""The training that is attached to: a small real GPT with two forked workers, which knows nothing of us.

It writes the number and the times of its steps into a shared file, and a hash of all losses and parameters
every few steps, so that two runs can be compared bit for bit. Workers are forked anew in each epoch. A twin
(`--follow`) stays at most a few steps ahead of the training whose steps it repeats.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import mmap
import multiprocessing
import os
import struct
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from bench.training import Gpt
from tests.attach.watched import own_view

MOST_STEPS = 4_000_000
ENTRY = struct.Struct("<dd")
WORDS, WIDE, LAYERS, LENGTH, BATCH = 64, 32, 2, 16, 8
AHEAD = 100


class Text(Dataset):
    """Random rows that depend on nothing but their number."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randint(WORDS, (LENGTH + 1,), generator=torch.Generator().manual_seed(index))


def shared(path: Path, size: int = 0) -> mmap.mmap:
    """Map a file, made and sized here or by another process."""
    with open(path, "wb+" if size else "rb") as file:
        if size:
            file.truncate(size)
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | (mmap.PROT_WRITE if size else 0))


def answer(folder: Path) -> None:
    """Tell what there is of a monitor in this process, if that was asked."""
    question = folder / "question"
    if question.exists():
        question.unlink()
        view = own_view()
        view["collected"], view["callbacks"] = gc.isenabled(), len(gc.callbacks)
        (folder / "answer.new").write_text(json.dumps(view))
        (folder / "answer.new").rename(folder / "answer")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sleep", type=float, default=0.012)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epoch", type=int, default=400)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--follow", type=Path)
    asked = parser.parse_args()
    multiprocessing.set_start_method("fork")
    torch.manual_seed(5)
    torch.set_num_threads(1)
    if asked.device != "cpu":
        torch.npu.set_compile_mode(jit_compile=False)
    model = Gpt(WORDS, WIDE, LAYERS, LENGTH).to(asked.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    digest, parent, step = hashlib.sha256(), os.getppid(), 0
    leader = None
    if asked.follow:
        # Both start at the same time.
        while not (asked.follow.exists() and asked.follow.stat().st_size) and os.getppid() == parent:
            time.sleep(0.05)
        leader = shared(asked.follow)
    view = shared(asked.folder / "steps", 8 + ENTRY.size * MOST_STEPS)
    with open(asked.folder / "hashes", "w", buffering=1) as out:
        while True:
            for rows in DataLoader(Text(asked.epoch * BATCH), BATCH, shuffle=True, num_workers=asked.workers):
                began = time.monotonic()
                rows = rows.to(asked.device)
                logits = model(rows[:, :-1])
                loss = functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                digest.update(b"%r" % loss.item())
                ended = time.monotonic()
                step += 1
                if step % asked.every == 0:
                    for parameter in model.parameters():
                        digest.update(parameter.detach().cpu().numpy().tobytes())
                    out.write(f"{step} {digest.hexdigest()}\n")
                ENTRY.pack_into(view, 8 + ENTRY.size * (step - 1), began, ended)
                struct.pack_into("<Q", view, 0, step)
                if os.getppid() != parent or step >= MOST_STEPS:
                    return 0
                answer(asked.folder)
                while leader is not None and os.getppid() == parent:
                    if step < struct.unpack_from("<Q", leader, 0)[0] + AHEAD:
                        break
                    time.sleep(0.05)
                time.sleep(asked.sleep)


if __name__ == "__main__":
    sys.exit(main())
