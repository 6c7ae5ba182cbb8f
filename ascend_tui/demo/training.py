"""A small GPT that learns to continue generated text: a real training for the demo.

It imports nothing of ascend-tui: the demo attaches to it as to any other process.  It says one line
of JSON after its first step, so that the demo knows when it is running.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

CONTEXT = 64
WIDTH = 128
HEADS = 4
LAYERS = 4
BATCH = 8
# Of the fault `overflow`: from which step on one channel climbs, from where, how fast, up to where, how long
# it stays there before it falls to a quarter of that, and what its activation gains.
CLIMBS_AFTER, FIRST_VALUE, CLIMB, TOP, STAYS, GAIN = 200, 3.0, 1.03, 61500.0, 8, 1.1
# Of the fault `logs`: the loss scale, and the good steps until it doubles: few, so that one sees it recover.
FIRST_SCALE, GROWTH_INTERVAL = 65536.0, 12
# Of the fault `hang`: how long reading a batch takes, and how many there are until it hangs.
READING_S = 0.15
BATCHES_PER_EPOCH = 30
WORDS = ("the", "model", "learns", "a", "little", "with", "every", "step", "and", "loss", "goes", "down")


class Block(nn.Module):
    """Attention and a feed-forward part, each with its own norm and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm_mlp = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH)))
        x = x + self.dropout(self.mlp(self.norm_mlp(x)))
        return x


class HalfLinear(nn.Linear):
    """A layer whose output is kept in float16."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Multiplied in float32: a CPU is twenty times slower in float16.
        return super().forward(x.float()).half()


class ScaledGelu(nn.Module):
    """A GELU with a gain, as nets without norms have it: from 59,549 on it leaves float16."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x) * GAIN


class Outlier:
    """A channel of a block's feed-forward part that grows with every step, as some do in large models.

    The part is kept in float16.  What its first layer gives still fits in there; its activation does not.
    """

    def __init__(self, block: nn.Module) -> None:
        self.value, self.stayed = FIRST_VALUE, 0
        self.first, second = HalfLinear(WIDTH, 4 * WIDTH), HalfLinear(4 * WIDTH, WIDTH)
        block.mlp = nn.Sequential(self.first, ScaledGelu(), second)
        # Nothing else hears of the channel, and the loss is as good as ever until then.
        second.weight.data[:, 0] = 0.0
        second.weight.register_hook(lambda gradient: functional.pad(gradient[:, 1:], (1, 0)))

    @torch.no_grad()
    def grow(self) -> None:
        """Grow once; at the top, stay for some steps and fall."""
        self.value = min(self.value * CLIMB, TOP)
        self.stayed += self.value == TOP
        if self.stayed > STAYS:
            self.value, self.stayed = TOP / 4, 0
        self.first.bias[0] = self.value


class Gpt(nn.Module):
    """A character model."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(characters, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


def write_text(characters: int, seed: int = 0) -> str:
    """Return generated text of about `characters` characters."""
    chooser = random.Random(seed)
    words: list[str] = []
    size = 0
    while size < characters:
        word = chooser.choice(WORDS)
        words.append(word)
        size += len(word) + 1
    return " ".join(words)


def cut_batch(data: torch.Tensor) -> torch.Tensor:
    """Return rows of the text from random places."""
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,)).tolist()
    return torch.stack([data[start : start + CONTEXT + 1] for start in starts])


class ReadAhead:
    """Batches that a thread reads ahead of the training, until the two wait for each other.

    The fault is one of real data loaders: before it shuffles, the thread waits until all batches are
    taken, and holds the lock that whoever takes one needs.
    """

    def __init__(self, data: torch.Tensor) -> None:
        self.data = data
        self.lock = threading.Lock()
        self.ready: list[torch.Tensor] = []
        self.filled = threading.Semaphore(0)
        self.all_taken = threading.Event()
        threading.Thread(target=self.read_ahead, name="batch-reader", daemon=True).start()

    def next_batch(self) -> torch.Tensor:
        """Return the next batch; on the training's thread."""
        self.filled.acquire()
        with self.lock:
            batch = self.ready.pop(0)
            if not self.ready:
                self.all_taken.set()
        return batch

    def read_ahead(self) -> None:
        """Read batch after batch; on the reader's thread."""
        for number in itertools.count(1):
            time.sleep(READING_S)
            batch = cut_batch(self.data)
            with self.lock:
                self.ready.append(batch)
                self.all_taken.clear()
                self.filled.release()
                if number % BATCHES_PER_EPOCH == 0:
                    self.wait_until_all_taken()

    def wait_until_all_taken(self) -> None:
        """Wait for the training, to shuffle for the next epoch."""
        self.all_taken.wait()


