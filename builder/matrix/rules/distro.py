"""Why a distribution's own torch cannot be what a combination asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.matrix.families.distro import distro_build
from builder.matrix.rules.text import title
from builder.matrix.rules.verdict import Verdict

if TYPE_CHECKING:
    from builder.facts import Facts
    from builder.matrix.families import Combination


def distro_has_no_such_torch(combination: Combination, facts: Facts) -> Verdict | None:
    """Object where the distribution packages another torch, or none."""
    if distro_build(combination, facts):
        return None
    builds = facts.distro_torch.get(combination.distro, ())
    has = ", ".join(f"torch {build.torch}" for build in builds) or "no torch"
    return Verdict(
        "DISTRO_HAS_NO_SUCH_TORCH",
        f"{title(combination, facts)} packages {has}, not torch {combination.torch}.",
        "; ".join(build.source for build in builds) or "the facts have no torch package for it",
    )


def distro_has_no_such_python(combination: Combination, facts: Facts) -> Verdict | None:
    """Object where the distribution packages that torch for another Python."""
    build = distro_build(combination, facts)
    if build is None or build.python == combination.python:
        return None
    return Verdict(
        "DISTRO_HAS_NO_SUCH_PYTHON",
        f"{title(combination, facts)} packages torch {build.torch} for Python {build.python}, "
        f"not for Python {combination.python}.",
        build.source,
        build.confidence,
    )
