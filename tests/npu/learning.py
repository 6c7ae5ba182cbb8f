"""Whole trainings, with every optimizer and in mixed precision."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from layers import Case
from torch import Tensor
from torch.utils.checkpoint import checkpoint

WORDS, WIDTH, HEADS, LENGTH, BATCH, STEPS = 65, 32, 4, 16, 4, 6


class Block(nn.Module):
    """A transformer block, with attention written out or fused."""

    def __init__(self, fused: bool, dropped: float) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.inner = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.fused, self.dropped = fused, dropped
        self.register_buffer("mask", torch.ones(LENGTH, LENGTH).tril() == 0)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return causal attention."""
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropped)
        scores = (q @ k.transpose(-2, -1)) * (1 / (WIDTH // HEADS) ** 0.5)
        weights = F.softmax(scores.masked_fill(self.mask, float("-inf")), -1)
        return F.dropout(weights, self.dropped) @ v

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of what went in, attention and the inner layers."""
        q, k, v = (
            z.unflatten(2, (HEADS, -1)).transpose(1, 2) for z in self.mix(self.before(x)).split(WIDTH, 2)
        )
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return x + self.inner(self.after(x))


class Gpt(nn.Module):
    """A small language model that returns its loss."""

    def __init__(
        self, fused: bool = False, tied: bool = True, dropped: float = 0.0, again: bool = False
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(fused, dropped) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.again = again
        if tied:
            self.head.weight = self.words.weight

    def forward(self, text: Tensor) -> Tensor:
        """Return the loss of guessing each next word."""
        x = self.words(text[:, :-1]) + self.places(torch.arange(LENGTH, device=text.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), text[:, 1:].flatten())


class Images(nn.Module):
    """A small convolutional network that returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(16, 16, 3, groups=4, stride=2),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 10),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the loss of telling which image of the batch each is."""
        return F.cross_entropy(self.layers(images), torch.arange(len(images), device=images.device) % 10)


class Dense(nn.Module):
    """A multilayer perceptron that returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss of adding up."""
        return F.mse_loss(self.layers(x), x.sum(1, keepdim=True))


def text(draw: torch.Generator) -> Tensor:
    """Return a batch of random words."""
    return torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=draw)


def images(draw: torch.Generator) -> Tensor:
    """Return a batch of random images."""
    return torch.randn(8, 3, 32, 32, generator=draw)


def points(draw: torch.Generator) -> Tensor:
    """Return a batch of random points."""
    return torch.randn(8, 16, generator=draw)


Make = Callable[..., nn.Module]
Optimizer = Callable[..., torch.optim.Optimizer]


def training(
    make: Make,
    data: Callable[[torch.Generator], Tensor],
    optimizer: Optimizer,
    options: dict[str, Any],
    autocast: torch.dtype | None = None,
    scaler: Callable[[str], Any] | None = None,
    **shape: Any,
) -> Case:
    """Return a case: losses, gradient norms and scales of each step, then all parameters and buffers."""

    def run(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        model = make(**shape).to(device)
        steps, draw = optimizer(model.parameters(), **options), torch.Generator().manual_seed(1)
        scale = scaler(device) if scaler else torch.amp.GradScaler(device, enabled=False)
        told = []
        for _ in range(STEPS):
            steps.zero_grad()
            with torch.autocast(device, autocast) if autocast else contextlib.nullcontext():
                loss = model(data(draw).to(device))
            scale.scale(loss).backward()
            scale.unscale_(steps)
            told += [loss.detach().cpu(), nn.utils.clip_grad_norm_(model.parameters(), 1.0).detach().cpu()]
            scale.step(steps)
            scale.update()
            told.append(torch.tensor(scale.get_scale()))
        return [*told, *model.state_dict().values()]

    return run


ADAMW = {"lr": 3e-3}
SGD = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4}

TRAININGS: dict[str, Case] = {
    "mlp sgd": training(Dense, points, torch.optim.SGD, SGD),
    "mlp adam": training(Dense, points, torch.optim.Adam, ADAMW),
    "images": training(Images, images, torch.optim.SGD, SGD),
    "gpt": training(Gpt, text, torch.optim.AdamW, {**ADAMW, "foreach": False}),
    "gpt foreach": training(Gpt, text, torch.optim.AdamW, {**ADAMW, "foreach": True}),
    "gpt fused": training(Gpt, text, torch.optim.AdamW, {**ADAMW, "fused": True}),
    "gpt amsgrad": training(Gpt, text, torch.optim.AdamW, {**ADAMW, "amsgrad": True, "foreach": True}),
    "gpt sgd": training(Gpt, text, torch.optim.SGD, SGD),
    "gpt sgd fused": training(Gpt, text, torch.optim.SGD, {**SGD, "fused": True}),
    "gpt untied": training(Gpt, text, torch.optim.AdamW, {**ADAMW, "foreach": False}, tied=False),
    "gpt sdpa": training(Gpt, text, torch.optim.AdamW, {**ADAMW, "foreach": False}, fused=True),
    "gpt sdpa untied fused": training(
        Gpt, text, torch.optim.AdamW, {**ADAMW, "fused": True}, fused=True, tied=False
    ),
    "gpt checkpoint": training(Gpt, text, torch.optim.AdamW, {**ADAMW, "foreach": False}, again=True),
}


def torch_scaler(device: str) -> Any:
    """Return torch's scaler."""
    return torch.amp.GradScaler(device, growth_interval=3)


def huge_scaler(device: str) -> Any:
    """Return torch's scaler with a scale that overflows."""
    return torch.amp.GradScaler(device, init_scale=2.0**34)


def npu_scaler(device: str) -> Any:
    """Return the scaler of torch_npu, or torch's where there is no NPU."""
    return torch.npu.amp.GradScaler(growth_interval=3) if device == "npu" else torch_scaler(device)


HALF, BRAIN = torch.float16, torch.bfloat16

MIXED: dict[str, Case] = {
    "half gpt": training(Gpt, text, torch.optim.AdamW, ADAMW, HALF, torch_scaler),
    "half gpt sdpa": training(Gpt, text, torch.optim.AdamW, ADAMW, HALF, torch_scaler, fused=True),
    "half gpt by torch_npu": training(Gpt, text, torch.optim.AdamW, ADAMW, HALF, npu_scaler),
    "half mlp overflows": training(Dense, points, torch.optim.SGD, SGD, HALF, huge_scaler),
    "bfloat16 gpt": training(Gpt, text, torch.optim.AdamW, ADAMW, BRAIN),
    "bfloat16 gpt sdpa": training(Gpt, text, torch.optim.AdamW, ADAMW, BRAIN, fused=True),
    "bfloat16 images": training(Images, images, torch.optim.SGD, SGD, BRAIN),
}
