"""Whisper medium (Radford et al. 2022), the output tied: 763,857,920 parameters.

The encoder's fixed sinusoidal positions are among the counted numbers and are not trained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from rocm_torch_selftest.models.layers import attention, join_heads, split_heads

PARAMETERS = 763_857_920


@dataclass(frozen=True)
class Config:
    """Sizes; ``frames`` are those after the encoder's second convolution."""

    bands: int = 80
    frames: int = 1500
    vocabulary: int = 51865
    positions: int = 448
    width: int = 1024
    layers: int = 24
    heads: int = 16


TINY = Config(bands=8, frames=20, vocabulary=100, positions=48, width=32, layers=2, heads=2)


def _sinusoids(length: int, width: int) -> Any:
    step = math.log(10000) / (width // 2 - 1)
    rates = torch.exp(-step * torch.arange(width // 2, dtype=torch.float32))
    angles = torch.outer(torch.arange(length, dtype=torch.float32), rates)
    return torch.cat((angles.sin(), angles.cos()), 1).to(torch.get_default_dtype())


class Attention(nn.Module):
    """Attention over given keys and values; keys have no bias."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.query, self.value = nn.Linear(width, width), nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width)

    def keys_and_values(self, states: Any) -> Any:
        """Return what ``forward`` attends to, for these states."""
        return tuple(split_heads(one(states), self.heads) for one in (self.key, self.value))

    def forward(self, states: Any, keys: Any, values: Any) -> Any:
        """Attend from ``states`` to all of the keys."""
        query = split_heads(self.query(states), self.heads)
        return self.output(join_heads(attention(query, keys, values)))


class Layer(nn.Module):
    """A layer of the encoder or, with ``crossed``, of the decoder."""

    def __init__(self, config: Config, *, crossed: bool) -> None:
        super().__init__()
        width = config.width
        self.attention_norm, self.attention = nn.LayerNorm(width), Attention(config)
        if crossed:
            self.cross_norm, self.cross = nn.LayerNorm(width), Attention(config)
        self.norm = nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def think(self, states: Any) -> Any:
        """Apply the feed-forward network."""
        return states + self.outer(functional.gelu(self.inner(self.norm(states))))

    def encode(self, states: Any) -> Any:
        """Return the states after this layer of the encoder."""
        normal = self.attention_norm(states)
        states = states + self.attention(normal, *self.attention.keys_and_values(normal))
        return self.think(states)

    def decode(self, states: Any, cache: Any, crossed: Any, place: int) -> Any:
        """Return the state of one token; its key and value go into ``cache`` at ``place``."""
        normal = self.attention_norm(states)
        for kept, new in zip(cache, self.attention.keys_and_values(normal)):
            kept[:, :, place : place + 1] = new
        past = [kept[:, :, : place + 1] for kept in cache]
        states = states + self.attention(normal, *past)
        return self.think(states + self.cross(self.cross_norm(states), *crossed))


class Whisper(nn.Module):
    """Encoder over a spectrogram, and a decoder that writes one token after the other."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.config = config
        self.first = nn.Conv1d(config.bands, width, 3, padding=1)
        self.second = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.frames = nn.Parameter(_sinusoids(config.frames, width), requires_grad=False)
        self.encoder = nn.ModuleList([Layer(config, crossed=False) for _ in range(config.layers)])
        self.encoder_norm = nn.LayerNorm(width)
        self.words = nn.Embedding(config.vocabulary, width)
        self.positions = nn.Parameter(0.01 * torch.randn(config.positions, width))
        self.decoder = nn.ModuleList([Layer(config, crossed=True) for _ in range(config.layers)])
        self.decoder_norm = nn.LayerNorm(width)

    def encode(self, spectrogram: Any) -> Any:
        """Return the states of a spectrogram (batch, bands, 2 * frames)."""
        states = functional.gelu(self.second(functional.gelu(self.first(spectrogram))))
        states = states.transpose(1, 2) + self.frames
        for layer in self.encoder:
            states = layer.encode(states)
        return self.encoder_norm(states)

    def forward(self, spectrogram: Any, tokens: int) -> Any:
        """Write ``tokens`` tokens, each the likeliest one, and return them (batch, tokens)."""
        heard = self.encode(spectrogram)
        crossed = [layer.cross.keys_and_values(heard) for layer in self.decoder]
        batch, heads = heard.shape[0], self.config.heads
        shape = (batch, heads, tokens, self.config.width // heads)
        caches = [(heard.new_empty(shape), heard.new_empty(shape)) for _ in self.decoder]
        written = [torch.zeros(batch, 1, dtype=torch.long, device=heard.device)]
        for place in range(tokens):
            states = self.words(written[-1]) + self.positions[place]
            for layer, cache, cross in zip(self.decoder, caches, crossed):
                states = layer.decode(states, cache, cross, place)
            scores = functional.linear(self.decoder_norm(states), self.words.weight)
            written.append(scores.argmax(-1))
        return torch.cat(written[1:], 1)


def build(config: Config) -> Any:
    """Return encoder and decoder."""
    return Whisper(config)
