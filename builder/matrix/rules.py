"""Why a combination cannot be: one small pure function a reason, each with a stable code.

A rule looks at one combination and the facts. It returns nothing where it has no objection, else
a verdict that names the fact it rests on and the nearest combinations that do exist. A verdict that
rests on an inferred fact becomes a warning: only what was seen rejects (builder.matrix.expand).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.matrix.families import FAMILIES, distro_build
from builder.matrix.ids import cell_id

if TYPE_CHECKING:
    from builder.facts import Confidence, Facts
    from builder.matrix.families import Combination

NEAREST = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """An objection to a combination.

    Attributes:
        code: stable upper-case identifier of the rule.
        reason: one sentence with the values.
        source: the source of the fact that it rests on.
        confidence: of that fact.
        nearest: ids of combinations that exist, the nearest first.
    """

    code: str
    reason: str
    source: str
    confidence: Confidence = "seen"
    nearest: tuple[str, ...] = ()


Check = Callable[["Combination", "Facts"], Verdict | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """A check and the base families that it is about."""

    code: str
    families: frozenset[str]
    check: Check


def _family_not_available(combination: Combination, facts: Facts) -> Verdict | None:
    del facts
    if FAMILIES[combination.family].available:
        return None
    built = ", ".join(family.name for family in FAMILIES.values() if family.available)
    return Verdict(
        "FAMILY_NOT_AVAILABLE",
        f"The base family {combination.family} cannot be built by this version of rocm-torch, "
        f"which builds: {built}.",
        "the families of builder/matrix/families.py",
    )


def _distro_has_no_such_torch(combination: Combination, facts: Facts) -> Verdict | None:
    if distro_build(combination, facts):
        return None
    distribution = facts.distributions.get(combination.distro)
    title = distribution.title if distribution else combination.distro
    builds = facts.distro_torch.get(combination.distro, ())
    has = ", ".join(f"torch {build.torch}" for build in builds) or "no torch"
    return Verdict(
        "DISTRO_HAS_NO_SUCH_TORCH",
        f"{title} packages {has}, not torch {combination.torch}.",
        "; ".join(build.source for build in builds) or "the facts have no torch package for it",
        nearest=_nearest_builds(combination, facts),
    )


def _distro_has_no_such_python(combination: Combination, facts: Facts) -> Verdict | None:
    build = distro_build(combination, facts)
    if build is None or build.python == combination.python:
        return None
    title = facts.distributions[combination.distro].title
    return Verdict(
        "DISTRO_HAS_NO_SUCH_PYTHON",
        f"{title} packages torch {build.torch} for Python {build.python}, "
        f"not for Python {combination.python}.",
        build.source,
        build.confidence,
        _nearest_builds(combination, facts),
    )


def _family_has_no_such_flavour(combination: Combination, facts: Facts) -> Verdict | None:
    if (combination.family, combination.flavour) in facts.contents:
        return None
    known = sorted(flavour for family, flavour in facts.contents if family == combination.family)
    return Verdict(
        "FAMILY_HAS_NO_SUCH_FLAVOUR",
        f"The base family {combination.family} has no flavour {combination.flavour}; "
        f"it has: {', '.join(known) or 'none'}.",
        "the contents table of the facts",
    )


def _distro_has_no_such_flavour(combination: Combination, facts: Facts) -> Verdict | None:
    build = distro_build(combination, facts)
    if build is None or combination.flavour in ("runtime", *build.flavours):
        return None
    title = facts.distributions[combination.distro].title
    return Verdict(
        "DISTRO_HAS_NO_SUCH_FLAVOUR",
        f"{title} packages what the flavours {', '.join(('runtime', *build.flavours))} need, "
        f"not what {combination.flavour} needs.",
        build.source,
        build.confidence,
    )


def _nearest_builds(combination: Combination, facts: Facts) -> tuple[str, ...]:
    """Return ids of what distributions do package, those that share most with the request first."""
    builds = [build for group in facts.distro_torch.values() for build in group]
    ranked = sorted(
        (
            -4 * (build.torch == combination.torch)
            - 2 * (build.distro == combination.distro)
            - (build.python == combination.python),
            cell_id(None, build.torch, build.python, build.distro, combination.flavour),
        )
        for build in builds
    )
    return tuple(identifier for _, identifier in ranked[:NEAREST])


_ALL = frozenset(FAMILIES)
_DISTRO = frozenset({"distro"})
RULES: tuple[Rule, ...] = (
    Rule("FAMILY_NOT_AVAILABLE", _ALL, _family_not_available),
    Rule("DISTRO_HAS_NO_SUCH_TORCH", _DISTRO, _distro_has_no_such_torch),
    Rule("DISTRO_HAS_NO_SUCH_PYTHON", _DISTRO, _distro_has_no_such_python),
    Rule("FAMILY_HAS_NO_SUCH_FLAVOUR", _DISTRO, _family_has_no_such_flavour),
    Rule("DISTRO_HAS_NO_SUCH_FLAVOUR", _DISTRO, _distro_has_no_such_flavour),
)


def judge(combination: Combination, facts: Facts) -> tuple[Verdict, ...]:
    """Return the objections to a combination: warnings, and at most one rejection, the last."""
    verdicts: list[Verdict] = []
    for rule in RULES:
        if combination.family in rule.families:
            verdict = rule.check(combination, facts)
            if verdict is not None:
                verdicts.append(verdict)
                if verdict.confidence == "seen":
                    break
    return tuple(verdicts)
