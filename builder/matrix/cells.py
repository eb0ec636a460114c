"""The cell: one image to build, and the only carrier of facts about it.

Nothing is ever parsed back out of an id or a tag.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date  # noqa: TC003 - dataclass fields are read at run time
from typing import Literal

from builder.facts.distributions import PackageManager  # noqa: TC001 - dataclass fields are read at run time

IndexStyle = Literal["simple", "flat"]
PythonProvider = Literal["base", "distro", "uv"]


@dataclass(frozen=True, slots=True)
class Base:
    """Where a cell starts: a base family and the canonical image reference that stands in FROM."""

    family: str
    ref: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A package repository that an image adds to those of its distribution.

    Attributes:
        name: a file name without its ending, such as ``amd-rocm``.
        uri: root of the repository.
        suites: for apt; empty for dnf.
        components: for apt; empty for dnf.
        key_url: where the key that signs it is published.
        key_fingerprint: 40 upper-case hexadecimal digits; the build stops at any other key.
        origin: the ``Origin`` of its Release file, for apt's pin.
        packages: what is installed from it.
    """

    name: str
    uri: str
    key_url: str
    key_fingerprint: str
    packages: tuple[str, ...]
    suites: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Wheels:
    """Where torch comes from as a wheel.

    Attributes:
        index: URL of the index that has the torch of this ROCm.
        style: ``simple`` for PEP 503 and 691, ``flat`` for a page of links (``--find-links``).
        requirements: exact pins with the local version, ``torch==2.7.1+rocm6.2.4``.
        others: URL of the index that has what torch needs and ``index`` has not.
    """

    index: str
    style: IndexStyle
    requirements: tuple[str, ...]
    others: str | None = None


@dataclass(frozen=True, slots=True)
class ProductPeaks:
    """The dense peaks of a product for matrix products: TFLOP/s by dtype, sorted."""

    product: str
    tflops: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Where Python comes from.

    Attributes:
        provider: ``base`` for the interpreter that the base image has torch in, which is found in
            the image; ``distro`` for a package of the distribution; ``uv`` for a standalone build.
        executable: name of the distribution's program, ``python3.11``; ``None`` elsewhere.
    """

    provider: PythonProvider
    executable: str | None = None


@dataclass(frozen=True, slots=True)
class Waiver:
    """A written exception to the gate: which levels, why, and the last day on which it holds."""

    levels: tuple[str, ...]
    reason: str
    until: date


@dataclass(frozen=True, slots=True)
class Policy:
    """What a candidate of this lane must pass to get release tags."""

    levels: tuple[str, ...] = ("smoke", "gpu")
    size_budget_bytes: int | None = None
    waiver: Waiver | None = None
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """What the facts say the image will report of itself; the self-test compares.

    Attributes:
        torch_version: ``torch.__version__``, which is not always the package's number.
        backend: ``cpu``, ``hip`` or ``cuda``.
        hip_version: ``torch.version.hip``; ``None`` on other backends or where unknown.
        contents: component names of the contents table (``rocminfo``, ``gcc``, ...).
        pip_check_known: findings of ``pip check`` that the base itself has.
    """

    torch_version: str
    backend: str
    hip_version: str | None = None
    contents: tuple[str, ...] = ()
    pip_check_known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """How the cells of a lane compete for moving tags.

    Attributes:
        default: whether the lane's cells can claim the widest tags (``latest``, ``6.2``, ``cpu``).
        distro: distributions, the preferred first; decides between cells that are equally new.
        python: Pythons, the preferred first; decides after ``distro``.
    """

    default: bool = False
    distro: tuple[str, ...] = ()
    python: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """One image to build. Versions are normalised strings; ``rocm`` is None on the CPU.

    ``peaks`` are what benchmarks in the image are shown beside.
    ``unpacked_bytes`` is about the size of its file system, where the facts know it.
    """

    id: str
    lane: str
    distro: str
    rocm: str | None
    torch: str
    python: str
    flavour: str
    base: Base
    expected: Expected
    gfx: tuple[str, ...] = ()
    policy: Policy = field(default_factory=Policy)
    package_manager: PackageManager = "apt"
    packages: tuple[str, ...] = ()
    repositories: tuple[Repository, ...] = ()
    interpreter: Interpreter = Interpreter("distro", "python3")
    wheels: Wheels | None = None
    peaks: tuple[ProductPeaks, ...] = ()
    unpacked_bytes: int | None = None
    ranking: Ranking = field(default_factory=Ranking)
