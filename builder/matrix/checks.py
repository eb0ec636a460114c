"""What a matrix of the right shape can still have wrong: its values."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

from builder.errors import Problem
from builder.matrix.expand import lane_values, named, values_of
from builder.matrix.families import families_of
from builder.matrix.problems import near
from builder.matrix.schema import AXES
from builder.matrix.versions import series

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from builder.facts import Facts
    from builder.matrix.cells import Cell
    from builder.matrix.document import Path
    from builder.matrix.schema import LaneSource, MatrixSource
    from builder.matrix.tags import Tie

MAX_COMBINATIONS = 100_000
Where = Callable[["Path"], str]


def check(matrix: MatrixSource, facts: Facts, where: Where) -> list[Problem]:
    """Return what is wrong with the values of a matrix, each with its place.

    Args:
        matrix: the file, of the right shape.
        facts: what values are measured against.
        where: turns a path into the file into ``file:line``.
    """
    problems = list(_two_defaults(matrix, facts, where))
    for name, lane in matrix.lanes.items():
        here = _under(where, ("lanes", name))
        problems += _rocm_axis(name, lane, where)
        for axis in AXES:
            problems += _axis(lane, axis, facts, here)
        problems += _prefer(matrix, lane, here)
        problems += _includes(lane, facts, here)
        problems += _excludes(lane, facts, here)
        if lane.policy.signed and matrix.signing is None:
            problems.append(_no_key(name, here))
    return problems


def _no_key(lane: str, here: Where) -> Problem:
    return Problem(
        "NO_PUBLIC_KEY",
        f'The images of the lane "{lane}" are to be signed, and no key is named.',
        where=here(("policy", "signed")),
        fix="Write `signing: {public_key: cosign.pub}` at the top, with that file beside this one.",
    )


def _under(where: Where, at: Path) -> Where:
    return lambda path: where((*at, *path))


def too_many(matrix: MatrixSource, where: Where) -> Problem | None:
    """Return the problem of a matrix whose product is beyond all use, before it is made."""
    total = sum(prod(len(getattr(lane, axis)) or 1 for axis in AXES) for lane in lanes(matrix))
    if total <= MAX_COMBINATIONS:
        return None
    return Problem(
        "TOO_MANY_COMBINATIONS",
        f"The lanes multiply to {total} combinations; {MAX_COMBINATIONS} are expanded at most.",
        where=where(("lanes",)),
        fix="Split the lanes so that each has only the values that belong together.",
    )


def lanes(matrix: MatrixSource) -> Iterable[LaneSource]:
    """Return the lanes without their names."""
    return matrix.lanes.values()


def duplicates(cells: Iterable[Cell], where: Where) -> list[Problem]:
    """Return one problem for each pair of lanes that define the same cells."""
    first: dict[str, Cell] = {}
    pairs: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        other = first.setdefault(cell.id, cell)
        if other is not cell:
            pairs.setdefault((other.lane, cell.lane), []).append(cell.id)
    return [
        Problem(
            "DUPLICATE_CELL",
            f'The lanes "{one}" ({where(("lanes", one))}) and "{two}" '
            f"({where(('lanes', two))}) both define {_some(ids)}.",
            where=where(("lanes", two)),
            why="A cell is one image: its axis values stand in one lane only.",
            fix=f'Take the values out of one lane, or write an exclude: in "{two}".',
        )
        for (one, two), ids in sorted(pairs.items())
    ]


def tie_problems(ties: Iterable[Tie], where: Where) -> list[Problem]:
    """Return one problem for each pair of lanes and axis whose cells claim the same tags."""
    groups: dict[tuple[str, str, str], list[Tie]] = {}
    for tie in ties:
        one, two = sorted((tie.one, tie.two), key=lambda cell: (cell.lane, cell.id))
        groups.setdefault((one.lane, two.lane, tie.axis), []).append(tie)
    return [_tie_problem(key, group, where) for key, group in sorted(groups.items())]


def _tie_problem(key: tuple[str, str, str], ties: list[Tie], where: Where) -> Problem:
    one, two, axis = key
    values = sorted({getattr(cell, axis) for tie in ties for cell in (tie.one, tie.two)})
    listed = ", ".join(f'"{value}"' for value in values)
    claims = " and ".join(
        f"{cell.id} ({where(('lanes', cell.lane, axis))})" for cell in (ties[0].one, ties[0].two)
    )
    fix = f"Write `prefer: {{{axis}: [{listed}]}}`, the preferred first, in the lane {one}"
    return Problem(
        "TAG_CLAIMED_TWICE",
        f"{claims} both claim the tag {_some([tie.tag for tie in ties])}.",
        where=where(("lanes", two, axis)),
        why=f"They are equally new and differ in {axis}, and no prefer: list decides.",
        fix=f"{fix}." if one == two else f"{fix} and the same in {two}.",
    )


def _some(names: list[str]) -> str:
    unique = list(dict.fromkeys(names))
    more = f" and {len(unique) - 4} more" if len(unique) > 4 else ""
    return ", ".join(unique[:4]) + more


def _two_defaults(matrix: MatrixSource, facts: Facts, where: Where) -> Iterator[Problem]:
    """One lane at most gives the widest tags of a ROCm series, and one those of the CPU."""
    first: dict[str, str] = {}
    for name, lane in matrix.lanes.items():
        if not lane.default:
            continue
        for kind in sorted(_series_of(lane, facts)):
            other = first.setdefault(kind, name)
            if other != name:
                yield Problem(
                    "TWO_DEFAULT_LANES",
                    f'The lanes "{other}" ({where(("lanes", other, "default"))}) and '
                    f'"{name}" are both marked as default for {kind}.',
                    where=where(("lanes", name, "default")),
                    why="The widest tags come from one lane.",
                    fix="Keep `default: true` in one of them.",
                )
                break


def _series_of(lane: LaneSource, facts: Facts) -> set[str]:
    """Return what the widest tags of a lane are about."""
    if families_of(lane.base)[0].on_cpu:
        return {"the CPU"}
    return {f"ROCm {series(value)}" for value in lane_values(lane, "rocm", facts)}


def _rocm_axis(name: str, lane: LaneSource, where: Where) -> Iterator[Problem]:
    on_cpu = families_of(lane.base)[0].on_cpu
    if on_cpu and lane.rocm:
        yield Problem(
            "ROCM_ON_THE_CPU",
            f'The lane "{name}" has ROCm versions, and its base family {lane.base} has none.',
            where=where(("lanes", name, "rocm")),
            fix="Remove `rocm:`, or choose another `base:`.",
        )
    if not on_cpu and not lane.rocm:
        yield Problem(
            "ROCM_MISSING",
            f'The lane "{name}" names no ROCm version, and its base is {lane.base}.',
            where=where(("lanes", name)),
            fix='Add `rocm: ["7.2.4"]`, or write `base: distro` for the CPU.',
        )


def _axis(lane: LaneSource, axis: str, facts: Facts, where: Where) -> Iterator[Problem]:
    """Name values that nothing knows, and values that are written twice."""
    known = _known(lane, axis, facts)
    seen: dict[str, int] = {}
    for index, text in enumerate(getattr(lane, axis)):
        meant = values_of(lane, axis, text, facts)
        value = meant[0]
        if known is not None and not known.intersection(meant):
            yield Problem(
                "UNKNOWN_AXIS_VALUE",
                f'"{text}" is not a known {axis}.',
                where=where((axis, index)),
                why=f"The facts know no such {axis} for the base family {lane.base}.",
                fix=near(text, known),
            )
        if value in seen:
            yield Problem(
                "DUPLICATE_VALUE",
                f'"{text}" in {axis} means {value}, which the list has already '
                f"({where((axis, seen[value]))}).",
                where=where((axis, index)),
                fix="Keep one of the two.",
            )
        seen.setdefault(value, index)


def _known(lane: LaneSource, axis: str, facts: Facts) -> frozenset[str] | None:
    """Return the values that some family of the lane knows; ``None`` where all may be."""
    if axis == "distro":
        return frozenset(facts.distributions)
    known: frozenset[str] = frozenset()
    for family in families_of(lane.base):
        releases = family.releases(axis, facts)
        if releases is None:
            return None
        known |= releases
    return known


def _prefer(matrix: MatrixSource, lane: LaneSource, where: Where) -> Iterator[Problem]:
    for axis in ("distro", "python"):
        known = {value for other in lanes(matrix) for value in getattr(other, axis)}
        for index, value in enumerate(getattr(lane.prefer, axis)):
            if value not in known:
                yield Problem(
                    "UNKNOWN_AXIS_VALUE",
                    f'prefer: names the {axis} "{value}", which no lane has.',
                    where=where(("prefer", axis, index)),
                    fix=near(value, known),
                )


def _includes(lane: LaneSource, facts: Facts, where: Where) -> Iterator[Problem]:
    for index, item in enumerate(lane.include):
        here = _under(where, ("include", index))
        new = False
        for axis, values in named(item):
            known = _known(lane, axis, facts)
            present = {
                v for text in getattr(lane, axis) for v in values_of(lane, axis, text, facts)
            }
            for position, text in enumerate(values):
                meant = set(values_of(lane, axis, text, facts))
                new = new or not meant <= present
                if known is not None and not known.intersection(meant):
                    yield Problem(
                        "UNKNOWN_AXIS_VALUE",
                        f'An include names the {axis} "{text}", which is not a known {axis}.',
                        where=here((axis, position)),
                        fix=near(text, known),
                    )
        if not new:
            yield Problem(
                "INCLUDE_ADDS_NOTHING",
                "An include adds no combination that the lane does not have.",
                where=where(("include", index)),
                why="Each of its values stands among the lane's own.",
                fix="Remove it, or name a value that is new.",
            )


def _excludes(lane: LaneSource, facts: Facts, where: Where) -> Iterator[Problem]:
    for index, item in enumerate(lane.exclude):
        pairs = named(item)
        if not pairs:
            yield Problem(
                "EXCLUDE_NAMES_NO_AXIS",
                "An exclude names no axis, so it would drop the whole lane.",
                where=where(("exclude", index)),
                fix=f"Name at least one of {', '.join(AXES)}.",
            )
        for axis, values in pairs:
            yield from _exclude_values(lane, axis, values, facts, where, ("exclude", index, axis))


def _exclude_values(
    lane: LaneSource, axis: str, values: tuple[str, ...], facts: Facts, where: Where, path: Path
) -> Iterator[Problem]:
    present = lane_values(lane, axis, facts)
    for position, text in enumerate(values):
        try:
            meant = values_of(lane, axis, text, facts)
        except ValueError:
            meant = (text,)
        if not set(meant).intersection(present):
            yield Problem(
                "EXCLUDE_MATCHES_NOTHING",
                f'An exclude names the {axis} "{text}", which the lane does not have.',
                where=where((*path, position)),
                why="An exclude that matches nothing is a mistake or a leftover.",
                fix=near(text, present),
            )
