"""The story of a tag or cell: what it is, why it is that, or why there is none and what is nearest.

What a person asks about is read here as axis values; programs never do that with a tag.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from builder.matrix.families import FAMILIES, Combination
from builder.matrix.ids import CPU, DEFAULT_FLAVOUR, flavour_suffix
from builder.matrix.nearest import NEAREST, distance
from builder.matrix.rules import judge, rejected
from builder.matrix.rules.lifecycle import ended
from builder.matrix.tags import claimed_tags
from builder.matrix.versions import python_tag, resolve, series, version_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import date

    from builder.facts import Facts
    from builder.matrix.cells import Cell
    from builder.matrix.load import Matrix

_DATED = re.compile(r"-[0-9]{8}-[0-9a-f]{8}(?=-|\Z)")
_QUERY = re.compile(
    r"(?:(?P<cpu>cpu)|(?:rocm)?(?P<rocm>[0-9]{1,3}\.[0-9]{1,3}(?:\.[0-9]{1,3})?))"
    r"(?:-torch(?P<torch>[0-9]{1,3}\.[0-9]{1,3}(?:\.[0-9]{1,3})?))?"
    r"(?:-py(?P<major>[0-9])(?P<minor>[0-9]{1,2}t?))?"
    r"(?:-(?P<distro>[a-z]+[0-9]+(?:\.[0-9]+)?))?"
    r"(?:-(?P<flavour>devel|opencl|slim-gfx[0-9a-z]+))?"
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What there is to say of a name.

    Attributes:
        asked: the name as given.
        cell: the id of the cell that it means; ``None`` where there is none.
        story: sentences, the most important first.
        code: the stable code of the reason where there is no cell.
        nearest: tags that do exist, the nearest first.
    """

    asked: str
    cell: str | None
    story: tuple[str, ...]
    code: str | None = None
    nearest: tuple[str, ...] = ()


def explain(asked: str, matrix: Matrix, facts: Facts, today: date) -> Explanation | None:
    """Return the story of a tag, dated tag or cell id; ``None`` where it cannot be read as one."""
    name = _DATED.sub("", asked.removeprefix(f"{matrix.image}:"))
    for cell in matrix.cells:
        if cell.id == name:
            return Explanation(asked, cell.id, tuple(_story(cell, matrix, facts, today)))
    owner = matrix.tags.get(name)
    if owner is not None:
        story = (*_owning(name, owner, matrix), *_story(owner, matrix, facts, today))
        return Explanation(asked, owner.id, story)
    query = _QUERY.fullmatch(name)
    return _absent(asked, query.groupdict(), matrix, facts) if query else None


def _owning(tag: str, owner: Cell, matrix: Matrix) -> Iterator[str]:
    """Say why a moving tag names this cell and not another."""
    claimants = [cell for cell in matrix.cells if tag in claimed_tags(cell)]
    others = [cell for cell in claimants if cell.id != owner.id]
    yield f"{tag} names {owner.id}."
    if not others:
        yield "No other cell claims this tag."
        return
    yield (
        f"{len(claimants)} cells claim it: the newest ROCm and then the newest torch win, and "
        f"among equals the `prefer:` lists of their lanes. Next would be {others[0].id}."
    )


def _story(cell: Cell, matrix: Matrix, facts: Facts, today: date) -> Iterator[str]:
    lane = matrix.source.lanes[cell.lane]
    yield f"Lane {cell.lane}: {lane.purpose}"
    yield f"Base family {cell.base.family}, from {cell.base.ref}."
    yield from _why_family(cell, lane.base, facts)
    if cell.wheels is not None:
        yield f"Installs {', '.join(cell.wheels.requirements)} from {cell.wheels.index}."
    yield {
        "base": f"Python {cell.python} is the one that the base has torch in.",
        "distro": f"Python {cell.python} is the distribution's own.",
        "uv": f"Python {cell.python} is a standalone build by uv: {cell.distro} has another.",
    }[cell.interpreter.provider]
    if cell.gfx:
        yield f"Serves {', '.join(cell.gfx)}."
    support = facts.rocm_support.get(cell.rocm or "")
    if support is not None:
        listed = "lists" if cell.distro in support.distros else "does not list"
        yield (
            f"AMD {listed} {cell.distro} for native installs of ROCm {cell.rocm}; a container "
            "needs only the host's driver to fit."
        )
    yield f"Its tags: {', '.join(matrix.tags_of(cell)) or 'none but the dated one'}."
    for warning in matrix.warnings:
        if warning.cell == cell.id:
            yield f"Warning {warning.code}: {warning.reason}"
    for warned in ended(cell, facts, today):
        yield f"Warning {warned.code}: {warned.reason}"


def _why_family(cell: Cell, base: str, facts: Facts) -> Iterator[str]:
    if base != "auto" and cell.base.family != "wheel":
        return
    verdicts = judge(_combination(cell, "rocm-pytorch"), facts)
    if cell.base.family == "wheel" and rejected(verdicts):
        yield f"Not AMD's image, because: {verdicts[-1].reason}"
    elif base == "auto":
        yield "AMD publishes exactly this combination, so its image is taken."


def _combination(cell: Cell, family: str) -> Combination:
    return Combination(
        cell.lane, family, cell.distro, cell.rocm, cell.torch, cell.python, cell.flavour
    )


