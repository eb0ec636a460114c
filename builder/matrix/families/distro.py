"""Family ``distro``: torch as the distribution packages it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from builder.matrix.cells import Base, Expected
from builder.matrix.families.contents import DISTRO, component_packages, runtime
from builder.matrix.families.model import Specification, known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.facts import DistroTorch, Facts
    from builder.matrix.families.model import Combination


@dataclass(frozen=True, slots=True)
class DistroFamily:
    """The distribution's own packages."""

    name: str = DISTRO
    on_cpu: bool = True

    def releases(self, axis: str, facts: Facts) -> frozenset[str] | None:
        """Return what any distribution packages; ``None`` where the facts have nothing."""
        builds = [build for group in facts.distro_torch.values() for build in group]
        if axis not in ("torch", "python"):
            return None
        return known(getattr(build, axis) for build in builds)

    def served(self, combination: Combination, facts: Facts) -> tuple[str, ...]:  # noqa: ARG002
        """Return what the lane names: such a torch needs no GPU, its compilers have targets."""
        return combination.gfx

    def specify(self, combination: Combination, facts: Facts) -> Specification:
        """Return what a cell is made of."""
        build = distro_build(combination, facts)
        if build is None:
            raise ValueError(f"no torch for {combination.id}; a rule must say so first")
        contents = facts.contents[self.name, combination.contents]
        further = component_packages(combination, facts, without=runtime(facts))
        return Specification(
            Base(self.name, facts.distributions[combination.distro].base_ref),
            Expected(
                torch_version=build.torch_version,
                backend=build.backend,
                contents=tuple(sorted(contents.components)),
                pip_check_known=build.pip_check_known,
            ),
            gfx=combination.gfx,
            packages=tuple(sorted({*build.packages, *further})),
            unpacked_bytes=build.unpacked_bytes,
        )

    def existing(self, combination: Combination, facts: Facts) -> Iterator[Combination]:
        """Yield each build that a distribution packages."""
        for builds in facts.distro_torch.values():
            for build in builds:
                yield replace(
                    combination, distro=build.distro, torch=build.torch, python=build.python
                )


def distro_build(combination: Combination, facts: Facts) -> DistroTorch | None:
    """Return the distribution's build of that torch, whatever its Python."""
    for build in facts.distro_torch.get(combination.distro, ()):
        if build.torch == combination.torch:
            return build
    return None
