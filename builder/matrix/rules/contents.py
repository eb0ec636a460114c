"""Why an image could not hold or serve what a combination asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.matrix.families import FAMILIES
from builder.matrix.families.contents import needs_repository, repository, without_packages
from builder.matrix.rules.verdict import Verdict

if TYPE_CHECKING:
    from builder.facts import Facts
    from builder.matrix.families import Combination


def distro_not_known(combination: Combination, facts: Facts) -> Verdict | None:
    """Object to a distribution without facts; builder.matrix.checks names it as a mistake."""
    if combination.distro in facts.distributions:
        return None
    return Verdict(
        "DISTRO_NOT_KNOWN",
        f"The facts have no distribution {combination.distro}.",
        "the distributions of the facts",
    )


def family_has_no_such_flavour(combination: Combination, facts: Facts) -> Verdict | None:
    """Object where the contents table has no such flavour for the family."""
    if (combination.family, combination.contents) in facts.contents:
        return None
    known = sorted(flavour for family, flavour in facts.contents if family == combination.family)
    return Verdict(
        "FAMILY_HAS_NO_SUCH_FLAVOUR",
        f"The base family {combination.family} has no flavour {combination.flavour}; "
        f"it has: {', '.join(known) or 'none'}.",
        "the contents table of the facts",
    )


def gfx_not_served(combination: Combination, facts: Facts) -> Verdict | None:
    """Object where a GPU target that the lane is meant for would not be served."""
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


def no_package_repository(combination: Combination, facts: Facts) -> Verdict | None:
    """Object where packages that the contents need come from nowhere that can be trusted."""
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
