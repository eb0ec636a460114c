"""The base families: where ROCm and torch of a cell come from."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from builder.matrix.families.amd_wheel import AmdWheelFamily
from builder.matrix.families.distro import DistroFamily
from builder.matrix.families.model import Combination, Family, Specification
from builder.matrix.families.rocm_dev import RocmDevFamily
from builder.matrix.families.rocm_pytorch import RocmPytorchFamily
from builder.matrix.families.wheel import WheelFamily

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALL: tuple[Family, ...] = (
    RocmPytorchFamily(),
    WheelFamily(),
    AmdWheelFamily(),
    RocmDevFamily(),
    DistroFamily(),
)
FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in _ALL})
AUTO = "auto"
_ORDER = (FAMILIES["rocm-pytorch"], FAMILIES["wheel"])


def families_of(base: str) -> tuple[Family, ...]:
    """Return the families that a lane's ``base:`` means, the one that is tried first in front."""
    return _ORDER if base == AUTO else (FAMILIES[base],)


__all__ = ["AUTO", "FAMILIES", "Combination", "Family", "Specification", "families_of"]
