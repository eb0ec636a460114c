"""The UNet of Stable Diffusion 1.5 (Rombach et al. 2022): 859,520,964 parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from rocm_torch_selftest.models.layers import attention, join_heads, split_heads

PARAMETERS = 859_520_964


@dataclass(frozen=True)
class Config:
    """Sizes; the last level has no attention, ``context`` is the width of the text's states."""

    channels: tuple[int, ...] = (320, 640, 1280, 1280)
    blocks: int = 2
    heads: int = 8
    context: int = 768
    groups: int = 32


TINY = Config(channels=(16, 32), blocks=1, heads=2, context=16, groups=4)
_LATENT = 4


class Residual(nn.Module):
    """Two convolutions around a shortcut; the time is added in between."""

    def __init__(self, config: Config, inside: int, outside: int) -> None:
        super().__init__()
        self.first_norm = nn.GroupNorm(config.groups, inside)
        self.first = nn.Conv2d(inside, outside, 3, padding=1)
        self.time = nn.Linear(4 * config.channels[0], outside)
        self.second_norm = nn.GroupNorm(config.groups, outside)
        self.second = nn.Conv2d(outside, outside, 3, padding=1)
        self.shortcut: Any = nn.Identity()
        if inside != outside:
            self.shortcut = nn.Conv2d(inside, outside, 1)

    def forward(self, images: Any, time: Any) -> Any:
        """Return the images after this block."""
        states = self.first(functional.silu(self.first_norm(images)))
        states = states + self.time(functional.silu(time))[:, :, None, None]
        return self.shortcut(images) + self.second(functional.silu(self.second_norm(states)))


class Attention(nn.Module):
    """Attention of the image to itself or to a text."""

    def __init__(self, width: int, context: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(context, width, bias=False)
        self.value = nn.Linear(context, width, bias=False)
        self.output = nn.Linear(width, width)

    def forward(self, states: Any, context: Any) -> Any:
        """Attend from ``states`` to ``context``."""
        query = split_heads(self.query(states), self.heads)
        key, value = (split_heads(one(context), self.heads) for one in (self.key, self.value))
        return self.output(join_heads(attention(query, key, value)))


class Transformer(nn.Module):
    """Self-attention, cross-attention and a gated feed-forward network over the pixels."""

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(config.groups, width, eps=1e-6)
        self.inside, self.outside = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.own = Attention(width, width, config.heads)
        self.cross = Attention(width, config.context, config.heads)
        self.gate, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, images: Any, context: Any) -> Any:
        """Return the images after this block."""
        _, _, rows, columns = images.shape
        states = self.inside(self.norm(images)).flatten(2).transpose(1, 2)
        normal = self.norms[0](states)
        states = states + self.own(normal, normal)
        states = states + self.cross(self.norms[1](states), context)
        value, gate = self.gate(self.norms[2](states)).chunk(2, -1)
        states = states + self.down(value * functional.gelu(gate))
        return images + self.outside(states.transpose(1, 2).unflatten(2, (rows, columns)))


class Stage(nn.Module):
    """A residual block and, except on the last level, a transformer."""

    def __init__(self, config: Config, inside: int, outside: int, *, attends: bool) -> None:
        super().__init__()
        self.residual = Residual(config, inside, outside)
        self.transformer = Transformer(config, outside) if attends else None

    def forward(self, images: Any, time: Any, context: Any) -> Any:
        """Return the images after this stage."""
        images = self.residual(images, time)
        return images if self.transformer is None else self.transformer(images, context)


class UNet(nn.Module):
    """The way down, the middle and the way up, with a shortcut from each step down."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        first, levels = config.channels[0], len(config.channels)
        self.first = first
        self.time = nn.Sequential(
            nn.Linear(first, 4 * first), nn.SiLU(), nn.Linear(4 * first, 4 * first)
        )
        self.inside = nn.Conv2d(_LATENT, first, 3, padding=1)
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        widths, width = [first], first
        for level, outside in enumerate(config.channels):
            last = level == levels - 1
            for _ in range(config.blocks):
                self.down.append(Stage(config, width, outside, attends=not last))
                width = outside
                widths.append(width)
            if not last:
                self.shrink.append(nn.Conv2d(width, width, 3, 2, 1))
                widths.append(width)
        self.middle = Stage(config, width, width, attends=True)
        self.middle_end = Stage(config, width, width, attends=False)
        self._build_up(config, widths, width)
        self.norm = nn.GroupNorm(config.groups, first)
        self.outside = nn.Conv2d(first, _LATENT, 3, padding=1)

    def _build_up(self, config: Config, widths: list[int], width: int) -> None:
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for level, outside in reversed(list(enumerate(config.channels))):
            last = level == len(config.channels) - 1
            for _ in range(config.blocks + 1):
                self.up.append(Stage(config, width + widths.pop(), outside, attends=not last))
                width = outside
            if level:
                self.grow.append(nn.Conv2d(width, width, 3, padding=1))
        self.per_level = config.blocks

    def forward(self, latents: Any, time: Any, context: Any) -> Any:
        """Return the noise in latents (batch, 4, rows, columns) at a time (batch)."""
        moment = self.time(self._time_waves(time).to(latents.dtype))
        images = self.inside(latents)
        kept = [images]
        for number, stage in enumerate(self.down):
            images = stage(images, moment, context)
            kept.append(images)
            level, end = divmod(number + 1, self.per_level)
            if not end and level <= len(self.shrink):
                images = self.shrink[level - 1](images)
                kept.append(images)
        images = self.middle_end(self.middle(images, moment, context), moment, context)
        for number, stage in enumerate(self.up):
            images = stage(torch.cat((images, kept.pop()), 1), moment, context)
            level, end = divmod(number + 1, self.per_level + 1)
            if not end and level <= len(self.grow):
                doubled = functional.interpolate(images, scale_factor=2.0, mode="nearest")
                images = self.grow[level - 1](doubled)
        return self.outside(functional.silu(self.norm(images)))

    def _time_waves(self, time: Any) -> Any:
        half = self.first // 2
        rates = torch.arange(half, device=time.device, dtype=torch.float32)
        angles = time[:, None].float() * torch.exp(-math.log(10000) * rates / half)
        return torch.cat((angles.cos(), angles.sin()), 1)


def build(config: Config) -> Any:
    """Return the UNet."""
    return UNet(config)
