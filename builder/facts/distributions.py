"""Facts about distributions, and about what images on them contain."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date  # noqa: TC003 - dataclass fields are read at run time
from typing import Any, ClassVar, Literal

from builder.facts.fact import Fact

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle(Fact):
    """The last day on which a distribution or a Python gets security fixes."""

    axis: Literal["distro", "python"]
    value: str
    end_of_life: date
