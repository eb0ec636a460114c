"""What does exist near a combination that does not."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from builder.matrix.families import FAMILIES
from builder.matrix.rules import judge, rejected
from builder.matrix.versions import python_key, series, version_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from builder.facts import Facts
    from builder.matrix.families import Combination

NEAREST = 3


def nearest(combination: Combination, facts: Facts, *, count: int = NEAREST) -> tuple[str, ...]:
    """Return ids of combinations that rules allow, those that share most with it first.

    ROCm weighs more than Python, Python more than torch, torch more than the distribution; among
    equals the closer version stands first.
    """
    candidates = {
        other.id: other for other in FAMILIES[combination.family].existing(combination, facts)
    }
    found: list[str] = []
    for other in sorted(candidates.values(), key=lambda other: distance(combination, other)):
        if not rejected(judge(other, facts)):
            found.append(other.id)
        if len(found) == count:
            break
    return tuple(found)


def nearest_tags(wanted: str, known: Iterable[str], *, count: int = NEAREST) -> tuple[str, ...]:
    """Return those of ``known`` tags of a repository that look most like one that is not there.

    Nothing is read out of a tag: the words between its underscores are compared, and the first,
    which names the release, weighs most.
    """
    words = wanted.split("_")

    def likeness(tag: str) -> tuple[object, ...]:
        others = tag.split("_")
        shared = sum(word in others for word in words)
        alike = SequenceMatcher(None, wanted, tag).ratio()
        return (others[0] != words[0], -shared, -alike, tag)

    return tuple(sorted((tag for tag in known if tag != wanted), key=likeness)[:count])


def distance(wanted: Combination, other: Combination) -> tuple[object, ...]:
    """Return the key by which combinations near ``wanted`` sort."""
    return (
        _release_distance(wanted.rocm, other.rocm),
        wanted.python != other.python,
        wanted.torch != other.torch,
        wanted.distro != other.distro,
        _gap(python_key(wanted.python), python_key(other.python)),
        _gap(version_key(wanted.torch), version_key(other.torch)),
        other.id,
    )


def _release_distance(wanted: str | None, other: str | None) -> tuple[int, ...]:
    if wanted is None or other is None:
        return (0,)
    same = (other != wanted) + (series(other) != series(wanted))
    return (same, *_gap(version_key(wanted), version_key(other)))


def _gap(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(abs(a - b) for a, b in zip(one, other, strict=True))
