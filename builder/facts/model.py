"""The types of the facts: frozen values, each with its source and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date  # noqa: TC003 - dataclass fields are read at run time
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Confidence = Literal["seen", "inferred"]
PackageManager = Literal["apt", "dnf", "microdnf"]
Backend = Literal["cpu", "hip"]
Component = Literal[
    "amd-smi",
    "clinfo",
    "g++",
    "gcc",
    "hipcc",
    "hipify-perl",
    "python-headers",
    "rocm-smi",
    "rocminfo",
    "rocprof",
    "torchaudio",
    "torchvision",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that is true of the outside world.

    Attributes:
        source: where it was read: a document, a package, a URL.
        confidence: ``seen`` in the source, or ``inferred``, which may warn and never rejects.
        read: the day on which the source was read; ``None`` where nobody wrote it down.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    source: str
    confidence: Confidence
    read: date | None = None


@dataclass(frozen=True, slots=True)
class Archive:
    """A package archive of a distribution: what apt reads, what a base is bootstrapped from.

    Attributes:
        uri: root of the archive, without a trailing slash.
        suites: e.g. ``trixie`` and ``trixie-updates``.
        components: e.g. ``main``.
        keyring: path of the keyring that signs it, as the distribution installs it.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    keyring: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution(Fact):
    """A plain distribution.

    Attributes:
        name: the value of the axis ``distro``: ``debian13``, ``ubuntu22.04``.
        title: the name for people.
        os_id: ``ID`` of its os-release.
        version_id: ``VERSION_ID`` of its os-release.
        codename: ``VERSION_CODENAME`` of its os-release; ``None`` where it has none.
        base_ref: the canonical image reference for FROM, registry and tag included.
        package_manager: the program that installs its packages.
        python: the version of its own ``python3``.
        glibc: the version of its C library.
        glibcxx: the highest GLIBCXX symbol version of its libstdc++, where known.
        archives: where its packages come from.
    """

    name: str
    title: str
    os_id: str
    version_id: str
    codename: str | None = None
    base_ref: str
    package_manager: PackageManager
    python: str
    glibc: str
    glibcxx: str | None = None
    archives: tuple[Archive, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DistroTorch(Fact):
    """A torch that a distribution packages itself (base family ``distro``).

    Attributes:
        distro: the distribution's name.
        torch: the value of the axis ``torch``.
        python: the Python it is built for.
        torch_version: what ``torch.__version__`` says there.
        package_version: the version of the distribution's package.
        backend: ``cpu`` or ``hip``.
        packages: the packages of an image of this family, sorted.
        pip_check_known: the lines that ``pip check`` prints there from the start.
        unpacked_bytes: about the size of the image's file system, to see whether it fits.
    """

    distro: str
    torch: str
    python: str
    torch_version: str
    package_version: str | None = None
    backend: Backend = "cpu"
    packages: tuple[str, ...]
    pip_check_known: tuple[str, ...] = ()
    unpacked_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents(Fact):
    """What an image of a family and flavour must contain, by names that the self-test knows."""

    family: str
    flavour: str
    components: tuple[Component, ...]


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
class WheelIndex(Fact):
    """A wheel index of pytorch.org for one ROCm.

    Attributes:
        name: ``rocm6.2.4``, which is also the local version of its wheels.
        rocm: the same with three components, the value of the axis.
        url: of the index.
        style: ``simple`` for PEP 503 and 691, ``flat`` for a page of links.
        gfx: the targets that torch is compiled for.
        without_blas: those of them that the rocBLAS of the same wheel has no kernels for.
        hip: what ``torch.version.hip`` starts with.
    """

    name: str
    rocm: str
    url: str
    style: Literal["simple", "flat"]
    gfx: tuple[str, ...]
    without_blas: tuple[str, ...] = ()
    hip: str

    @property
    def served(self) -> tuple[str, ...]:
        """Return the targets that torch and its BLAS both have."""
        return tuple(target for target in self.gfx if target not in self.without_blas)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchWheel(Fact):
    """The wheels of one torch on one index of pytorch.org.

    Attributes:
        torch: three components.
        index: the name of the index.
        pythons: the Pythons that there is a wheel for.
        platform: the platform tag of its file names.
        torchvision: the version that pairs with it, where known.
        torchaudio: likewise.
        triton: the project, with its version where known, that this torch requires.
        inferred: which of the last three were concluded and not read.
    """

    torch: str
    index: str
    pythons: tuple[str, ...]
    platform: str
    torchvision: str | None = None
    torchaudio: str | None = None
    triton: str | None = None
    inferred: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdWheel(Fact):
    """AMD's multi-arch wheels of one torch: the device code comes as wheels of its own.

    Attributes:
        rocm: the release.
        torch: three components.
        index: URL.
        local: the local version of the wheels, ``rocm10.1.0``.
        pythons: the Pythons that there is a wheel for.
        torchvision: the version that pairs with it.
        torchaudio: likewise.
        triton: the project, with its version where known.
        gfx: the targets that there is device code for.
        hip: what ``torch.version.hip`` starts with.
        gone: whether the index no longer has it.
        inferred: which of the pairs were concluded and not read.
    """

    rocm: str
    torch: str
    index: str
    local: str
    pythons: tuple[str, ...]
    torchvision: str
    torchaudio: str
    triton: str
    gfx: tuple[str, ...]
    hip: str
    gone: bool = False
    inferred: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LibcFloor(Fact):
    """What a platform tag of wheels asks of the distribution.

    Attributes:
        platform: the tag.
        glibc: the lowest version of the C library.
        glibcxx: the highest GLIBCXX symbol version that it may need, where the tag has a limit.
    """

    platform: str
    glibc: str
    glibcxx: str | None = None


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
class Lifecycle(Fact):
    """The last day on which a distribution or a Python gets security fixes."""

    axis: Literal["distro", "python"]
    value: str
    end_of_life: date


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
class ComponentPackages(Fact):
    """The packages that bring a component of the contents table.

    Attributes:
        component: its name.
        package_manager: who installs them; what dnf installs microdnf installs as well.
        packages: from the distribution's archive.
        repository_packages: from AMD's repository.
        distros: the distributions that this is about; all of that package manager where empty.
        families: the base families that this is about; all of them where empty.
    """

    component: Component
    package_manager: Literal["apt", "dnf"]
    packages: tuple[str, ...] = ()
    repository_packages: tuple[str, ...] = ()
    distros: tuple[str, ...] = ()
    families: tuple[str, ...] = ()


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
    subjects: Mapping[str, tuple[Fact, ...]] = field(default_factory=dict)
