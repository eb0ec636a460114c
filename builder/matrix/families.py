"""The base families: which axis values they know, and what a cell of theirs is made of."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from builder.matrix.cells import Base, Expected
from builder.matrix.ids import cell_id
from builder.matrix.schema import BASES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.facts import DistroTorch, Facts


@dataclass(frozen=True, slots=True)
class Combination:
    """One element of a lane's product, before the rules have spoken."""

    lane: str
    family: str
    distro: str
    rocm: str | None
    torch: str
    python: str
    flavour: str

    @property
    def id(self) -> str:
        """Return the id that its cell has or would have."""
        return cell_id(self.rocm, self.torch, self.python, self.distro, self.flavour)

    @property
    def axes(self) -> dict[str, str | None]:
        """Return the axis values by name."""
        return {
            "distro": self.distro,
            "rocm": self.rocm,
            "torch": self.torch,
            "python": self.python,
            "flavour": self.flavour,
        }


@dataclass(frozen=True, slots=True)
class Specification:
    """What the facts add to the axis values of a cell."""

    base: Base
    expected: Expected
    packages: tuple[str, ...] = ()
    unpacked_bytes: int | None = None


class Family(Protocol):
    """A way to get ROCm and torch into an image.

    Attributes:
        name: as in ``base:`` of a lane.
        on_cpu: whether its cells have no ROCm value.
        available: whether this version of the program can build it.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def on_cpu(self) -> bool: ...  # noqa: D102

    @property
    def available(self) -> bool: ...  # noqa: D102

    def releases(self, axis: str, facts: Facts) -> frozenset[str] | None:
        """Return the values of a version axis that exist anywhere; ``None`` where all may."""

    def specify(self, combination: Combination, facts: Facts) -> Specification:
        """Return what a cell that passed the rules is made of."""


class DistroFamily:
    """The distribution's own packages, for the CPU."""

    name = "distro"
    on_cpu = True
    available = True

    def releases(self, axis: str, facts: Facts) -> frozenset[str] | None:
        """Return the torch releases or Pythons that some distribution packages."""
        entries = (entry for builds in facts.distro_torch.values() for entry in builds)
        if axis == "torch":
            return frozenset(entry.torch for entry in entries)
        if axis == "python":
            return frozenset(entry.python for entry in entries)
        return None

    def specify(self, combination: Combination, facts: Facts) -> Specification:
        """Return base, packages and expectations as the facts of the distribution have them."""
        build = distro_build(combination, facts)
        if build is None:
            raise ValueError(f"no distribution packages {combination.id}; a rule must say so first")
        contents = facts.contents[self.name, combination.flavour]
        return Specification(
            Base(self.name, facts.distributions[combination.distro].base_ref),
            Expected(
                torch_version=build.torch_version,
                backend=build.backend,
                contents=tuple(sorted(contents.components)),
                pip_check_known=build.pip_check_known,
            ),
            (*build.packages, *build.flavours.get(combination.flavour, ())),
            build.unpacked_bytes,
        )


@dataclass(frozen=True, slots=True)
class FamilyToCome:
    """A family that the format names and no cell can have yet: a rule drops its combinations."""

    name: str
    on_cpu: bool = False
    available: bool = False

    def releases(self, axis: str, facts: Facts) -> frozenset[str] | None:  # noqa: ARG002
        """Return ``None``: nothing is known about it."""
        return None

    def specify(self, combination: Combination, facts: Facts) -> Specification:  # noqa: ARG002
        """Refuse: a rule drops each combination before."""
        raise ValueError(f"the base family {self.name} cannot be built")


def distro_build(combination: Combination, facts: Facts) -> DistroTorch | None:
    """Return the distribution's build of that torch, whatever its Python."""
    for build in facts.distro_torch.get(combination.distro, ()):
        if build.torch == combination.torch:
            return build
    return None


_DISTRO = DistroFamily()
FAMILIES: Mapping[str, Family] = MappingProxyType(
    {name: _DISTRO if name == _DISTRO.name else FamilyToCome(name) for name in BASES}
)
