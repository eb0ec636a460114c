"""Family ``wheel``: a plain distribution with PyTorch's own ROCm wheels, which carry ROCm along."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from builder.matrix.cells import Base, Expected, Wheels
from builder.matrix.families.contents import interpreter, packages, repositories
from builder.matrix.families.model import Specification, known
from builder.matrix.versions import version_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.facts import Facts, TorchWheel, WheelIndex
    from builder.matrix.families.model import Combination

PYPI = "https://pypi.org/simple"
# The first torch that was built against NumPy 2 and runs with both.
# Source: release notes of PyTorch 2.3.
NUMPY_2_SINCE = "2.3.0"


@dataclass(frozen=True, slots=True)
class WheelFamily:
    """The cell's ROCm is the wheel index's."""

    name: str = "wheel"
    on_cpu: bool = False

    def releases(self, axis: str, facts: Facts) -> frozenset[str] | None:
        """Return what any index has."""
        if axis == "rocm":
            return known(facts.wheel_indexes)
        if axis == "torch":
            return known(wheel.torch for wheel in facts.torch_wheels.values())
        if axis == "python":
            return known(
                python for wheel in facts.torch_wheels.values() for python in wheel.pythons
            )
        return None

    def served(self, combination: Combination, facts: Facts) -> tuple[str, ...]:
        """Return the targets that torch and its BLAS both have."""
        index = facts.wheel_indexes.get(combination.rocm or "")
        return index.served if index else ()

    def specify(self, combination: Combination, facts: Facts) -> Specification:
        """Return what a cell is made of."""
        index = facts.wheel_indexes[combination.rocm or ""]
        wheel = facts.torch_wheels[index.name, combination.torch]
        contents = facts.contents[self.name, combination.contents]
        python = interpreter(combination, facts)
        return Specification(
            Base(self.name, facts.distributions[combination.distro].base_ref),
            expected(index, combination.torch, contents.components),
            gfx=combination.wanted_gfx or index.served,
            packages=packages(combination, facts, python),
            repositories=repositories(combination, facts),
            interpreter=python,
            wheels=wheels(index, wheel, combination.python_packages),
        )

    def existing(self, combination: Combination, facts: Facts) -> Iterator[Combination]:
        """Yield each torch of each index with each of its Pythons, on the distribution asked."""
        for index in facts.wheel_indexes.values():
            for wheel in facts.torch_wheels.values():
                if wheel.index == index.name:
                    for python in wheel.pythons:
                        yield replace(
                            combination, rocm=index.rocm, torch=wheel.torch, python=python
                        )


def expected(index: WheelIndex, torch: str, components: tuple[str, ...]) -> Expected:
    """Return what an image with that wheel says of itself."""
    return Expected(
        torch_version=f"{torch}+{index.name}",
        backend="hip",
        hip_version=index.hip,
        contents=tuple(sorted(components)),
    )


def wheels(index: WheelIndex, wheel: TorchWheel, further: tuple[str, ...]) -> Wheels:
    """Return what is installed: exact pins, with the local version wherever it was read."""
    pins = [f"torch=={wheel.torch}+{index.name}"]
    for name in ("torchvision", "torchaudio"):
        version: str | None = getattr(wheel, name)
        if version is not None:
            local = "" if name in wheel.inferred else f"+{index.name}"
            pins.append(f"{name}=={version}{local}")
    return Wheels(index.url, index.style, (*pins, *numpy_pins(wheel.torch), *further), PYPI)


def numpy_pins(torch: str) -> tuple[str, ...]:
    """Return the limit that a torch built for NumPy 1 needs."""
    return ("numpy<2",) if version_key(torch) < version_key(NUMPY_2_SINCE) else ()
