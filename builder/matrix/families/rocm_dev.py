"""Family ``rocm-dev``: AMD's image with compilers and headers, torch by wheel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from builder.matrix.cells import Base, Expected, Wheels
from builder.matrix.families.amd_wheel import amd_wheels
from builder.matrix.families.contents import interpreter, packages
from builder.matrix.families.model import Specification, known
from builder.matrix.families.wheel import wheels
from builder.matrix.versions import series

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.facts import AmdWheel, Facts, TorchWheel, WheelIndex
    from builder.matrix.families.model import Combination


@dataclass(frozen=True, slots=True)
class RocmDevFamily:
    """The cell's ROCm is the image's; torch comes from the index of the same series."""

    name: str = "rocm-dev"
    on_cpu: bool = False

    def releases(self, axis: str, facts: Facts) -> frozenset[str] | None:
        """Return the releases that AMD publishes such an image of; torch as on the indexes."""
        if axis == "rocm":
            return known(image.rocm for image in facts.dev_images.values())
        if axis == "torch":
            return known(
                [
                    *(wheel.torch for wheel in facts.torch_wheels.values()),
                    *(build.torch for build in facts.amd_wheels.values()),
                ]
            )
        return None

    def served(self, combination: Combination, facts: Facts) -> tuple[str, ...]:
        """Return the targets of the torch that is installed."""
        found = torch_source(combination, facts)
        if found is None:
            return ()
        return found[0].served if isinstance(found, tuple) else found.gfx

    def specify(self, combination: Combination, facts: Facts) -> Specification:
        """Return what a cell is made of."""
        image = facts.dev_images[combination.distro, combination.rocm or ""]
        contents = facts.contents[self.name, combination.contents]
        found = torch_source(combination, facts)
        if found is None:
            raise ValueError(f"no torch for {combination.id}; a rule must say so first")
        python = interpreter(combination, facts)
        made: Wheels
        if isinstance(found, tuple):
            index, wheel = found
            local, hip = index.name, index.hip
            made = wheels(index, wheel, combination.python_packages)
        else:
            local, hip = found.local, found.hip
            made = amd_wheels(found, combination.wanted_gfx, combination.python_packages)
        return Specification(
            Base(self.name, f"{image.repository}:{image.tag}"),
            Expected(
                torch_version=f"{combination.torch}+{local}",
                backend="hip",
                hip_version=hip,
                contents=tuple(sorted(contents.components)),
            ),
            gfx=combination.wanted_gfx or self.served(combination, facts),
            packages=packages(combination, facts, python),
            interpreter=python,
            wheels=made,
        )

    def existing(self, combination: Combination, facts: Facts) -> Iterator[Combination]:
        """Yield each torch that fits an image of AMD."""
        for distro, rocm in facts.dev_images:
            here = replace(combination, distro=distro, rocm=rocm)
            for index in facts.wheel_indexes.values():
                if series(index.rocm) == series(rocm):
                    for wheel in facts.torch_wheels.values():
                        if wheel.index == index.name and combination.python in wheel.pythons:
                            yield replace(here, torch=wheel.torch)
            for build in facts.amd_wheels.values():
                if build.rocm == rocm and combination.python in build.pythons:
                    yield replace(here, torch=build.torch)


def torch_source(
    combination: Combination, facts: Facts
) -> tuple[WheelIndex, TorchWheel] | AmdWheel | None:
    """Return the wheel that such an image gets: PyTorch's of that series, else AMD's."""
    rocm = combination.rocm or ""
    build = facts.amd_wheels.get((rocm, combination.torch))
    if build is not None:
        return build
    for index in facts.wheel_indexes.values():
        wheel = facts.torch_wheels.get((index.name, combination.torch))
        if wheel is not None and rocm and series(index.rocm) == series(rocm):
            return index, wheel
    return None