def _absent(
    asked: str, parts: Mapping[str, str | None], matrix: Matrix, facts: Facts
) -> Explanation:
    """Say why there is no such cell: excluded, impossible, or possible and not in the matrix."""
    python = f"{parts['major']}.{parts['minor']}" if parts["major"] else None
    wanted = {**parts, "python": python, "flavour": parts["flavour"] or DEFAULT_FLAVOUR}
    fitting = [cell for cell in matrix.cells if _fits(wanted, cell)]
    if fitting:
        told = ", ".join(cell.id for cell in fitting[:NEAREST])
        tags = (matrix.tags_of(cell)[-1:] for cell in fitting)
        found = tuple(dict.fromkeys(tag for some in tags for tag in some))[:NEAREST]
        told_so: tuple[str, ...] = (f"No tag has this form; cells with these values are {told}.",)
        return Explanation(asked, None, told_so, "NO_SUCH_TAG", found)
    nearest = _nearest_tags(wanted, matrix)
    for item in matrix.excluded:
        if _fits(wanted, item.combination):
            return Explanation(asked, None, (item.reason,), item.code, nearest)
    reasons: dict[str, str] = {}
    for family in FAMILIES.values():
        if family.on_cpu is (parts["cpu"] is not None):
            for combination in _filled(wanted, family.name, matrix, facts):
                verdicts = judge(combination, facts)
                if not rejected(verdicts):
                    story = (
                        *reasons.values(),
                        f"No lane has it. It could be built as {combination.id} by the base "
                        f"family {family.name}: add its values to a lane of matrix.yaml.",
                    )
                    return Explanation(asked, None, story, "NOT_IN_MATRIX", nearest)
                reasons.setdefault(verdicts[-1].code, verdicts[-1].reason)
    story = tuple(reasons.values()) or ("The facts know nothing of these values.",)
    return Explanation(asked, None, story, next(iter(reasons), "UNKNOWN"), nearest)


def _fits(wanted: Mapping[str, str | None], combination: Combination | Cell) -> bool:
    return (
        (combination.rocm is None) is (wanted["cpu"] is not None)
        and _is(wanted["rocm"], combination.rocm)
        and _is(wanted["torch"], combination.torch)
        and wanted["python"] in (None, combination.python)
        and wanted["distro"] in (None, combination.distro)
        and wanted["flavour"] == combination.flavour
    )


def _is(wanted: str | None, version: str | None) -> bool:
    """Tell whether a version is the one asked for, or of the series asked for."""
    if wanted is None or version is None:
        return wanted is None
    return (
        version_key(wanted)[: wanted.count(".") + 1]
        == version_key(version)[: wanted.count(".") + 1]
    )


def _filled(
    wanted: Mapping[str, str | None], family: str, matrix: Matrix, facts: Facts
) -> Iterator[Combination]:
    """Yield combinations of the family that have the values asked for, the newest torch first."""
    known = FAMILIES[family].releases("rocm", facts) or frozenset()
    rocm = resolve(wanted["rocm"], known) if wanted["rocm"] else None
    if wanted["rocm"] and rocm is None:
        return
    distros = [wanted["distro"]] if wanted["distro"] in facts.distributions else _distros(matrix)
    start = Combination(
        "",
        family,
        distros[0] or "",
        rocm,
        "0.0.0",
        wanted["python"] or "3.12",
        wanted["flavour"] or "",
    )
    others = {
        replace(other, python=wanted["python"] or other.python, distro=distro or other.distro)
        for other in FAMILIES[family].existing(start, facts)
        for distro in distros
        if other.rocm == rocm and _is(wanted["torch"], other.torch)
    }
    yield from sorted(
        others,
        key=lambda one: (
            [-part for part in version_key(one.torch)],
            distros.index(one.distro),
            one.id,
        ),
    )


def _distros(matrix: Matrix) -> list[str | None]:
    """Return the distributions of the matrix, those that the default lanes prefer first."""
    preferred = [name for cell in matrix.cells for name in cell.ranking.distro]
    present = [cell.distro for cell in matrix.cells]
    return [name for name in dict.fromkeys((*preferred, *present)) if name in present]


def _nearest_tags(wanted: Mapping[str, str | None], matrix: Matrix) -> tuple[str, ...]:
    """Return tags of the form asked for, those of the nearest cells first."""
    cells = [cell for cell in matrix.cells if (cell.rocm is None) is (wanted["cpu"] is not None)]
    if not cells:
        return ()
    first = cells[0]
    asked = Combination(
        "",
        first.base.family,
        wanted["distro"] or first.distro,
        _three(wanted["rocm"]),
        _three(wanted["torch"]) or first.torch,
        wanted["python"] or first.python,
        wanted["flavour"] or DEFAULT_FLAVOUR,
    )
    same = [cell for cell in cells if cell.flavour == asked.flavour] or cells
    ranked = sorted(same, key=lambda cell: distance(asked, _combination(cell, first.base.family)))
    tags = (_form(wanted, cell) for cell in ranked)
    return tuple(dict.fromkeys(tag for tag in tags if tag in matrix.tags))[:NEAREST]


def _three(text: str | None) -> str | None:
    return None if text is None else ".".join(str(part) for part in version_key(text))


def _form(wanted: Mapping[str, str | None], cell: Cell) -> str:
    """Return the tag of a cell in the form of what was asked for."""
    parts = [CPU if cell.rocm is None else _as_wide(wanted["rocm"], cell.rocm)]
    if wanted["torch"]:
        parts.append(f"torch{_as_wide(wanted['torch'], cell.torch)}")
    if wanted["python"]:
        parts.append(python_tag(cell.python))
    if wanted["distro"]:
        parts.append(cell.distro)
    return "-".join(parts) + flavour_suffix(cell.flavour)


def _as_wide(written: str | None, version: str) -> str:
    return version if written and written.count(".") == 2 else series(version)
