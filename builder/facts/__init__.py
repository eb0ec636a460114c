"""What is true of ROCm, torch and distributions: data with sources, and its loader."""

from builder.facts.loader import load_facts
from builder.facts.model import (
    Archive,
    Component,
    Confidence,
    Contents,
    Distribution,
    DistroTorch,
    Fact,
    Facts,
)

__all__ = [
    "Archive",
    "Component",
    "Confidence",
    "Contents",
    "Distribution",
    "DistroTorch",
    "Fact",
    "Facts",
    "load_facts",
]
