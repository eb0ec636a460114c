"""ResNet-50 (He et al. 2015), the stride in the 3x3 convolution: 25,557,032 parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

PARAMETERS = 25_557_032


@dataclass(frozen=True)
class Config:
    """Sizes of the network; a stage is (blocks, width of its bottleneck)."""

    stem: int = 64
    stages: tuple[tuple[int, int], ...] = ((3, 64), (4, 128), (6, 256), (3, 512))
    classes: int = 1000


TINY = Config(stem=8, stages=((1, 8), (1, 16)), classes=10)
_EXPANSION = 4


def _convolution(inside: int, outside: int, kernel: int, stride: int = 1) -> Any:
    return nn.Conv2d(inside, outside, kernel, stride, padding=kernel // 2, bias=False)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around a shortcut."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = width * _EXPANSION
        self.body = nn.Sequential(
            _convolution(inside, width, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _convolution(width, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _convolution(width, outside, 1),
            nn.BatchNorm2d(outside),
        )
        self.shortcut: Any = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                _convolution(inside, outside, 1, stride), nn.BatchNorm2d(outside)
            )

    def forward(self, images: Any) -> Any:
        """Add the body to the shortcut."""
        return torch.relu(self.body(images) + self.shortcut(images))


class ResNet(nn.Module):
    """Stem, stages, average, classifier."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, config.stem, 7, 2, 3, bias=False),
            nn.BatchNorm2d(config.stem),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        inside, blocks = config.stem, []
        for number, (count, width) in enumerate(config.stages):
            for position in range(count):
                stride = 2 if number and not position else 1
                blocks.append(Bottleneck(inside, width, stride))
                inside = width * _EXPANSION
        self.stages = nn.Sequential(*blocks)
        self.classifier = nn.Linear(inside, config.classes)

    def forward(self, images: Any) -> Any:
        """Return the scores of the classes."""
        return self.classifier(self.stages(self.stem(images)).mean((2, 3)))


def build(config: Config) -> Any:
    """Return the network."""
    return ResNet(config)
