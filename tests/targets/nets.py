"""The nets of the trainings in memory.py: a perceptron, a small GPT, a convolutional net."""

from torch import nn
from torch.nn import functional


class Mlp(nn.Module):
    """Three hidden layers, whose outputs a backward needs."""

    def __init__(self, inputs, width, outputs):
        super().__init__()
        self.hidden = nn.ModuleList(
            [nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, width)]
        )
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        for layer in self.hidden:
            x = functional.gelu(layer(x))
        return self.head(x)


class Block(nn.Module):
    """One transformer block."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        shape = x.shape
        q, k, v = (
            one.view(shape[0], shape[1], self.heads, -1).transpose(1, 2)
            for one in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(shape))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """Embeddings, two blocks and a head; of rows as long as `length` and shorter."""

    def __init__(self, words, width, length, heads=4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads), Block(width, heads)])
        self.head = nn.Linear(width, words)

    def forward(self, rows):
        x = self.tokens(rows) + self.places.weight[: rows.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Conv(nn.Module):
    """Two convolutions with batch norms and a residual."""

    def __init__(self, classes):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.head = nn.Linear(8 * 16 * 16, classes)

    def forward(self, x):
        x = self.first(x)
        return self.head(functional.relu(x + self.second(x)).flatten(1))
