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
from builder.matrix.rules.amd_images import (
    distro_not_supported,
    no_such_dev_image,
    no_such_upstream_tag,
    no_torch_for_dev_image,
)
from builder.matrix.rules.contents import (
    distro_not_known,
    family_has_no_such_flavour,
    gfx_not_served,
    no_package_repository,
)
from builder.matrix.rules.distro import distro_has_no_such_python, distro_has_no_such_torch
from builder.matrix.rules.packages import package_objection
from builder.matrix.rules.verdict import Verdict
from builder.matrix.rules.wheels import (
    amd_has_no_such_wheel,
    amd_wheel_has_no_such_python,
    index_has_no_such_torch,
    libc_below_floor,
    wheel_gone,
    wheel_has_no_such_python,
    wheel_inferred,
)

if TYPE_CHECKING:
    from builder.facts import Facts
    from builder.matrix.families import Combination

Check = Callable[["Combination", "Facts"], Verdict | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """A check and the base families that it is about."""

    code: str
    families: frozenset[str]
    check: Check


def _of(*families: str) -> frozenset[str]:
    return frozenset(families)


_WHEELS = _of("wheel", "amd-wheel")
RULES: tuple[Rule, ...] = (
    Rule("DISTRO_NOT_KNOWN", frozenset(FAMILIES), distro_not_known),
    Rule("FAMILY_HAS_NO_SUCH_FLAVOUR", frozenset(FAMILIES), family_has_no_such_flavour),
    Rule("DISTRO_HAS_NO_SUCH_TORCH", _of("distro"), distro_has_no_such_torch),
    Rule("DISTRO_HAS_NO_SUCH_PYTHON", _of("distro"), distro_has_no_such_python),
    Rule("NO_SUCH_UPSTREAM_TAG", _of("rocm-pytorch"), no_such_upstream_tag),
    Rule("INDEX_HAS_NO_SUCH_TORCH", _of("wheel"), index_has_no_such_torch),
    Rule("WHEEL_HAS_NO_SUCH_PYTHON", _of("wheel"), wheel_has_no_such_python),
    Rule("WHEEL_INFERRED", _of("wheel"), wheel_inferred),
    Rule("AMD_HAS_NO_SUCH_WHEEL", _of("amd-wheel"), amd_has_no_such_wheel),
    Rule("WHEEL_HAS_NO_SUCH_PYTHON", _of("amd-wheel"), amd_wheel_has_no_such_python),
    Rule("WHEEL_GONE", _of("amd-wheel"), wheel_gone),
    Rule("NO_SUCH_DEV_IMAGE", _of("rocm-dev"), no_such_dev_image),
    Rule("DISTRO_NOT_SUPPORTED", _of("rocm-dev"), distro_not_supported),
    Rule("INDEX_HAS_NO_SUCH_TORCH", _of("rocm-dev"), no_torch_for_dev_image),
    Rule("LIBC_BELOW_FLOOR", _WHEELS, libc_below_floor),
    Rule("GFX_NOT_SERVED", frozenset(FAMILIES) - {"distro"}, gfx_not_served),
    Rule("COMPONENT_HAS_NO_PACKAGE", _WHEELS | {"distro"}, no_package_repository),
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
