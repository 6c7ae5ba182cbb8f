"""Each layer alone, forward and backward, and functions without a gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

Case = Callable[[str], "list[Tensor]"]


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor], **options: Any) -> None:
        super().__init__()
        self.function, self.options = function, options

    def forward(self, *given: Tensor) -> Tensor:
        """Return what the function returns."""
        return self.function(*given, **self.options)


class SelfAttention(nn.MultiheadAttention):
    """Attention of a text to itself."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Return what is attended to."""
        return super().forward(x, x, x)[0]


def drawn(*shape: int) -> Tensor:
    """Return normal numbers, the same for the same shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def trained(module: nn.Module, *inputs: Tensor) -> Case:
    """Return a case: the output, the gradients of inputs and parameters, and the buffers."""

    def run(device: str) -> list[Tensor]:
        own = copy.deepcopy(module).to(device)
        given = [one.clone().to(device).requires_grad_(one.is_floating_point()) for one in inputs]
        out = own(*given)
        out.backward(torch.linspace(-1, 1, out.numel()).view(out.shape).to(device, out.dtype))
        grads = [one.grad for one in (*given, *own.parameters()) if one.grad is not None]
        return [out, *grads, *own.buffers()]

    return run


def called(function: Callable[..., Any], *inputs: Tensor) -> Case:
    """Return a case: what a function without a gradient returns."""

    def run(device: str) -> list[Tensor]:
        found = function(*(one.clone().to(device) for one in inputs))
        return [found] if isinstance(found, Tensor) else list(found)

    return run


torch.manual_seed(0)  # of the parameters
TEXT, IMAGE, HEADS = drawn(4, 16, 32), drawn(4, 8, 12, 12), drawn(2, 4, 16, 8)
KEYS = drawn(2, 2, 16, 8)
CLASSES = torch.randint(0, 32, (4, 16), generator=torch.Generator().manual_seed(1))
MASK = drawn(16, 16) > -0.5
ATTENTION = F.scaled_dot_product_attention


def attention(**options: Any) -> Case:
    """Return a case of attention of a tensor to two others."""
    return trained(Call(ATTENTION, **options), HEADS, HEADS.flip(0), HEADS.flip(1))


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return attention under a mask of bools."""
    return ATTENTION(q, k, v, attn_mask=MASK.to(q.device))


