"""YOLOv5s in its version 6, 80 classes, convolutions and norms not fused: 7,235,389 parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

PARAMETERS = 7_235_389
STRIDES = (8, 16, 32)


@dataclass(frozen=True)
class Config:
    """Sizes: channels of the stem and of the four stages, and their depths."""

    channels: tuple[int, ...] = (32, 64, 128, 256, 512)
    depths: tuple[int, ...] = (1, 2, 3, 1)
    classes: int = 80
    anchors: int = 3

    @property
    def outputs(self) -> int:
        """Return how many numbers describe one box: place, size, objectness, classes."""
        return self.classes + 5


TINY = Config(channels=(8, 8, 16, 16, 32), depths=(1, 1, 1, 1), classes=4)


def _convolution(inside: int, outside: int, kernel: int = 1, stride: int = 1) -> Any:
    padding = 2 if kernel == 6 else kernel // 2
    return nn.Sequential(
        nn.Conv2d(inside, outside, kernel, stride, padding, bias=False),
        nn.BatchNorm2d(outside, eps=1e-3, momentum=0.03),
        nn.SiLU(inplace=True),
    )


class Residual(nn.Module):
    """1x1 and 3x3 convolutions, around a shortcut in the backbone."""

    def __init__(self, width: int, *, shortcut: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(_convolution(width, width), _convolution(width, width, 3))
        self.shortcut = shortcut

    def forward(self, images: Any) -> Any:
        """Apply the body."""
        return images + self.body(images) if self.shortcut else self.body(images)


class Split(nn.Module):
    """A cross-stage block: half of the channels go through the residual blocks."""

    def __init__(self, inside: int, outside: int, depth: int, *, shortcut: bool) -> None:
        super().__init__()
        half = outside // 2
        blocks = (Residual(half, shortcut=shortcut) for _ in range(depth))
        self.deep = nn.Sequential(_convolution(inside, half), *blocks)
        self.flat = _convolution(inside, half)
        self.join = _convolution(2 * half, outside)

    def forward(self, images: Any) -> Any:
        """Join both halves."""
        return self.join(torch.cat((self.deep(images), self.flat(images)), 1))


class Pyramid(nn.Module):
    """Three poolings of 5 one after the other, joined with what went in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = _convolution(width, width // 2)
        self.join = _convolution(2 * width, width)

    def forward(self, images: Any) -> Any:
        """Join the poolings."""
        levels = [self.inner(images)]
        for _ in range(3):
            levels.append(functional.max_pool2d(levels[-1], 5, 1, 2))
        return self.join(torch.cat(levels, 1))


class Yolo(nn.Module):
    """Backbone, the way up and the way down, and one 1x1 convolution a scale."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        stem, two, three, four, five = config.channels
        one_deep, two_deep, three_deep, four_deep = config.depths
        self.to_three = nn.Sequential(
            _convolution(3, stem, 6, 2),
            _convolution(stem, two, 3, 2),
            Split(two, two, one_deep, shortcut=True),
            _convolution(two, three, 3, 2),
            Split(three, three, two_deep, shortcut=True),
        )
        self.to_four = nn.Sequential(
            _convolution(three, four, 3, 2), Split(four, four, three_deep, shortcut=True)
        )
        self.to_five = nn.Sequential(
            _convolution(four, five, 3, 2), Split(five, five, four_deep, shortcut=True)
        )
        self.pyramid, self.side_five = Pyramid(five), _convolution(five, four)
        self.up_four, self.side_four = _side(2 * four, four), _convolution(four, three)
        self.up_three, self.down_three = _side(2 * three, three), _convolution(three, three, 3, 2)
        self.low_four, self.down_four = _side(2 * three, four), _convolution(four, four, 3, 2)
        self.low_five = _side(2 * four, five)
        self.anchors, self.outputs = config.anchors, config.outputs
        boxes = config.anchors * config.outputs
        self.heads = nn.ModuleList([nn.Conv2d(width, boxes, 1) for width in (three, four, five)])

    def forward(self, images: Any) -> Any:
        """Return for each scale the raw boxes (batch, anchors * rows * columns, outputs)."""
        three = self.to_three(images)
        four = self.to_four(three)
        side_five = self.side_five(self.pyramid(self.to_five(four)))
        side_four = self.side_four(self.up_four(torch.cat((_double(side_five), four), 1)))
        high = self.up_three(torch.cat((_double(side_four), three), 1))
        middle = self.low_four(torch.cat((self.down_three(high), side_four), 1))
        low = self.low_five(torch.cat((self.down_four(middle), side_five), 1))
        found = zip(self.heads, (high, middle, low))
        return [self._boxes(head(states)) for head, states in found]

    def _boxes(self, raw: Any) -> Any:
        batch, _, rows, columns = raw.shape
        boxes = raw.view(batch, self.anchors, self.outputs, rows, columns)
        return boxes.permute(0, 1, 3, 4, 2).reshape(batch, -1, self.outputs)


def _side(inside: int, outside: int) -> Any:
    return Split(inside, outside, 1, shortcut=False)


def _double(images: Any) -> Any:
    return functional.interpolate(images, scale_factor=2.0, mode="nearest")


def fixed_assignment_loss(found: Any, every: int = 97) -> Any:
    """Return a detection loss in which every 97th box is assigned, to a fixed box and class.

    A matcher would make the work depend on the weights, and the measurement on their history.
    """
    total = 0.0
    for boxes in found:
        boxes = boxes.float()
        chosen = boxes[:, ::every]
        objectness = torch.zeros_like(boxes[..., 4])
        objectness[:, ::every] = 1.0
        places = chosen[..., :4].sigmoid()
        classes = torch.zeros_like(chosen[..., 5:])
        classes[..., 0] = 1.0
        total = total + 0.05 * (places - 0.5).abs().mean()
        total = total + functional.binary_cross_entropy_with_logits(boxes[..., 4], objectness)
        total = total + 0.5 * functional.binary_cross_entropy_with_logits(chosen[..., 5:], classes)
    return total


def build(config: Config) -> Any:
    """Return the detector."""
    return Yolo(config)
