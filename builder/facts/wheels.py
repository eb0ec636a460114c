"""Facts about wheels of torch and what they ask of a distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from builder.facts.fact import Fact


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
