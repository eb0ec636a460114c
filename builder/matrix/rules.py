"""Why a combination cannot be: one small pure function a reason, each with a stable code.

A rule looks at one combination and the facts. It returns nothing where it has no objection, else
a verdict that names the fact it rests on. A verdict that rests on an inferred fact is a warning:
only what was seen rejects. What does exist is told by builder.matrix.nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.matrix.families import FAMILIES
from builder.matrix.families.contents import needs_repository, repository, without_packages
from builder.matrix.families.distro import distro_build
from builder.matrix.families.rocm_dev import torch_source
from builder.matrix.families.rocm_pytorch import upstream_image
from builder.matrix.packages import package_objection
from builder.matrix.verdict import Verdict
from builder.matrix.versions import python_key, version_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from builder.facts import AmdWheel, Facts, TorchWheel
    from builder.matrix.families import Combination

Check = Callable[["Combination", "Facts"], Verdict | None]

MULTI_ARCH_PLATFORM = "manylinux_2_28_x86_64"


@dataclass(frozen=True, slots=True)
class Rule:
    """A check and the base families that it is about."""

    code: str
    families: frozenset[str]
    check: Check


def _family_has_no_such_flavour(combination: Combination, facts: Facts) -> Verdict | None:
    if (combination.family, combination.contents) in facts.contents:
        return None
    known = sorted(flavour for family, flavour in facts.contents if family == combination.family)
    return Verdict(
        "FAMILY_HAS_NO_SUCH_FLAVOUR",
        f"The base family {combination.family} has no flavour {combination.flavour}; "
        f"it has: {', '.join(known) or 'none'}.",
        "the contents table of the facts",
    )


def _distro_has_no_such_torch(combination: Combination, facts: Facts) -> Verdict | None:
    if distro_build(combination, facts):
        return None
    builds = facts.distro_torch.get(combination.distro, ())
    has = ", ".join(f"torch {build.torch}" for build in builds) or "no torch"
    return Verdict(
        "DISTRO_HAS_NO_SUCH_TORCH",
        f"{_title(combination, facts)} packages {has}, not torch {combination.torch}.",
        "; ".join(build.source for build in builds) or "the facts have no torch package for it",
    )


def _distro_has_no_such_python(combination: Combination, facts: Facts) -> Verdict | None:
    build = distro_build(combination, facts)
    if build is None or build.python == combination.python:
        return None
    return Verdict(
        "DISTRO_HAS_NO_SUCH_PYTHON",
        f"{_title(combination, facts)} packages torch {build.torch} for Python {build.python}, "
        f"not for Python {combination.python}.",
        build.source,
        build.confidence,
    )


def _no_such_upstream_tag(combination: Combination, facts: Facts) -> Verdict | None:
    image = upstream_image(combination, facts)
    if image is not None:
        if image.confidence == "seen":
            return None
        what = f"The tag {image.tag} of rocm/pytorch was concluded from its siblings, not seen."
        return Verdict("UPSTREAM_TAG_INFERRED", what, image.source, image.confidence)
    rocm = combination.rocm or ""
    siblings = [key for key in facts.upstream_images if key[1] == rocm]
    if not siblings:
        has = f"it publishes none of ROCm {rocm} at all"
    else:
        pairs = {(distro, python) for distro, _, _, python in siblings}
        told = ", ".join(f"Python {python} on {distro}" for distro, python in sorted(pairs))
        torches = sorted({torch for _, _, torch, _ in siblings}, key=version_key)
        has = f"its ROCm {rocm} images have {told}, with torch {', '.join(torches)}"
    return Verdict(
        "NO_SUCH_UPSTREAM_TAG",
        f"AMD publishes no rocm/pytorch image with ROCm {rocm}, torch {combination.torch} and "
        f"Python {combination.python} on {combination.distro}: {has}.",
        "the tags of docker.io/rocm/pytorch that were seen (facts: upstream_images)",
    )


def _index_has_no_such_torch(combination: Combination, facts: Facts) -> Verdict | None:
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
    on_it = _versions(wheel.torch for name, wheel in _wheels(facts) if name == index.name)
    return Verdict(
        "INDEX_HAS_NO_SUCH_TORCH",
        f"The index {index.name} has no torch {combination.torch}; it has torch {on_it}.",
        "github:pytorch/test-infra:tools/scripts/generate_binary_build_matrix.py",
    )


def _wheel_has_no_such_python(combination: Combination, facts: Facts) -> Verdict | None:
    wheel = _wheel(combination, facts)
    return _python_of(wheel, wheel.index, combination) if wheel else None


def _wheel_inferred(combination: Combination, facts: Facts) -> Verdict | None:
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


def _libc_below_floor(combination: Combination, facts: Facts) -> Verdict | None:
    platform = MULTI_ARCH_PLATFORM
    if combination.family == "wheel":
        wheel = _wheel(combination, facts)
        platform = wheel.platform if wheel else platform
    floor = facts.libc_floors.get(platform)
    distribution = facts.distributions[combination.distro]
    if floor is None or _numbers(distribution.glibc) >= _numbers(floor.glibc):
        return None
    confidence = "seen" if {floor.confidence, distribution.confidence} == {"seen"} else "inferred"
    return Verdict(
        "LIBC_BELOW_FLOOR",
        f"{distribution.title} has glibc {distribution.glibc}, and wheels of {platform} "
        f"need {floor.glibc}.",
        f"{floor.source}; {distribution.source}",
        "seen" if confidence == "seen" else "inferred",
    )


def _amd_has_no_such_wheel(combination: Combination, facts: Facts) -> Verdict | None:
    rocm = combination.rocm or ""
    if (rocm, combination.torch) in facts.amd_wheels:
        return None
    torches = _versions(build.torch for key, build in facts.amd_wheels.items() if key[0] == rocm)
    releases = _versions({release for release, _ in facts.amd_wheels})
    has = f"torch {torches}" if torches else f"nothing (its releases: {releases})"
    return Verdict(
        "AMD_HAS_NO_SUCH_WHEEL",
        f"AMD has no multi-arch wheel of torch {combination.torch} for ROCm {rocm}; "
        f"for that release it has {has}.",
        "AMD's wheel indexes (facts: amd_wheels)",
    )


def _amd_wheel_has_no_such_python(combination: Combination, facts: Facts) -> Verdict | None:
    build = facts.amd_wheels.get((combination.rocm or "", combination.torch))
    return _python_of(build, build.index, combination) if build else None


def _wheel_gone(combination: Combination, facts: Facts) -> Verdict | None:
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


def _no_such_dev_image(combination: Combination, facts: Facts) -> Verdict | None:
    if (combination.distro, combination.rocm or "") in facts.dev_images:
        return None
    here = _versions(rocm for distro, rocm in facts.dev_images if distro == combination.distro)
    return Verdict(
        "NO_SUCH_DEV_IMAGE",
        f"AMD publishes no rocm/dev image with ROCm {combination.rocm} on {combination.distro}; "
        f"for that distribution it has: {here or 'none'}.",
        "the tags of docker.io/rocm/dev-* that were seen (facts: dev_images)",
    )


def _distro_not_supported(combination: Combination, facts: Facts) -> Verdict | None:
    support = facts.rocm_support.get(combination.rocm or "")
    if support is None or combination.distro in support.distros:
        return None
    return Verdict(
        "DISTRO_NOT_SUPPORTED",
        f"AMD does not list {combination.distro} for ROCm {combination.rocm}, and the compilers "
        f"of the family rocm-dev are made for: {', '.join(support.distros)}.",
        support.source,
        support.confidence,
    )


def _no_torch_for_dev_image(combination: Combination, facts: Facts) -> Verdict | None:
    found = torch_source(combination, facts)
    if found is None:
        return Verdict(
            "INDEX_HAS_NO_SUCH_TORCH",
            f"No index has torch {combination.torch} for the series of ROCm {combination.rocm}.",
            "facts: torch_wheels and amd_wheels",
        )
    source = found[1] if isinstance(found, tuple) else found
    return _python_of(source, source.index, combination)


def _gfx_not_served(combination: Combination, facts: Facts) -> Verdict | None:
    served = FAMILIES[combination.family].served(combination, facts)
    missing = [target for target in combination.wanted_gfx if target not in served]
    if not missing or not served:
        return None
    listed = combination.family == "rocm-pytorch"  # what AMD lists, which is not what it ships
    return Verdict(
        "GFX_NOT_SERVED",
        f"{', '.join(missing)} would not be served: torch and its BLAS both have "
        f"{', '.join(served)}."
        if not listed
        else f"AMD does not list {', '.join(missing)} for ROCm {combination.rocm}; "
        f"it lists {', '.join(served)}.",
        "facts: wheel_indexes, amd_wheels and rocm_support",
        "inferred" if listed else "seen",
    )


def _no_package_repository(combination: Combination, facts: Facts) -> Verdict | None:
    if combination.family == "wheel" and needs_repository(combination, facts):
        found = repository(combination, facts)
        where = f"ROCm {combination.rocm} on {combination.distro}"
        if found is None:
            return Verdict(
                "NO_PACKAGE_REPOSITORY",
                f"No package repository of AMD is known for {where}, and the flavour "
                f"{combination.flavour} needs one.",
                "facts: package_repositories",
            )
        if found.key_fingerprint is None:
            return Verdict(
                "KEY_FINGERPRINT_UNKNOWN",
                f"The fingerprint of the key that signs AMD's repository for {where} is not "
                "known, and nothing is installed under a key that cannot be checked.",
                found.source,
            )
    missing = without_packages(combination, facts)
    if not missing:
        return None
    return Verdict(
        "COMPONENT_HAS_NO_PACKAGE",
        f"No package is known that brings {', '.join(missing)} to {combination.distro}.",
        "facts: component_packages",
    )


def _wheels(facts: Facts) -> Iterable[tuple[str, TorchWheel]]:
    return ((index, wheel) for (index, _), wheel in facts.torch_wheels.items())


def _wheel(combination: Combination, facts: Facts) -> TorchWheel | None:
    index = facts.wheel_indexes.get(combination.rocm or "")
    return facts.torch_wheels.get((index.name, combination.torch)) if index else None


def _python_of(
    source: TorchWheel | AmdWheel, index: str, combination: Combination
) -> Verdict | None:
    if combination.python in source.pythons:
        return None
    pythons = ", ".join(sorted(source.pythons, key=python_key))
    return Verdict(
        "WHEEL_HAS_NO_SUCH_PYTHON",
        f"torch {source.torch} has no wheel for Python {combination.python} on {index}; "
        f"it has wheels for Python {pythons}.",
        source.source,
        source.confidence,
    )


def _title(combination: Combination, facts: Facts) -> str:
    distribution = facts.distributions.get(combination.distro)
    return distribution.title if distribution else combination.distro


def _versions(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values), key=version_key))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _of(*families: str) -> frozenset[str]:
    return frozenset(families)


_WHEELS = _of("wheel", "amd-wheel")
RULES: tuple[Rule, ...] = (
    Rule("FAMILY_HAS_NO_SUCH_FLAVOUR", frozenset(FAMILIES), _family_has_no_such_flavour),
    Rule("DISTRO_HAS_NO_SUCH_TORCH", _of("distro"), _distro_has_no_such_torch),
    Rule("DISTRO_HAS_NO_SUCH_PYTHON", _of("distro"), _distro_has_no_such_python),
    Rule("NO_SUCH_UPSTREAM_TAG", _of("rocm-pytorch"), _no_such_upstream_tag),
    Rule("INDEX_HAS_NO_SUCH_TORCH", _of("wheel"), _index_has_no_such_torch),
    Rule("WHEEL_HAS_NO_SUCH_PYTHON", _of("wheel"), _wheel_has_no_such_python),
    Rule("WHEEL_INFERRED", _of("wheel"), _wheel_inferred),
    Rule("AMD_HAS_NO_SUCH_WHEEL", _of("amd-wheel"), _amd_has_no_such_wheel),
    Rule("WHEEL_HAS_NO_SUCH_PYTHON", _of("amd-wheel"), _amd_wheel_has_no_such_python),
    Rule("WHEEL_GONE", _of("amd-wheel"), _wheel_gone),
    Rule("NO_SUCH_DEV_IMAGE", _of("rocm-dev"), _no_such_dev_image),
    Rule("DISTRO_NOT_SUPPORTED", _of("rocm-dev"), _distro_not_supported),
    Rule("INDEX_HAS_NO_SUCH_TORCH", _of("rocm-dev"), _no_torch_for_dev_image),
    Rule("LIBC_BELOW_FLOOR", _WHEELS, _libc_below_floor),
    Rule("GFX_NOT_SERVED", frozenset(FAMILIES) - {"distro"}, _gfx_not_served),
    Rule("COMPONENT_HAS_NO_PACKAGE", _WHEELS, _no_package_repository),
    Rule("PACKAGE_DOES_NOT_PAIR", frozenset(FAMILIES), package_objection),
)


def judge(combination: Combination, facts: Facts) -> tuple[Verdict, ...]:
    """Return the objections to a combination: warnings, and at most one rejection, the last."""
    verdicts: list[Verdict] = []
    for rule in RULES:
        if combination.family in rule.families:
            verdict = rule.check(combination, facts)
            if verdict is not None:
                verdicts.append(verdict)
                if verdict.rejects:
                    break
    return tuple(verdicts)


def rejected(verdicts: tuple[Verdict, ...]) -> bool:
    """Tell whether the last of the verdicts is a rejection."""
    return bool(verdicts) and verdicts[-1].rejects
