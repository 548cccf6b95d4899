"""ResNet-50: the sizes of its 161 parameter tensors (102.2 MB of float32), and the model itself, without torchvision.

Used by the gradient and training benchmarks. The sizes are computed, so that programs without torch can use them.
"""

from __future__ import annotations

from typing import Any

from ranks import networks
from ranks.networks import CLASSES, EXPANSION, STAGE_WIDTHS

_BLOCKS = (3, 4, 6, 3)


def parameter_sizes() -> list[int]:
    """Elements of each parameter, in the order of `model.parameters()`."""
    return [tensor.elements for tensor in networks.resnet(*_BLOCKS)]


def gradient_sizes(small_only: bool = False) -> list[int]:
    """The same in the order in which backward makes them ready: last first; on request only those of at most 64 KB."""
    return [size for size in reversed(parameter_sizes()) if not small_only or size * 4 <= 64 << 10]


def model() -> Any:
    """The torch model."""
    from torch import nn

    class Bottleneck(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int, shortcut: bool) -> None:
            super().__init__()
            outputs = width * EXPANSION
            self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU(inplace=True)
            self.shortcut = (
                nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))
                if shortcut
                else nn.Identity()
            )

        def forward(self, x: Any) -> Any:
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.relu(self.bn2(self.conv2(y)))
            return self.relu(self.bn3(self.conv3(y)) + self.shortcut(x))

    layers: list[Any] = [
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    inputs = 64
    for (width, stride), blocks in zip(STAGE_WIDTHS, _BLOCKS):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1, shortcut=block == 0))
            inputs = width * EXPANSION
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))
