"""Further Python packages of a lane, judged against the torch that they are installed beside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.matrix.families.wheel import NUMPY_2_SINCE
from builder.matrix.requirements import pinned
from builder.matrix.rules.verdict import Verdict
from builder.matrix.versions import version_key

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from builder.facts import Facts
    from builder.matrix.families import Combination

TRITONS = frozenset({"triton", "pytorch-triton-rocm", "triton-rocm", "pytorch-triton"})
PAIRED = ("torchvision", "torchaudio")
WITH_WHEELS = frozenset({"wheel", "amd-wheel", "rocm-dev"})


def package_objection(combination: Combination, facts: Facts) -> Verdict | None:
    """Return what speaks against a lane's further Python packages."""
    if not combination.python_packages:
        return None
    if combination.family not in WITH_WHEELS:
        return Verdict(
            "PACKAGES_NEED_WHEELS",
            f"The base family {combination.family} installs no wheels, so "
            f"{', '.join(combination.python_packages)} cannot be added.",
            "the families of builder/matrix/families",
        )
    for text in combination.python_packages:
        requirement = pinned(text)
        objection = _objection(requirement, combination, facts) if requirement else None
        if objection is not None:
            return objection
    return None


def _objection(requirement: Requirement, combination: Combination, facts: Facts) -> Verdict | None:
    name = canonicalize_name(requirement.name)
    version = Version(next(iter(requirement.specifier)).version)
    if name in TRITONS:
        return Verdict(
            "TRITON_CONFLICT",
            f"{requirement} would stand beside the triton that torch {combination.torch} "
            "requires and installs itself; both own the module `triton`.",
            "github:vllm-project/vllm pull 16664",
        )
    if name == "torch":
        return Verdict(
            "TORCH_PINNED_TWICE",
            f"{requirement} names torch, whose version is the axis `torch`.",
            "the format of matrix.yaml",
        )
    if name in PAIRED:
        pair = _pair(name, combination, facts)
        if pair is None or pair[0] == version.public:
            return None
        return Verdict(
            f"{name.upper()}_MISMATCH",
            f"{requirement} does not pair with torch {combination.torch}, which needs "
            f"{name} {pair[0]}.",
            pair[1],
        )
    built_for_1 = version_key(combination.torch) < version_key(NUMPY_2_SINCE)
    if name == "numpy" and version.major >= 2 and built_for_1:
        return Verdict(
            "NUMPY_ABI",
            f"{requirement} has another binary interface than NumPy 1, which torch "
            f"{combination.torch} was built for; torch {NUMPY_2_SINCE} is the first for both.",
            "github:pytorch/pytorch issue 135013",
        )
    return None


def _pair(name: str, combination: Combination, facts: Facts) -> tuple[str, str] | None:
    """Return the version that pairs, and its source; nothing where it was only concluded."""
    for wheel in facts.torch_wheels.values():
        version: str | None = getattr(wheel, name)
        if wheel.torch == combination.torch and version and name not in wheel.inferred:
            return version, wheel.source
    return None
