"""Llama-2-7B (Touvron et al. 2023), the output not tied: 6,738,415,616 parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from rocm_torch_selftest.models.layers import RMSNorm, attention, join_heads, split_heads

PARAMETERS = 6_738_415_616


@dataclass(frozen=True)
class Config:
    """Sizes of the decoder."""

    vocabulary: int = 32000
    width: int = 4096
    layers: int = 32
    heads: int = 32
    inner: int = 11008
    positions: int = 4096


TINY = Config(vocabulary=100, width=32, layers=2, heads=2, inner=64, positions=32)
_EPSILON = 1e-5
_ROTARY_BASE = 10000.0


def rotary_angles(length: int, width: int, device: Any) -> Any:
    """Return cosines and sines, each (length, width), for rotary positions."""
    exponents = torch.arange(0, width, 2, device=device, dtype=torch.float32) / width
    places = torch.arange(length, device=device, dtype=torch.float32)
    angles = torch.outer(places, _ROTARY_BASE**-exponents)
    angles = torch.cat((angles, angles), -1)
    return angles.cos(), angles.sin()


def rotate(states: Any, cosines: Any, sines: Any) -> Any:
    """Turn each pair of numbers by the angle of its place."""
    first, second = states.chunk(2, -1)
    return states * cosines + torch.cat((-second, first), -1) * sines


class Layer(nn.Module):
    """Causal self-attention with rotary positions, and a gated feed-forward network."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, inner = config.width, config.inner
        self.heads = config.heads
        self.attention_norm = RMSNorm(width, _EPSILON)
        self.query, self.key, self.value, self.output = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.norm = RMSNorm(width, _EPSILON)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, states: Any, cosines: Any, sines: Any) -> Any:
        """Return the states after this layer."""
        normal = self.attention_norm(states)
        query, key, value = (
            split_heads(project(normal), self.heads)
            for project in (self.query, self.key, self.value)
        )
        query, key = rotate(query, cosines, sines), rotate(key, cosines, sines)
        states = states + self.output(join_heads(attention(query, key, value, causal=True)))
        normal = self.norm(states)
        return states + self.down(functional.silu(self.gate(normal)) * self.up(normal))


class Llama(nn.Module):
    """Embedding, layers, norm and output."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head_width = config.width // config.heads
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.norm = RMSNorm(config.width, _EPSILON)
        self.output = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, tokens: Any) -> Any:
        """Return the scores of what follows the last of the tokens (batch, length)."""
        states = self.words(tokens)
        angles = rotary_angles(tokens.shape[1], self.head_width, tokens.device)
        cosines, sines = (part.to(states.dtype) for part in angles)
        for layer in self.layers:
            states = layer(states, cosines, sines)
        return self.output(self.norm(states[:, -1:]))


def build(config: Config) -> Any:
    """Return the decoder."""
    return Llama(config)