def shifted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return attention under a mask of numbers, which torch_npu leaves to the plain formula."""
    return ATTENTION(
        q, k, v, attn_mask=torch.zeros(16, 16, device=q.device).masked_fill(~MASK.to(q.device), -1e4)
    )


def normalised(x: Tensor) -> Tensor:
    """Return what functional batch norm makes of an image without keeping statistics."""
    return F.batch_norm(x, None, None, training=True)


LAYERS: dict[str, Case] = {
    "linear": trained(nn.Linear(32, 48), TEXT),
    "linear without bias": trained(nn.Linear(32, 48, bias=False), TEXT),
    "bilinear": trained(nn.Bilinear(32, 32, 8), TEXT, TEXT.flip(0)),
    "matmul": trained(Call(lambda x: x @ x.transpose(-2, -1)), HEADS),
    "bmm": trained(Call(lambda x: torch.bmm(x, x.transpose(1, 2))), TEXT),
    "baddbmm": trained(Call(torch.baddbmm), drawn(4, 16, 16), TEXT, TEXT.transpose(1, 2).contiguous()),
    "einsum": trained(Call(lambda x: torch.einsum("bhsd,bhtd->bst", x, x)), HEADS),
    "embedding": trained(nn.Embedding(32, 16, padding_idx=3), CLASSES),
    "layer norm": trained(nn.LayerNorm(32), TEXT),
    "group norm": trained(nn.GroupNorm(2, 8), IMAGE),
    "batch norm": trained(nn.BatchNorm2d(8), IMAGE),
    "batch norm without statistics": trained(Call(normalised), IMAGE),
    "batch norm at rest": trained(nn.BatchNorm2d(8).eval(), IMAGE),
    "rms norm": trained(nn.RMSNorm(32), TEXT),
    **{
        f"activation {type(one).__name__}": trained(one, TEXT)
        for one in (
            nn.ReLU(),
            nn.GELU(),
            nn.SiLU(),
            nn.Sigmoid(),
            nn.Tanh(),
            nn.LeakyReLU(),
            nn.ELU(),
            nn.Softplus(),
            nn.Hardswish(),
            nn.Hardsigmoid(),
            nn.Hardtanh(),
            nn.Mish(),
            nn.LogSigmoid(),
            nn.GLU(),
            nn.PReLU(),
            nn.Softshrink(),
            nn.Hardshrink(),
            nn.Softmax(-1),
            nn.LogSoftmax(-1),
            nn.ReLU6(),
        )
    },
    "gelu by tanh": trained(nn.GELU("tanh"), TEXT),
    "attention": attention(),
    "attention causal": attention(is_causal=True),
    "attention scaled": attention(scale=0.5),
    "attention masked": trained(Call(masked), HEADS, HEADS, HEADS),
    "attention shifted": trained(Call(shifted), HEADS, HEADS, HEADS),
    "attention of grouped heads": trained(
        Call(ATTENTION, enable_gqa=True, is_causal=True), HEADS, KEYS, KEYS
    ),
    "attention of odd heads": trained(Call(ATTENTION, is_causal=True), *[drawn(2, 4, 16, 6)] * 3),
    "multi-head attention": trained(SelfAttention(32, 4), TEXT),
    "convolution": trained(nn.Conv2d(8, 12, 3, padding=1), IMAGE),
    "convolution by groups": trained(nn.Conv2d(8, 8, 3, stride=2, groups=4, bias=False), IMAGE),
    "convolution depthwise": trained(nn.Conv2d(8, 8, 3, groups=8), IMAGE),
    "convolution 1d": trained(nn.Conv1d(16, 8, 3, dilation=2), TEXT),
    "convolution transposed": trained(nn.ConvTranspose2d(8, 6, 3, stride=2, output_padding=1), IMAGE),
    "max pool": trained(nn.MaxPool2d(3, 2, 1), IMAGE),
    "average pool": trained(nn.AvgPool2d(2), IMAGE),
    "adaptive pool to one": trained(nn.AdaptiveAvgPool2d(1), IMAGE),
    "adaptive pool": trained(nn.AdaptiveAvgPool2d(5), IMAGE),
    "nearest": trained(nn.Upsample(scale_factor=2), IMAGE),
    "bilinear resize": trained(nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
    "pad": trained(nn.ConstantPad2d((1, 2, 0, 1), 0.5), IMAGE),
    "reflect": trained(nn.ReflectionPad2d(2), IMAGE),
    "cross entropy": trained(Call(lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten())), TEXT, CLASSES),
    "cross entropy smoothed": trained(
        Call(lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten(), label_smoothing=0.1, ignore_index=2)),
        TEXT,
        CLASSES,
    ),
    "mse": trained(nn.MSELoss(), TEXT, TEXT.flip(0)),
    "l1": trained(nn.L1Loss(), TEXT, TEXT.flip(0)),
    "smooth l1": trained(nn.SmoothL1Loss(), TEXT, TEXT.flip(0)),
    "bce": trained(
        Call(lambda x, y: F.binary_cross_entropy(x.sigmoid(), (y > 0).float())), TEXT, TEXT.flip(0)
    ),
    "bce of logits": trained(
        Call(lambda x, y: F.binary_cross_entropy_with_logits(x, (y > 0).float())), TEXT, TEXT.flip(0)
    ),
    "kl": trained(
        Call(lambda x, y: F.kl_div(x.log_softmax(-1), y.detach().softmax(-1), reduction="batchmean")),
        TEXT,
        TEXT.flip(0),
    ),
    "index": trained(Call(lambda x: x[:, [0, 2, 2]]), TEXT),
    "gather": trained(Call(lambda x, y: x.gather(-1, y.unsqueeze(-1))), TEXT, CLASSES),
    "cat and split": trained(Call(lambda x: torch.cat(x.split([8, 24], -1)[::-1], -1)), TEXT),
    "repeat interleave": trained(Call(lambda x: x.repeat_interleave(3, 1)), TEXT),
    "roll": trained(Call(lambda x: x.roll(3, 1)), TEXT),
    "statistics": trained(
        Call(lambda x: x.var(-1) + x.std(0).sum() + x.mean((0, 1)).norm() + x.logsumexp(-1)), TEXT
    ),
    "cumsum": trained(Call(lambda x: x.cumsum(1)), TEXT),
    "in place": trained(Call(lambda x: (x * 2).mul_(3).add_(1).clamp_(-2, 2).relu_()), TEXT),
    "where": trained(Call(lambda x: torch.where(x > 0, x, x * 0.1)), TEXT),
    "half": trained(nn.Sequential(nn.Linear(32, 48), nn.LayerNorm(48), nn.GELU()).half(), TEXT.half()),
    "bfloat16": trained(
        nn.Sequential(nn.Linear(32, 48), nn.LayerNorm(48), nn.GELU()).bfloat16(), TEXT.bfloat16()
    ),
}


def put(x: Tensor) -> Tensor:
    """Write through indices, a mask and a slice."""
    x[torch.tensor([0, 2], device=x.device)] = 1.5
    x[x > 1] = 0
    x[:, 3:5] = x[:, 5:7]
    return x.index_put_(
        (torch.tensor([1, 1], device=x.device),), torch.ones(2, *x.shape[1:], device=x.device), True
    )


FUNCTIONS: dict[str, Case] = {
    "write by index": called(put, TEXT),
    "read by mask": called(lambda x: x[x > 0], TEXT),
    "nonzero": called(lambda x: x.gt(1).nonzero(), TEXT),
    "masked select": called(lambda x: x.masked_select(x > 0.5), TEXT),
    "unique": called(lambda x: torch.unique(x, return_inverse=True, return_counts=True), CLASSES),
    "unique consecutive": called(torch.unique_consecutive, CLASSES.sort().values),
    "top k": called(lambda x: x.topk(3), TEXT),
    "sort": called(lambda x: x.sort(dim=1, descending=True, stable=True), TEXT),
    "argmax": called(
        lambda x: [x.argmax(-1), x.argmin(0), x.max(1)[1], x.min(1)[0], x.max(), x.amax((0, 1))], TEXT
    ),
    "norms": called(lambda x: [x.norm(), x.norm(1), torch.linalg.vector_norm(x, 3, dim=-1)], TEXT),
    "any and all": called(
        lambda x: [(x > 0).any(), (x > 0).all(1), x.isnan().any(), x.isfinite().all()], TEXT
    ),
    "scatter": called(
        lambda x, y: x.scatter(-1, y.unsqueeze(-1), 7.0).scatter_add(-1, y.unsqueeze(-1), x), TEXT, CLASSES
    ),
    "index add": called(lambda x, y: x.index_add(0, y[:, 0] % 4, x), TEXT, CLASSES),
    "one hot": called(lambda y: F.one_hot(y, 40), CLASSES),
    "flip": called(lambda x: x.flip(0, -1), TEXT),
    "tril": called(lambda x: [x.tril(), x.triu(1)], TEXT),
    "ranges": lambda d: [
        torch.arange(5, device=d),
        torch.linspace(0, 1, 7, device=d),
        torch.arange(1, 2, 0.3, device=d),
        torch.eye(3, device=d),
        torch.full((2,), 3.5, device=d),
        torch.zeros(2, device=d),
        torch.ones(2, device=d),
    ],
    "integers": called(
        lambda y: [y // 3, y % 5, y & 6, y | 1, y ^ 3, ~y, -y, y.float() / 3, y[0].bincount()], CLASSES
    ),
    "division": called(
        lambda x: [x.div(0.3, rounding_mode="floor"), x.fmod(0.7), x.remainder(0.7), x.trunc()], TEXT
    ),
    "mathematics": called(
        lambda x: [
            x.exp(),
            x.abs().log(),
            x.sin(),
            x.cos(),
            x.tan(),
            x.atan(),
            x.sinh(),
            x.cosh(),
            x.erf(),
            x.expm1(),
            x.abs().log1p(),
            x.abs().sqrt(),
            x.abs().rsqrt(),
            x.reciprocal(),
            x.pow(2),
            x.abs().pow(0.7),
            2**x,
            x.floor(),
            x.ceil(),
            x.round(),
            x.sign(),
            x.square(),
            x.neg(),
            x.lerp(x.flip(0), 0.3),
            x.abs().log2(),
        ],
        TEXT,
    ),
    "comparisons": called(
        lambda x: [x > 0, x >= x.flip(0), x == x, x != 0, x.isinf(), (x > 0).logical_not()], TEXT
    ),
    "types": called(lambda x: [x.half(), x.bfloat16(), x.int(), x.bool(), x.half() * 2, x.int() + 0.5], TEXT),
    "repeat": called(
        lambda x: [x.repeat(2, 1, 1), x.expand(4, 16, 32).contiguous(), x.permute(2, 0, 1).clone()], TEXT
    ),
    "search": called(lambda x: torch.searchsorted(torch.linspace(-2, 2, 9, device=x.device), x), TEXT),
    "quantiles": called(lambda x: [x.median(), *x.kthvalue(5, -1), *x.cummax(1)], TEXT),
    "printing": lambda d: [torch.tensor(list(f"{torch.arange(6.0, device=d)}".split("]")[0].encode()))],
}
