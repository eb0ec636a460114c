"""Legs of a pipeline that push: no two may write one tag, or the last one wins and the others go.

A SIF job that then asks the tag for its platform finds that it is not there. Legs push by digest;
one stage after all of them writes the tag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.errors import Problem, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Leg:
    """One leg: its platform or cell, and the tag or digest that it pushes to."""

    name: str
    push: str


def check_legs(legs: Iterable[Leg]) -> None:
    """Raise where two legs push to one tag; pushing by digest is always well.

    Raises:
        RefusedError: ``TAG_WRITTEN_TWICE``, once for each such tag.
    """
    writers: dict[str, list[str]] = {}
    for leg in legs:
        if "@sha256:" not in leg.push:
            writers.setdefault(leg.push, []).append(leg.name)
    problems = [
        Problem(
            code="TAG_WRITTEN_TWICE",
            what=f"{tag} is pushed by {len(names)} legs ({', '.join(names)}): the last one"
            " wins, and the others' images are gone from it",
            where=tag,
            fix="let each leg push by digest, and one stage after them write the tag",
        )
        for tag, names in writers.items()
        if len(names) > 1
    ]
    if problems:
        raise RefusedError(problems)
