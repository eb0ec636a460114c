"""Family ``rocm-pytorch``: AMD's own image with ROCm and torch in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from builder.matrix.cells import Base, Expected, Interpreter
from builder.matrix.families.contents import packages
from builder.matrix.families.model import Specification, known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.facts import Facts, UpstreamImage
    from builder.matrix.families.model import Combination

REPOSITORY = "docker.io/rocm/pytorch"
PYTHON = Interpreter("base")


@dataclass(frozen=True, slots=True)
class RocmPytorchFamily:
    """An exact tag of ``rocm/pytorch``, looked up in the facts and never assembled."""

    name: str = "rocm-pytorch"
    on_cpu: bool = False

    def releases(self, axis: str, facts: Facts) -> frozenset[str] | None:
        """Return what any published tag has."""
        if axis not in ("rocm", "torch", "python"):
            return None
        return known(str(getattr(image, axis)) for image in facts.upstream_images.values())

    def served(self, combination: Combination, facts: Facts) -> tuple[str, ...]:
        """Return the targets that AMD lists for the release."""
        support = facts.rocm_support.get(combination.rocm or "")
        return support.gfx if support else ()

    def specify(self, combination: Combination, facts: Facts) -> Specification:
        """Return what a cell is made of; torch and its Python are found in the image."""
        image = upstream_image(combination, facts)
        if image is None:
            raise ValueError(f"no tag for {combination.id}; a rule must say so first")
        contents = facts.contents[self.name, combination.contents]
        release = facts.rocm_releases.get(combination.rocm or "")
        return Specification(
            Base(self.name, f"{REPOSITORY}:{image.tag}"),
            Expected(
                torch_version=combination.torch,
                backend="hip",
                hip_version=release.hip if release else None,
                contents=tuple(sorted(contents.components)),
            ),
            gfx=combination.wanted_gfx or self.served(combination, facts),
            packages=packages(combination, facts, PYTHON),
            interpreter=PYTHON,
        )

    def existing(self, combination: Combination, facts: Facts) -> Iterator[Combination]:
        """Yield each tag that is a base."""
        for distro, rocm, torch, python in facts.upstream_images:
            yield replace(combination, distro=distro, rocm=rocm, torch=torch, python=python)


def upstream_image(combination: Combination, facts: Facts) -> UpstreamImage | None:
    """Return AMD's image of exactly these axis values."""
    key = (combination.distro, combination.rocm or "", combination.torch, combination.python)
    return facts.upstream_images.get(key)
