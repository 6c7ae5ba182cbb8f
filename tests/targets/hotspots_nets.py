"""The nets of the trainings in hotspots.py: of each it is known how many products a step has."""

from torch import nn
from torch.nn import functional


class Resnet(nn.Module):
    """Five convolutions, two residuals with batch norms and ReLU in place."""

    def __init__(self, channels, classes):
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.parts = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1),
                nn.BatchNorm2d(channels),
                nn.ReLU(inplace=True),
                nn.Conv2d(channels, channels, 3, padding=1),
                nn.BatchNorm2d(channels),
            )
            for _ in range(2)
        )
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = functional.relu(self.first(x), inplace=True)
        for part in self.parts:
            x = functional.relu(x + part(x))
        return self.head(x.mean((2, 3)))


class Perceptron(nn.Module):
    """Three linear layers."""

    def __init__(self, inputs, width, outputs):
        super().__init__()
        self.first, self.second = nn.Linear(inputs, width), nn.Linear(width, width)
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        return self.head(functional.gelu(self.second(functional.gelu(self.first(x)))))


class Judge(nn.Module):
    """Two linear layers and one number."""

    def __init__(self, inputs, width):
        super().__init__()
        self.first, self.head = nn.Linear(inputs, width), nn.Linear(width, 1)

    def forward(self, x):
        return self.head(functional.relu(self.first(x)))


class TwoStage(nn.Module):
    """Two linear layers with some pointwise operators that a compiler fuses."""

    def __init__(self, inputs, width):
        super().__init__()
        self.first, self.second = nn.Linear(inputs, width), nn.Linear(width, inputs)

    def forward(self, x):
        y = functional.gelu(self.first(x)) * 1.5 + 0.25
        return x + self.second(y.sigmoid() * y)


class Lanes(nn.Module):
    """Very many additions and products of very few numbers."""

    def __init__(self, count, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)])
        self.count = count

    def forward(self, x):
        x = self.layers[0](x)
        for _ in range(self.count):
            x = x * 0.99 + 0.01
        return self.layers[1](x)
