"""What is true of ROCm, torch and distributions: data with sources, and its loader."""

from builder.facts.distributions import (
    Archive,
    Component,
    ComponentPackages,
    Contents,
    Distribution,
    DistroTorch,
    Lifecycle,
)
from builder.facts.fact import Confidence, Fact
from builder.facts.loader import SUBJECTS, load_facts
from builder.facts.model import Facts
from builder.facts.registries import RegistryLimit
from builder.facts.rocm import (
    DevImage,
    DriverWindow,
    GfxProducts,
    PackageRepository,
    Peak,
    RocmRelease,
    RocmSupport,
    UpstreamImage,
)
from builder.facts.wheels import AmdWheel, LibcFloor, TorchWheel, WheelIndex

__all__ = [
    "SUBJECTS",
    "AmdWheel",
    "Archive",
    "Component",
    "ComponentPackages",
    "Confidence",
    "Contents",
    "DevImage",
    "Distribution",
    "DistroTorch",
    "DriverWindow",
    "Fact",
    "Facts",
    "GfxProducts",
    "LibcFloor",
    "Lifecycle",
    "PackageRepository",
    "Peak",
    "RegistryLimit",
    "RocmRelease",
    "RocmSupport",
    "TorchWheel",
    "UpstreamImage",
    "WheelIndex",
    "load_facts",
]
