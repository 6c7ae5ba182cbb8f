"""The nets of the trainings in overflow.py, taken apart as users write them."""

import math

import torch
from torch import nn
from torch.nn import functional

WORDS, WIDTH, HEADS, LENGTH, BLOCKS = 64, 32, 2, 16, 3
GAIN = 1.1
"""What Activation multiplies with: from 59,549 on its result is none of float16."""


class Activation(nn.Module):
    """A GELU with a gain, as nets without norms have it."""

    def forward(self, x):
        return functional.gelu(x) * GAIN


class Mlp(nn.Module):
    """A feed-forward part.  `spoil` is what a user's code does to the activations in the middle of it."""

    def __init__(self):
        super().__init__()
        self.up_proj, self.act = nn.Linear(WIDTH, 4 * WIDTH), Activation()
        self.down_proj = nn.Linear(4 * WIDTH, WIDTH)
        self.spoil = None

    def forward(self, x):
        y = self.up_proj(x)
        if self.spoil is not None:
            self.spoil(y)
        return self.down_proj(self.act(y))


class Attention(nn.Module):
    """Attention by hand; `mask` is added to the logits or, of booleans, says which are to be left out."""

    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out_proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask):
        q, k, v = (
            one(x).view(*x.shape[:2], HEADS, -1).transpose(1, 2)
            for one in (self.q_proj, self.k_proj, self.v_proj)
        )
        logits = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        logits = logits.masked_fill(mask, float("-inf")) if mask.dtype == torch.bool else logits + mask
        seen = functional.softmax(logits, -1) @ v
        return self.out_proj(seen.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    """One transformer block."""

    def __init__(self):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.mlp = nn.LayerNorm(WIDTH), Mlp()

    def forward(self, x, mask):
        x = x + self.attn(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class Pool(nn.Module):
    """The sum over all tokens, kept in the type that it comes in."""

    def forward(self, x):
        return x.sum(1, dtype=x.dtype)


class Net(nn.Module):
    """A decoder that says the next token, or, with `pools`, one word for the whole row."""

    def __init__(self, pools=False):
        super().__init__()
        self.tokens, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.mix = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.pool = Pool() if pools else None
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, rows, mask):
        x = self.tokens(rows) + self.places.weight[: rows.shape[1]]
        for block in self.blocks:
            x = block(x, mask)
        x = self.mix(self.norm(x))
        return self.head(x if self.pool is None else self.pool(x))


class Int8Linear(nn.Module):
    """A frozen layer of int8 weights, which come back by one scale."""

    def __init__(self, inputs, outputs, gain):
        super().__init__()
        weight = torch.randn(outputs, inputs) * gain / math.sqrt(inputs)
        scale = weight.abs().max() / 127
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x):
        return functional.linear(x, self.weight.to(x.dtype) * self.scale.to(x.dtype))


class QuantizedBlock(nn.Module):
    """A residual block without a norm: what comes in larger goes out larger."""

    def __init__(self, width):
        super().__init__()
        self.up_proj, self.act = Int8Linear(width, 2 * width, 0.5), nn.ReLU()
        self.down_proj = Int8Linear(2 * width, width, 8.0)

    def forward(self, x):
        return x + self.down_proj(self.act(self.up_proj(x)))


class Quantized(nn.Module):
    """A frozen trunk of int8 weights in half precision, below a head that is trained."""

    def __init__(self, inputs, width, outputs):
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(QuantizedBlock(width) for _ in range(4))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, outputs)

    def forward(self, x):
        x = self.embed(x) * 20.0
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x.float()))


class Regularized(nn.Module):
    """A perceptron with dropout and a batch norm."""

    def __init__(self, inputs, width, outputs):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(width, width),
            nn.ReLU(inplace=True),
            nn.Dropout(0.2),
        )
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        return self.head(self.layers(x))
