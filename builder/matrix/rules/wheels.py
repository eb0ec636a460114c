"""Why no wheel fits a combination."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.matrix.rules.text import numbers, python_of, versions
from builder.matrix.rules.verdict import Verdict
from builder.matrix.versions import version_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from builder.facts import Facts, TorchWheel
    from builder.matrix.families import Combination


MULTI_ARCH_PLATFORM = "manylinux_2_28_x86_64"


def index_has_no_such_torch(combination: Combination, facts: Facts) -> Verdict | None:
    """Object where PyTorch has no index for that ROCm, or that torch is not on it."""
    rocm = combination.rocm or ""
    if _wheel(combination, facts) is not None:
        return None
    index = facts.wheel_indexes.get(rocm)
    if index is None:
        indexes = sorted(facts.wheel_indexes, key=version_key)
        return Verdict(
            "NO_SUCH_WHEEL_INDEX",
            f"PyTorch has no wheel index for ROCm {rocm}; it has: {', '.join(indexes)}.",
            "the indexes of download.pytorch.org (facts: wheel_indexes)",
        )
    on_it = versions(wheel.torch for name, wheel in _wheels(facts) if name == index.name)
    return Verdict(
        "INDEX_HAS_NO_SUCH_TORCH",
        f"The index {index.name} has no torch {combination.torch}; it has torch {on_it}.",
        "github:pytorch/test-infra:tools/scripts/generate_binary_build_matrix.py",
    )


def wheel_has_no_such_python(combination: Combination, facts: Facts) -> Verdict | None:
    """Object where that torch has no wheel for that Python on the index."""
    wheel = _wheel(combination, facts)
    return python_of(wheel, wheel.index, combination) if wheel else None


def wheel_inferred(combination: Combination, facts: Facts) -> Verdict | None:
    """Warn where the wheel, or what pairs with it, was concluded and not read."""
    wheel = _wheel(combination, facts)
    if wheel is None or (wheel.confidence == "seen" and "torchvision" not in wheel.inferred):
        return None
    what = f"That {wheel.index} has torch {wheel.torch} was concluded and not read."
    if wheel.confidence == "seen":
        what = (
            f"That torchvision {wheel.torchvision} pairs with torch {wheel.torch} was concluded "
            "from the numbering and not read."
        )
    return Verdict("WHEEL_INFERRED", what, wheel.source, "inferred")


def amd_has_no_such_wheel(combination: Combination, facts: Facts) -> Verdict | None:
    """Object where AMD has no multi-arch wheel of that torch for that release."""
    rocm = combination.rocm or ""
    if (rocm, combination.torch) in facts.amd_wheels:
        return None
    torches = versions(build.torch for key, build in facts.amd_wheels.items() if key[0] == rocm)
    releases = versions({release for release, _ in facts.amd_wheels})
    has = f"torch {torches}" if torches else f"nothing (its releases: {releases})"
    return Verdict(
        "AMD_HAS_NO_SUCH_WHEEL",
        f"AMD has no multi-arch wheel of torch {combination.torch} for ROCm {rocm}; "
        f"for that release it has {has}.",
        "AMD's wheel indexes (facts: amd_wheels)",
    )


def amd_wheel_has_no_such_python(combination: Combination, facts: Facts) -> Verdict | None:
    """Object where AMD's wheel of that torch is not there for that Python."""
    build = facts.amd_wheels.get((combination.rocm or "", combination.torch))
    return python_of(build, build.index, combination) if build else None


def wheel_gone(combination: Combination, facts: Facts) -> Verdict | None:
    """Warn where the index has dropped the release since."""
    build = facts.amd_wheels.get((combination.rocm or "", combination.torch))
    if build is None or not build.gone:
        return None
    return Verdict(
        "WHEEL_GONE",
        f"{build.index} keeps the current release only and no longer has ROCm {build.rocm}: "
        "a mirror (`indexes:`) or a wheel folder of your own has to have it.",
        build.source,
        warns_only=True,
    )


def libc_below_floor(combination: Combination, facts: Facts) -> Verdict | None:
    """Object where the distribution's C library is older than what the wheels need."""
    platform = MULTI_ARCH_PLATFORM
    if combination.family == "wheel":
        wheel = _wheel(combination, facts)
        platform = wheel.platform if wheel else platform
    floor = facts.libc_floors.get(platform)
    distribution = facts.distributions[combination.distro]
    if floor is None or numbers(distribution.glibc) >= numbers(floor.glibc):
        return None
    confidence = "seen" if {floor.confidence, distribution.confidence} == {"seen"} else "inferred"
    return Verdict(
        "LIBC_BELOW_FLOOR",
        f"{distribution.title} has glibc {distribution.glibc}, and wheels of {platform} "
        f"need {floor.glibc}.",
        f"{floor.source}; {distribution.source}",
        "seen" if confidence == "seen" else "inferred",
    )


def _wheels(facts: Facts) -> Iterable[tuple[str, TorchWheel]]:
    return ((index, wheel) for (index, _), wheel in facts.torch_wheels.items())


def _wheel(combination: Combination, facts: Facts) -> TorchWheel | None:
    index = facts.wheel_indexes.get(combination.rocm or "")
    return facts.torch_wheels.get((index.name, combination.torch)) if index else None
