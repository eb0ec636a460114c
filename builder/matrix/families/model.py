"""What a base family is: which axis values it knows, and what a cell of it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from builder.matrix.cells import Base, Expected, Interpreter, Repository, Wheels
from builder.matrix.ids import cell_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from builder.facts import Facts

SLIM = "slim"
DISTRO_PYTHON = Interpreter("distro", "python3")


@dataclass(frozen=True, slots=True)
class Combination:
    """One element of a lane's product, before the rules have spoken.

    Attributes:
        lane: the lane's name.
        family: the base family that it would be built by.
        gfx: GPU targets that the lane is meant for; empty for all that there are.
        python_packages: further Python packages of the lane, pinned.
    """

    lane: str
    family: str
    distro: str
    rocm: str | None
    torch: str
    python: str
    flavour: str
    gfx: tuple[str, ...] = ()
    python_packages: tuple[str, ...] = ()

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

    @property
    def slim(self) -> str | None:
        """Return the one GPU target of a slim flavour; ``None`` for the other flavours."""
        kind, _, target = self.flavour.partition("-")
        return target if kind == SLIM else None

    @property
    def contents(self) -> str:
        """Return the flavour as the contents table of the facts names it."""
        return SLIM if self.slim else self.flavour

    @property
    def wanted_gfx(self) -> tuple[str, ...]:
        """Return the targets that it has to serve; empty where the lane names none."""
        return (self.slim,) if self.slim else self.gfx


@dataclass(frozen=True, slots=True)
class Specification:
    """What the facts add to the axis values of a cell; the fields are those of the cell."""

    base: Base
    expected: Expected
    gfx: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    repositories: tuple[Repository, ...] = ()
    interpreter: Interpreter = DISTRO_PYTHON
    wheels: Wheels | None = None
    unpacked_bytes: int | None = None


class Family(Protocol):
    """A way to get ROCm and torch into an image.

    Attributes:
        name: as in ``base:`` of a lane.
        on_cpu: whether its cells have no ROCm value.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def on_cpu(self) -> bool: ...  # noqa: D102

    def releases(self, axis: str, facts: Facts) -> frozenset[str] | None:
        """Return the values that the family knows on ``axis``; ``None`` where all may be."""

    def served(self, combination: Combination, facts: Facts) -> tuple[str, ...]:
        """Return the GPU targets that such an image serves."""

    def specify(self, combination: Combination, facts: Facts) -> Specification:
        """Return what a cell is made of; only for combinations that no rule rejects."""

    def existing(self, combination: Combination, facts: Facts) -> Iterator[Combination]:
        """Yield what the family may have beside ``combination``; rules still have to judge it."""


def known(values: Iterable[str]) -> frozenset[str] | None:
    """Return the values as a set; ``None`` where there are none, because then anything may be."""
    return frozenset(values) or None
