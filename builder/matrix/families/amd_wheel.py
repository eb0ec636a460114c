"""Family ``amd-wheel``: a plain distribution with AMD's multi-arch wheels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from builder.matrix.cells import Base, Expected, Wheels
from builder.matrix.families.contents import interpreter, packages, repositories
from builder.matrix.families.model import Specification, known
from builder.matrix.families.wheel import PYPI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.facts import AmdWheel, Facts
    from builder.matrix.families.model import Combination


@dataclass(frozen=True, slots=True)
class AmdWheelFamily:
    """Device code comes as one wheel a GPU target, so an image holds what its lane names."""

    name: str = "amd-wheel"
    on_cpu: bool = False

    def releases(self, axis: str, facts: Facts) -> frozenset[str] | None:
        """Return what any of AMD's indexes has."""
        builds = facts.amd_wheels.values()
        if axis in ("rocm", "torch"):
            return known(getattr(build, axis) for build in builds)
        if axis == "python":
            return known(python for build in builds for python in build.pythons)
        return None

    def served(self, combination: Combination, facts: Facts) -> tuple[str, ...]:
        """Return the targets that there is device code for."""
        build = facts.amd_wheels.get((combination.rocm or "", combination.torch))
        return build.gfx if build else ()

    def specify(self, combination: Combination, facts: Facts) -> Specification:
        """Return what a cell is made of."""
        build = facts.amd_wheels[combination.rocm or "", combination.torch]
        contents = facts.contents[self.name, combination.contents]
        python = interpreter(combination, facts)
        return Specification(
            Base(self.name, facts.distributions[combination.distro].base_ref),
            Expected(
                torch_version=f"{build.torch}+{build.local}",
                backend="hip",
                hip_version=build.hip,
                contents=tuple(sorted(contents.components)),
            ),
            gfx=combination.wanted_gfx or build.gfx,
            packages=packages(combination, facts, python),
            repositories=repositories(combination, facts),
            interpreter=python,
            wheels=amd_wheels(build, combination.wanted_gfx, combination.python_packages),
        )

    def existing(self, combination: Combination, facts: Facts) -> Iterator[Combination]:
        """Yield each torch with each of its Pythons, on the distribution asked for."""
        for build in facts.amd_wheels.values():
            for python in build.pythons:
                yield replace(combination, rocm=build.rocm, torch=build.torch, python=python)


def amd_wheels(build: AmdWheel, gfx: tuple[str, ...], further: tuple[str, ...]) -> Wheels:
    """Return what is installed: device code for ``gfx``, or for every target where it is empty."""
    device = ",".join(f"device-{target}" for target in gfx) or "device-all"
    pins = [f"torch[{device}]=={build.torch}+{build.local}"]
    for name in ("torchvision", "torchaudio"):
        local = "" if name in build.inferred else f"+{build.local}"
        extra = f"[{device}]" if name == "torchvision" else ""
        pins.append(f"{name}{extra}=={getattr(build, name)}{local}")
    return Wheels(build.index, "simple", (*pins, *further), PYPI)
