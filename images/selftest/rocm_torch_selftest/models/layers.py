"""What several models share: attention, and building a model where it will run."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import torch
from torch import nn
from torch.nn import functional


def attention(
    query: Any, key: Any, value: Any, *, causal: bool = False, dropout: float = 0.0
) -> Any:
    """Return scaled dot-product attention over (batch, heads, length, width).

    torch before 2.0 has no fused one; there the same is written out.
    """
    fused = getattr(functional, "scaled_dot_product_attention", None)
    if fused is not None:
        return fused(query, key, value, dropout_p=dropout, is_causal=causal)
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    if causal:
        length = query.shape[-2]
        hidden = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    weights = functional.dropout(scores.softmax(-1), p=dropout)
    return weights @ value


def split_heads(states: Any, heads: int) -> Any:
    """Turn (batch, length, width) into (batch, heads, length, width / heads)."""
    batch, length, width = states.shape
    return states.view(batch, length, heads, width // heads).transpose(1, 2)


def join_heads(states: Any) -> Any:
    """Undo ``split_heads``."""
    batch, heads, length, width = states.shape
    return states.transpose(1, 2).reshape(batch, length, heads * width)


@contextlib.contextmanager
def born_on(device: Any, dtype: Any) -> Iterator[None]:
    """Make parameters that are created inside be created on ``device`` in ``dtype``.

    Nothing is built on the host first: 13.5 GB would take longer to fill there and to copy than
    the whole measurement. torch before 2.0 cannot do it, and builds on the CPU.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device) if hasattr(torch.device, "__enter__") else _nothing():
            yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _nothing() -> Iterator[None]:
    yield


def count_parameters(model: Any) -> int:
    """Return how many numbers the parameters hold; a tied one counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


class RMSNorm(nn.Module):
    """Root-mean-square normalisation, computed in float32."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, states: Any) -> Any:
        """Normalise over the last dimension."""
        wide = states.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * (wide * scale).to(states.dtype)
