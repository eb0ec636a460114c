"""Lanes to cells: the product of each lane, less what the matrix excludes and what no rule allows.

The order is fixed: product, then `exclude:`, then the rules. The result does not depend on the
order in which lanes, axes or values are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from builder.matrix.cells import Cell, Policy, Ranking, Waiver
from builder.matrix.families import FAMILIES, Combination
from builder.matrix.rules import judge
from builder.matrix.schema import AXES, LEVELS
from builder.matrix.versions import normalise, normalise_python, python_key, resolve, version_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from builder.facts import Facts
    from builder.matrix.rules import Verdict
    from builder.matrix.schema import ExcludeSource, LaneSource, MatrixSource, PolicySource

EXCLUDED_BY_MATRIX = "EXCLUDED_BY_MATRIX"


@dataclass(frozen=True, slots=True)
class Excluded:
    """A combination that is not built, and why."""

    lane: str
    axes: tuple[tuple[str, str | None], ...]
    code: str
    reason: str
    source: str | None = None
    nearest: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the form of ``matrix --json``."""
        return {
            "axes": dict(self.axes),
            "code": self.code,
            "reason": self.reason,
            "nearest": list(self.nearest),
        }


@dataclass(frozen=True, slots=True)
class Warned:
    """A cell that is built although an inferred fact speaks against it."""

    cell: str
    code: str
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class Expansion:
    """What a matrix comes to: cells (the newest first), dropped combinations, warnings."""

    cells: tuple[Cell, ...]
    excluded: tuple[Excluded, ...]
    warnings: tuple[Warned, ...] = ()


def expand(matrix: MatrixSource, facts: Facts) -> Expansion:
    """Return the cells of all lanes, sorted, and what was dropped with its reason.

    A value that the facts do not know is dropped by a rule here; builder.matrix.checks names it
    as the mistake that it is. A cell that two lanes define stands twice, for the same reason.
    """
    cells: list[Cell] = []
    excluded: list[Excluded] = []
    warnings: list[Warned] = []
    for name, lane in matrix.lanes.items():
        maker = _LaneExpansion(name, lane, facts)
        for combination in maker.combinations():
            told = maker.exclusion(combination)
            verdicts = () if told else judge(combination, facts)
            if told or (verdicts and verdicts[-1].confidence == "seen"):
                excluded.append(told or _rejected(combination, verdicts[-1]))
                continue
            cells.append(maker.cell(combination))
            warnings += [
                Warned(combination.id, item.code, item.reason, item.source) for item in verdicts
            ]
    cells.sort(key=_order)
    excluded.sort(key=lambda item: (item.lane, [(name, value or "") for name, value in item.axes]))
    warnings.sort(key=lambda item: (item.cell, item.code))
    return Expansion(tuple(cells), tuple(excluded), tuple(warnings))


def axis_value(axis: str, text: str, releases: frozenset[str] | None) -> str:
    """Return the normal form of an axis value; a series means its newest known release.

    Args:
        axis: the axis.
        text: the value as written.
        releases: the values that the base family knows on this axis; ``None`` where all may be.
    """
    if axis in ("rocm", "torch"):
        return (releases and resolve(text, releases)) or normalise(text)
    return normalise_python(text) if axis == "python" else text


def lane_values(lane: LaneSource, axis: str, facts: Facts) -> tuple[str, ...]:
    """Return the values of one axis of a lane in normal form, each once."""
    releases = FAMILIES[lane.base].releases(axis, facts)
    values: tuple[str, ...] = getattr(lane, axis)
    return tuple(dict.fromkeys(axis_value(axis, text, releases) for text in values))


class _LaneExpansion:
    """What all cells of one lane share, made once."""

    def __init__(self, name: str, lane: LaneSource, facts: Facts) -> None:
        self.name = name
        self.lane = lane
        self.facts = facts
        self.family = FAMILIES[lane.base]
        self.policy = _policy(lane.policy)
        self.gfx = tuple(sorted(set(lane.gfx)))
        self.ranking = Ranking(
            lane.default,
            lane.prefer.distro,
            tuple(normalise_python(text) for text in lane.prefer.python),
        )
        self.excludes = [(self._wanted(item), item.reason) for item in lane.exclude]

    def combinations(self) -> Iterator[Combination]:
        distros, rocms, torches, pythons, flavours = (
            lane_values(self.lane, axis, self.facts) for axis in AXES
        )
        releases = (None,) if self.family.on_cpu or not rocms else rocms
        for distro, rocm, torch, python, flavour in product(
            distros, releases, torches, pythons, flavours
        ):
            yield Combination(self.name, self.lane.base, distro, rocm, torch, python, flavour)

    def _wanted(self, item: ExcludeSource) -> dict[str, frozenset[str]]:
        """Return the values of an exclude by axis, in normal form where they are versions."""
        return {axis: frozenset(_normal(axis, values, self)) for axis, values in named(item)}

    def exclusion(self, combination: Combination) -> Excluded | None:
        if not self.excludes:
            return None
        axes = combination.axes
        for wanted, reason in self.excludes:
            if wanted and all(axes[axis] in values for axis, values in wanted.items()):
                return Excluded(self.name, tuple(axes.items()), EXCLUDED_BY_MATRIX, reason)
        return None

    def cell(self, combination: Combination) -> Cell:
        made = self.family.specify(combination, self.facts)
        return Cell(
            id=combination.id,
            lane=self.name,
            distro=combination.distro,
            rocm=combination.rocm,
            torch=combination.torch,
            python=combination.python,
            flavour=combination.flavour,
            base=made.base,
            expected=made.expected,
            gfx=self.gfx,
            policy=self.policy,
            packages=made.packages,
            unpacked_bytes=made.unpacked_bytes,
            ranking=self.ranking,
        )


def named(item: ExcludeSource) -> list[tuple[str, tuple[str, ...]]]:
    """Return the axes that an exclude names, with the values as written."""
    pairs = ((axis, getattr(item, axis)) for axis in AXES)
    return [(axis, values) for axis, values in pairs if values]


def _normal(axis: str, values: tuple[str, ...], lane: _LaneExpansion) -> Iterator[str]:
    releases = lane.family.releases(axis, lane.facts)
    for text in values:
        try:
            yield axis_value(axis, text, releases)
        except ValueError:
            yield text


def _rejected(combination: Combination, verdict: Verdict) -> Excluded:
    return Excluded(
        combination.lane,
        tuple(combination.axes.items()),
        verdict.code,
        verdict.reason,
        verdict.source,
        verdict.nearest,
    )


def _policy(source: PolicySource) -> Policy:
    written = source.waiver
    waiver = Waiver(_levels(written.levels), written.reason, written.until) if written else None
    return Policy(_levels(source.levels), source.size_budget_bytes, waiver)


def _levels(levels: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(levels), key=LEVELS.index))


def _order(cell: Cell) -> tuple[object, ...]:
    """Sort the newest first, the CPU after all ROCm."""
    rocm = version_key(cell.rocm) if cell.rocm else (-1, 0, 0)
    newest = [-part for part in (*rocm, *version_key(cell.torch), *python_key(cell.python))]
    return newest, cell.distro, cell.flavour, cell.lane
