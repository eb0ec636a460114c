"""ViT-B/16 at 224 pixels, 1000 classes (Dosovitskiy et al. 2020): 86,567,656 parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from rocm_torch_selftest.models.layers import attention, join_heads, split_heads

PARAMETERS = 86_567_656


@dataclass(frozen=True)
class Config:
    """Sizes of the network; pixels and patch in pixels."""

    pixels: int = 224
    patch: int = 16
    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    classes: int = 1000


TINY = Config(pixels=32, width=32, layers=2, heads=2, inner=64, classes=10)
_EPSILON = 1e-6


class Block(nn.Module):
    """Self-attention and a feed-forward network, each normalised before it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.attention_norm = nn.LayerNorm(config.width, eps=_EPSILON)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.output = nn.Linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width, eps=_EPSILON)
        self.inner = nn.Linear(config.width, config.inner)
        self.outer = nn.Linear(config.inner, config.width)

    def forward(self, states: Any) -> Any:
        """Return the states after this block."""
        parts = self.qkv(self.attention_norm(states)).chunk(3, -1)
        query, key, value = (split_heads(part, self.heads) for part in parts)
        states = states + self.output(join_heads(attention(query, key, value)))
        return states + self.outer(functional.gelu(self.inner(self.norm(states))))


class VisionTransformer(nn.Module):
    """Patches, a class token, blocks, classifier."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        patches = (config.pixels // config.patch) ** 2
        self.patches = nn.Conv2d(3, config.width, config.patch, config.patch)
        self.token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, patches + 1, config.width))
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width, eps=_EPSILON)
        self.classifier = nn.Linear(config.width, config.classes)

    def forward(self, images: Any) -> Any:
        """Return the scores of the classes."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        token = self.token.expand(patches.shape[0], -1, -1).to(patches.dtype)
        states = torch.cat((token, patches), 1) + self.positions
        return self.classifier(self.norm(self.blocks(states))[:, 0])


def build(config: Config) -> Any:
    """Return the network."""
    return VisionTransformer(config)