def load_npu() -> str:
    """Load torch_npu where it is installed; return why there is no NPU in spite of it, else nothing.

    Without CANN the import fails before it has touched torch. With half of CANN it fails in the middle, and
    what it has registered by then would stay: the program begins anew and leaves torch_npu alone.
    """
    if importlib.util.find_spec("torch_npu") is None:
        return ""
    try:
        import torch_npu  # noqa: F401
    except Exception as error:  # noqa: BLE001 - its own check of CANN raises a plain Exception
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        if "torch_npu._C" in sys.modules:
            os.execv(sys.executable, [sys.executable, *sys.argv, f"--no-npu={reason}"])
        return reason
    return "" if torch.npu.is_available() else "torch_npu sees no device"  # type: ignore[attr-defined]


def choose_device() -> torch.device:
    """Return the npu or the GPU where there is one, else the CPU."""
    npu = getattr(torch, "npu", None)
    if npu is not None and npu.is_available():
        # Where the default is to compile each operator first, the demo would seem to hang.
        npu.set_compile_mode(jit_compile=False)
        return torch.device("npu:0")
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def plant_logs(folder: str, device: torch.device, parameters: list[nn.Parameter]) -> Any:
    """Return what writes the log of the fault `logs`; its file lies beside this one, in no package."""
    spec = importlib.util.spec_from_file_location("planted_logs", Path(__file__).with_name("planted_logs.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PlantedLogs(Path(folder), str(device), parameters, nn.utils.clip_grad_norm_)


def let_parent_trace() -> None:
    """Allow the demo's monitor to attach where Yama lets only a parent trace (ptrace_scope 1)."""
    pr_set_ptracer, any_process = 0x59616D61, ctypes.c_ulong(-1)
    ctypes.CDLL(None).prctl(pr_set_ptracer, any_process, 0, 0, 0)


def end_with_parent() -> None:
    """Have the kernel end this process with its parent: a hung one cannot look for it any more."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(signal.SIGKILL), 0, 0, 0)


def main() -> int:
    """Train until the parent is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=("none", "leak", "hang", "overflow", "logs"), default="none")
    parser.add_argument("--folder", default=".", help="where the fault logs writes its log")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--no-npu", default="", metavar="WHY", help="leave torch_npu alone")
    options = parser.parse_args()
    let_parent_trace()
    torch.manual_seed(0)
    torch.set_num_threads(max(1, min(4, (os.cpu_count() or 2) // 2)))
    no_npu = options.no_npu or load_npu()
    device = choose_device()
    text = write_text(2_000_000)
    letters = sorted(set(text))
    data = torch.tensor([letters.index(letter) for letter in text], dtype=torch.long)
    model = Gpt(len(letters))
    overflows = options.fault == "overflow"
    outlier = Outlier(model.blocks[2]) if overflows else None
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    # While the channel is too large each step is skipped; the scale recovers from that until the next time.
    scaler = torch.amp.GradScaler(
        device.type, init_scale=1024.0, backoff_factor=0.92, growth_interval=40, enabled=overflows
    )
    logs: Any = None
    if options.fault == "logs":
        logs = plant_logs(options.folder, device, list(model.parameters()))
        scaler = torch.amp.GradScaler(device.type, init_scale=FIRST_SCALE, growth_interval=GROWTH_INTERVAL)
    kept: list[torch.Tensor] = []
    next_batch: Callable[[], torch.Tensor] = partial(cut_batch, data)
    if options.fault == "hang":
        end_with_parent()
        next_batch = ReadAhead(data).next_batch
    parent = os.getppid()
    step = 0
    while os.getppid() == parent and (not options.steps or step < options.steps):
        batch = next_batch().to(device)
        if outlier is not None and step >= CLIMBS_AFTER:
            outlier.grow()
        logits = model(batch[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss if logs is None else logs.spoil_loss(loss)).backward()
        if logs is not None:
            scaler.unscale_(optimizer)
            logs.clip_gradients()
        scaler.step(optimizer)
        scaler.update()
        if logs is not None:
            scale = scaler.get_scale()
            logs.end_step(loss, optimizer.param_groups[0]["lr"], scale)
            # In float32 nothing else would keep it from growing.
            scaler.set_growth_factor(2.0 if scale < FIRST_SCALE else 1.0)
        if options.fault == "leak":
            # The fault: "keep them for a plot later".
            kept.append(logits.detach().repeat(1, 1, 20))
        step += 1
        if step == 1:
            parameters = sum(one.numel() for one in model.parameters())
            said = {"device": str(device), "parameters": parameters, "no_npu": no_npu}
            print(json.dumps(said), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
