"""What has no counterpart on a CPU: random numbers, files, checkpoints, saturation; each tells what holds."""

from __future__ import annotations

import io
from collections.abc import Callable

import torch
import torch.nn as nn
import torch.nn.functional as F
from learning import Dense, Gpt, huge_scaler, points, text
from torch import Tensor

State = Callable[[], "list[bool]"]
"""Tells of each thing that should hold whether it does."""


def dropout() -> list[bool]:
    """Dropping depends on the seed alone, drops as much as asked, and forward and backward drop the same."""

    def drop(seed: int) -> tuple[Tensor, Tensor]:
        torch.npu.manual_seed(seed)
        x = torch.ones(100, 100, device="npu", requires_grad=True)
        out = F.dropout(x, 0.2)
        out.sum().backward()
        assert x.grad is not None
        return out.detach().cpu(), x.grad.cpu()

    (out, grad), (same, _), (other, _) = drop(7), drop(7), drop(8)
    dropped = (out == 0).float().mean().item()
    return [
        torch.equal(out, same),
        not torch.equal(out, other),
        0.17 < dropped < 0.23,
        out.max().item() == 1.25,
        torch.equal(out, grad),
    ]


def attention_dropout() -> list[bool]:
    """Fused attention drops by the seed too, and its mean is that of attention without dropping."""

    def attend(seed: int, dropped: float = 0.25) -> tuple[Tensor, Tensor]:
        torch.npu.manual_seed(seed)
        q = torch.randn(8, 4, 64, 16, generator=torch.Generator().manual_seed(1)).npu().requires_grad_()
        out = F.scaled_dot_product_attention(q, q, torch.ones_like(q), dropout_p=dropped)
        out.square().sum().backward()
        assert q.grad is not None
        return out.detach().cpu(), q.grad.cpu()

    (one, grad), (same, again), (other, _) = attend(3), attend(3), attend(4)
    return [
        torch.equal(one, same),
        torch.equal(grad, again),
        not torch.equal(one, other),
        abs(one.mean().item() - 1) < 0.02,
        bool(grad.isfinite().all()),
    ]


def random_numbers() -> list[bool]:
    """The same seed gives the same numbers, the next draw others, and the CPU's generator does not move."""

    def draw() -> list[Tensor]:
        x = torch.empty(400, device="npu")
        found = [
            torch.randn(400, device="npu"),
            torch.rand(400, device="npu"),
            torch.randint(0, 1000, (400,), device="npu"),
            torch.randperm(400, device="npu"),
            x.bernoulli_(0.3).clone(),
            x.normal_(5, 0.1).clone(),
            x.uniform_(2, 3).clone(),
            x.exponential_(2.0).clone(),
            torch.rand(400, device="npu").multinomial(200),
            torch.randn(20, 20, device="npu", dtype=torch.bfloat16).flatten(),
        ]
        return [one.cpu() for one in found]

    before = torch.get_rng_state()
    torch.npu.manual_seed(5)
    first, second = draw(), draw()
    torch.npu.manual_seed(5)
    again = draw()
    moved = not torch.equal(before, torch.get_rng_state())
    normal, uniform, whole, order, coin, near, between, decay = first[:8]
    return [
        all(torch.equal(a, b) for a, b in zip(first, again)),
        not any(torch.equal(a, b) for a, b in zip(first, second)),
        not moved,
        abs(normal.mean().item()) < 0.2 and abs(normal.std().item() - 1) < 0.15,
        uniform.min().item() >= 0 and uniform.max().item() < 1 and abs(uniform.mean().item() - 0.5) < 0.06,
        whole.min().item() >= 0 and whole.max().item() < 1000 and len(whole.unique()) > 250,
        torch.equal(order.sort().values, torch.arange(400)),
        0.2 < coin.mean().item() < 0.4,
        abs(near.mean().item() - 5) < 0.03,
        between.min().item() >= 2 and between.max().item() < 3,
        0.4 < decay.mean().item() < 0.6,
    ]


def files() -> list[bool]:
    """What was saved on the NPU comes back the same, there and on the CPU, and training goes on from it."""
    torch.manual_seed(0)
    model = Gpt().npu()
    steps, batch = torch.optim.AdamW(model.parameters()), text(torch.Generator().manual_seed(1)).npu()

    def step(model: nn.Module, steps: torch.optim.Optimizer, batch: Tensor) -> float:
        steps.zero_grad()
        loss = model(batch)
        loss.backward()
        steps.step()
        return float(loss.item())

    step(model, steps, batch)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "steps": steps.state_dict()}, file)
    held = []
    for place in ("cpu", "npu"):
        file.seek(0)
        saved = torch.load(file, map_location=place)
        held += [one.device.type == place for one in saved["model"].values()]
        held += [
            torch.equal(one.cpu(), model.state_dict()[name].cpu()) for name, one in saved["model"].items()
        ]
    other = Gpt().npu()
    more = torch.optim.AdamW(other.parameters())
    other.load_state_dict(saved["model"])
    more.load_state_dict(saved["steps"])
    return [*held, *(step(model, steps, batch) == step(other, more, batch) for _ in range(2))]


def checkpointing() -> list[bool]:
    """A checkpointed model drops in its second forward what it dropped in its first: its gradients tell."""
    found = []
    for again in (False, True):
        torch.manual_seed(0)
        torch.npu.manual_seed(0)
        model = Gpt(dropped=0.1, again=again).npu()
        model(text(torch.Generator().manual_seed(1)).npu()).backward()
        found.append([one.grad.cpu() for one in model.parameters() if one.grad is not None])
    return [torch.equal(a, b) for a, b in zip(*found)]


def saturation() -> list[bool]:
    """On a chip that saturates nothing is infinite, save what was made so, and the register tells."""
    from torch_npu.npu.utils import clear_npu_overflow_flag, get_npu_overflow_flag

    held = [not get_npu_overflow_flag()]
    scores = torch.zeros(4, 4, device="npu").masked_fill(
        torch.ones(4, 4, device="npu").triu(1) > 0, float("-inf")
    )
    weights = scores.softmax(-1)
    held += [bool(scores.isinf().any()), weights[0].tolist() == [1, 0, 0, 0], not get_npu_overflow_flag()]
    half = torch.full((4,), 60000.0, device="npu", dtype=torch.float16) * 2
    held += [half.tolist() == [65504.0] * 4, bool(get_npu_overflow_flag())]
    clear_npu_overflow_flag()
    whole = torch.ones(3, device="npu") / 0
    held += [whole.tolist() == [torch.finfo().max] * 3, bool(get_npu_overflow_flag())]
    clear_npu_overflow_flag()
    # So a scaler cannot tell by the gradients: it asks the register.
    model, scaler = Dense().npu(), huge_scaler("npu")
    with torch.autocast("npu", torch.float16):
        loss = model(points(torch.Generator().manual_seed(1)).npu())
    scaler.scale(loss).backward()
    scaler.step(torch.optim.SGD(model.parameters()))
    scaler.update()
    held += [bool(one.grad.isfinite().all()) for one in model.parameters() if one.grad is not None]
    return [*held, scaler.get_scale() == 2.0**33]


STATES: dict[str, State] = {
    "dropout": dropout,
    "attention dropout": attention_dropout,
    "random numbers": random_numbers,
    "files": files,
    "checkpointing": checkpointing,
    "saturation": saturation,
}
