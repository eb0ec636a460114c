"""Facts about ROCm: releases, the images and packages of AMD, GPU targets and products."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date  # noqa: TC003 - dataclass fields are read at run time
from typing import Literal

from builder.facts.fact import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class RocmRelease(Fact):
    """A release of ROCm.

    Attributes:
        version: three components.
        released: the day of the release, where known.
        stream: ``legacy`` to 7.2, ``therock`` from 7.14; previews and what is unreleased apart.
        hip: what ``torch.version.hip`` starts with there, where known.
    """

    version: str
    released: date | None = None
    stream: Literal["legacy", "therock", "therock-preview", "unreleased"]
    hip: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RocmSupport(Fact):
    """What AMD lists as supported by a release.

    Attributes:
        rocm: the release.
        distros: operating systems for native installs, by the names of the axis ``distro``.
        gfx: GPU targets.
    """

    rocm: str
    distros: tuple[str, ...]
    gfx: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamImage(Fact):
    """A tag of ``docker.io/rocm/pytorch``.

    Attributes:
        tag: exactly as published.
        digest: of the image, where it was seen.
        rocm: the release; ``None`` together with the next three where the tag is no base.
        distro: by the name of the axis.
        python: two components.
        torch: three components.
    """

    tag: str
    digest: str | None = None
    rocm: str | None = None
    distro: str | None = None
    python: str | None = None
    torch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DevImage(Fact):
    """An image of AMD with compilers and headers and without torch.

    Attributes:
        repository: with its registry.
        tag: exactly as published.
        rocm: the release.
        distro: by the name of the axis.
        digest: of the image, where it was seen.
    """

    repository: str
    tag: str
    rocm: str
    distro: str
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageRepository(Fact):
    """A package repository of AMD.

    Attributes:
        series: the ROCm series (two components) that it has packages of.
        package_manager: who reads it; what dnf reads microdnf reads as well.
        distros: the distributions that it has packages for.
        uri: with the fields ``release``, ``codename``, ``distro`` and ``version_id`` to fill in.
        suites: for apt, with the same fields.
        components: for apt.
        origin: the ``Origin`` of its Release file, for apt's pin.
        key_url: where the key that signs it is published.
        key_fingerprint: of that key, where it was seen; without it nothing may be installed.
    """

    series: tuple[str, ...]
    package_manager: Literal["apt", "dnf"]
    distros: tuple[str, ...]
    uri: str
    suites: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    origin: str | None = None
    key_url: str
    key_fingerprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GfxProducts(Fact):
    """Which products a GPU target is."""

    gfx: str
    products: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak(Fact):
    """The dense peak of a product for matrix products of a dtype, in TFLOP/s."""

    product: str
    dtype: Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8"]
    tflops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverWindow(Fact):
    """The host drivers that AMD tested with a ROCm series. Outside of it is untested, not broken.

    Attributes:
        rocm: two components.
        oldest: release of the driver: that of its ROCm to 6.4, a number of its own from 30.10.
        newest: the same.
        oldest_module: how the version starts that the module of the oldest one reports, which is
            numbered by the kernel that it tracks; not read in a document, so it only warns.
    """

    rocm: str
    oldest: str
    newest: str
    oldest_module: str | None = None
