"""All facts as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.facts.distributions import (
        ComponentPackages,
        Contents,
        Distribution,
        DistroTorch,
        Lifecycle,
    )
    from builder.facts.fact import Fact
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


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts, ready to be asked. A plain value: a test can build its own.

    Attributes:
        distributions: by name.
        distro_torch: the builds of torch that a distribution packages, by its name.
        contents: by base family and flavour.
        rocm_releases: by version.
        rocm_support: by release.
        upstream_images: the tags that are a base, by distro, rocm, torch and python.
        upstream_tags: every tag that was seen, by its text.
        dev_images: by distro and rocm.
        wheel_indexes: by the value of the axis ``rocm``.
        torch_wheels: by index name and torch.
        amd_wheels: by rocm and torch.
        libc_floors: by platform tag.
        gfx_products: by target.
        peaks: by product and dtype.
        lifecycles: by axis and value.
        package_repositories: all of them.
        component_packages: all of them.
        registry_limits: all of them.
        driver_windows: by ROCm series.
        subjects: every entry, by the name of its file.
    """

    distributions: Mapping[str, Distribution] = field(default_factory=dict)
    distro_torch: Mapping[str, tuple[DistroTorch, ...]] = field(default_factory=dict)
    contents: Mapping[tuple[str, str], Contents] = field(default_factory=dict)
    rocm_releases: Mapping[str, RocmRelease] = field(default_factory=dict)
    rocm_support: Mapping[str, RocmSupport] = field(default_factory=dict)
    upstream_images: Mapping[tuple[str, str, str, str], UpstreamImage] = field(default_factory=dict)
    upstream_tags: Mapping[str, UpstreamImage] = field(default_factory=dict)
    dev_images: Mapping[tuple[str, str], DevImage] = field(default_factory=dict)
    wheel_indexes: Mapping[str, WheelIndex] = field(default_factory=dict)
    torch_wheels: Mapping[tuple[str, str], TorchWheel] = field(default_factory=dict)
    amd_wheels: Mapping[tuple[str, str], AmdWheel] = field(default_factory=dict)
    libc_floors: Mapping[str, LibcFloor] = field(default_factory=dict)
    gfx_products: Mapping[str, GfxProducts] = field(default_factory=dict)
    peaks: Mapping[tuple[str, str], Peak] = field(default_factory=dict)
    lifecycles: Mapping[tuple[str, str], Lifecycle] = field(default_factory=dict)
    package_repositories: tuple[PackageRepository, ...] = ()
    component_packages: tuple[ComponentPackages, ...] = ()
    registry_limits: tuple[RegistryLimit, ...] = ()
    driver_windows: Mapping[str, DriverWindow] = field(default_factory=dict)
    subjects: Mapping[str, tuple[Fact, ...]] = field(default_factory=dict)
