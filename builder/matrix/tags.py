"""The tags of a cell, from the dated one that never moves to the widest, and who owns each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from builder.matrix.ids import CPU, flavour_suffix
from builder.matrix.versions import python_tag, series, version_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from builder.matrix.cells import Cell
    from builder.oci import Digest

LATEST = "latest"
_PREFERRED = ("distro", "python")
# A SIF has the tags of its image with this at the end; no flavour may end so.
SIF_SUFFIX = "-sif"
# What stands in a repository beside moving tags: dated tags of any cell, leased ones of candidates,
# and the lists of referrers where a registry has no API for them.
_DATED = re.compile(r"(?!candidate-).+-torch.+-[0-9]{8}-([0-9a-f]{8})(-[a-z0-9-]+)?")
_OTHER = re.compile(rf"{_DATED.pattern}$|candidate-|sha256-[0-9a-f]{{64}}")


@dataclass(frozen=True, slots=True)
class Tie:
    """A tag that two cells claim with equal right; ``axis`` is what they differ in."""

    tag: str
    one: Cell
    two: Cell
    axis: str


@dataclass(frozen=True, slots=True)
class Owners:
    """Who owns each moving tag, and the tags whose owner nothing decides."""

    tags: Mapping[str, Cell]
    ties: tuple[Tie, ...] = ()


def _exact(cell: Cell) -> str:
    """Return the most exact form, without the flavour."""
    head = CPU if cell.rocm is None else cell.rocm
    return f"{head}-torch{cell.torch}-{python_tag(cell.python)}-{cell.distro}"


def claimed_tags(cell: Cell) -> tuple[str, ...]:
    """Return the moving tags that a cell may claim, from the most exact to the widest.

    The widest ones (``latest``, the ROCm series, ``cpu``) are claimed by default lanes only, and
    ``latest`` never by a CPU cell.
    """
    python = python_tag(cell.python)
    if cell.rocm is None:
        narrow = [f"{CPU}-{python}-{cell.distro}", f"{CPU}-{python}"]
        wide = [CPU]
    else:
        rocm = series(cell.rocm)
        narrow = [
            f"{rocm}-torch{series(cell.torch)}-{python}-{cell.distro}",
            f"{rocm}-{python}-{cell.distro}",
            f"{rocm}-{python}",
        ]
        wide = [rocm, LATEST]
    suffix = flavour_suffix(cell.flavour)
    forms = [_exact(cell), *narrow, *(wide if cell.ranking.default else ())]
    return tuple(form + suffix for form in forms)


def dated_tag(cell: Cell, epoch: int, digest: Digest) -> str:
    """Return the one tag of an image that never moves.

    Args:
        cell: what was built.
        epoch: the lock's epoch, in seconds since 1970 (UTC).
        digest: of the image's manifest.
    """
    day = datetime.fromtimestamp(epoch, UTC).strftime("%Y%m%d")
    return f"{_exact(cell)}-{day}-{digest.hex[:8]}{flavour_suffix(cell.flavour)}"


def dated_tags(cell: Cell, tags: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the day and the tag of each release of ``cell`` among ``tags``, the newest first."""
    suffix = re.escape(flavour_suffix(cell.flavour))
    form = re.compile(rf"{re.escape(_exact(cell))}-([0-9]{{8}})-[0-9a-f]{{8}}{suffix}")
    found = ((match[1], tag) for tag in tags if (match := form.fullmatch(tag)))
    return tuple(sorted(found, reverse=True))


def is_dated(tag: str, digest: str) -> bool:
    """Tell whether a tag has the form of the one that a release of ``digest`` leaves for good.

    A candidate's leased tag has a day and the digest in it too, and is none.
    """
    match = _DATED.fullmatch(tag)
    return match is not None and digest.removeprefix("sha256:").startswith(match[1])


def orphans(tags: Iterable[str], owners: Mapping[str, Cell]) -> tuple[str, ...]:
    """Return the tags of a repository that follow nothing: no cell of the matrix moves them.

    Dated tags stay for good, and tags of candidates, SIF files and referrers are no aliases.
    """
    return tuple(
        sorted(
            tag
            for tag in tags
            if tag.removesuffix(SIF_SUFFIX) not in owners and not _OTHER.match(tag)
        )
    )


def resolve_owners(cells: Iterable[Cell]) -> Owners:
    """Return the owner of each moving tag: the newest by ROCm, torch, then ``prefer:``."""
    claims: dict[str, list[Cell]] = {}
    for cell in cells:
        for tag in claimed_tags(cell):
            claims.setdefault(tag, []).append(cell)
    owners: dict[str, Cell] = {}
    ties: list[Tie] = []
    for tag in sorted(claims):
        owner = _owner(tag, claims[tag])
        if isinstance(owner, Tie):
            ties.append(owner)
        else:
            owners[tag] = owner
    return Owners(MappingProxyType(owners), tuple(ties))


def tags_of(cell: Cell, owners: Mapping[str, Cell]) -> tuple[str, ...]:
    """Return the moving tags that a cell owns, from the most exact to the widest."""
    return tuple(tag for tag in claimed_tags(cell) if tag in owners and owners[tag].id == cell.id)


def _age(cell: Cell) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return version_key(cell.rocm) if cell.rocm else (), version_key(cell.torch)


def _owner(tag: str, claimants: list[Cell]) -> Cell | Tie:
    """Return the one that the tag names, or two that nothing decides between."""
    newest = max(_age(cell) for cell in claimants)
    lanes: dict[str, list[Cell]] = {}
    for cell in claimants:
        if _age(cell) == newest:
            lanes.setdefault(cell.lane, []).append(cell)
    winners: list[Cell] = []
    for name in sorted(lanes):
        ranked = sorted(lanes[name], key=lambda cell: (_ranks(cell, cell), cell.id))
        if len(ranked) > 1 and _ranks(ranked[0], ranked[0]) == _ranks(ranked[1], ranked[1]):
            return _tie(tag, ranked[0], ranked[1])
        winners.append(ranked[0])
    for one in winners:
        if all(_wins(one, other) for other in winners if other is not one):
            return one
    first, *others = winners
    open_ = (other for other in others if not _wins(first, other) and not _wins(other, first))
    return _tie(tag, first, next(open_, others[0]))


def _ranks(cell: Cell, judge: Cell) -> tuple[int, int]:
    """Return how far down the lists of the judge's lane a cell stands; unlisted comes last."""
    return (
        _rank(judge.ranking.distro, cell.distro),
        _rank(judge.ranking.python, cell.python),
    )


def _rank(preferred: tuple[str, ...], value: str) -> int:
    return preferred.index(value) if value in preferred else len(preferred)


def _wins(one: Cell, other: Cell) -> bool:
    """Tell whether both lanes put ``one`` before ``other``; they need to agree."""
    return all(_ranks(one, judge) < _ranks(other, judge) for judge in (one, other))


def _tie(tag: str, one: Cell, two: Cell) -> Tie:
    differing = [axis for axis in _PREFERRED if getattr(one, axis) != getattr(two, axis)]
    return Tie(tag, one, two, differing[0] if differing else "distro")
