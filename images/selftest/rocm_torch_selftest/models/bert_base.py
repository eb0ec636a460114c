"""BERT-base, uncased, with pooler (Devlin et al. 2018): 109,482,240 parameters.

The classifier that the benchmark trains on top is a head of its own and not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from rocm_torch_selftest.models.layers import attention, join_heads, split_heads

PARAMETERS = 109_482_240


@dataclass(frozen=True)
class Config:
    """Sizes of the encoder."""

    vocabulary: int = 30522
    positions: int = 512
    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    dropout: float = 0.1


TINY = Config(vocabulary=100, positions=32, width=32, layers=2, heads=2, inner=64)
_EPSILON = 1e-12


class Layer(nn.Module):
    """Self-attention and a feed-forward network, each normalised after its sum."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.heads, self.dropout = config.heads, config.dropout
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=_EPSILON)
        self.inner, self.outer = nn.Linear(width, config.inner), nn.Linear(config.inner, width)
        self.output_norm = nn.LayerNorm(width, eps=_EPSILON)

    def forward(self, states: Any) -> Any:
        """Return the states after this layer."""
        query, key, value = (
            split_heads(project(states), self.heads)
            for project in (self.query, self.key, self.value)
        )
        rate = self.dropout if self.training else 0.0
        seen = self.output(join_heads(attention(query, key, value, dropout=rate)))
        states = self.attention_norm(states + functional.dropout(seen, rate))
        thought = self.outer(functional.gelu(self.inner(states)))
        return self.output_norm(states + functional.dropout(thought, rate))


class Bert(nn.Module):
    """Embeddings, layers and the pooler over the first token."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.width, padding_idx=0)
        self.positions = nn.Embedding(config.positions, config.width)
        self.kinds = nn.Embedding(2, config.width)
        self.norm = nn.LayerNorm(config.width, eps=_EPSILON)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.Sequential(*(Layer(config) for _ in range(config.layers)))
        self.pooler = nn.Linear(config.width, config.width)

    def forward(self, tokens: Any) -> Any:
        """Return the pooled states of token numbers (batch, length)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        states = self.words(tokens) + self.positions(places) + self.kinds.weight[0]
        states = self.layers(self.dropout(self.norm(states)))
        return torch.tanh(self.pooler(states[:, 0]))


def build(config: Config) -> Any:
    """Return the encoder with its pooler."""
    return Bert(config)
