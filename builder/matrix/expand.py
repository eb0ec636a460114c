"""Lanes to cells: what each lane comes to, less what it excludes and what no rule allows.

The order is fixed: the product of the axes, then `include:` adds, then `exclude:` drops (it wins),
then the rules. With `base: auto` the first family that the rules allow is taken. The result does
not depend on the order in which lanes, axes or values are written.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import product
from typing import TYPE_CHECKING

from builder.matrix.cells import Cell, Policy, ProductPeaks, Ranking, Waiver
from builder.matrix.families import Combination, families_of
from builder.matrix.families.model import Specification
from builder.matrix.rules import judge, rejected
from builder.matrix.schema import AXES, LEVELS
from builder.matrix.versions import normalise, normalise_python, python_key, resolve, version_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from builder.facts import Facts
    from builder.matrix.families import Family
    from builder.matrix.rules.verdict import Verdict
    from builder.matrix.schema import AxesSource, LaneSource, MatrixSource, PolicySource

EXCLUDED_BY_MATRIX = "EXCLUDED_BY_MATRIX"


@dataclass(frozen=True, slots=True)
class Excluded:
    """A combination that is not built, and why.

    Attributes:
        combination: the axis values, with the family that was tried last.
        code: stable identifier of the reason.
        reason: one sentence.
        source: of the fact that it rests on; ``None`` where the matrix itself excludes it.
    """

    combination: Combination
    code: str
    reason: str
    source: str | None = None

    def to_json(self, nearest: Iterable[str] = ()) -> dict[str, object]:
        """Return the form of ``matrix --json``; ``nearest`` are ids of what does exist."""
        return {
            "lane": self.combination.lane,
            "axes": self.combination.axes,
            "code": self.code,
            "reason": self.reason,
            "nearest": list(nearest),
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
        for alternatives in maker.combinations():
            reason = maker.exclusion(alternatives)
            if reason is not None:
                excluded.append(Excluded(alternatives[0], EXCLUDED_BY_MATRIX, reason))
                continue
            combination, verdicts = chosen(alternatives, facts)
            if rejected(verdicts):
                excluded.append(_rejected(combination, verdicts[-1]))
                continue
            cells.append(maker.cell(combination))
            warnings += [
                Warned(combination.id, item.code, item.reason, item.source) for item in verdicts
            ]
    cells.sort(key=_order)
    excluded.sort(key=lambda item: (item.combination.lane, item.combination.id, item.code))
    warnings.sort(key=lambda item: (item.cell, item.code))
    return Expansion(tuple(cells), tuple(excluded), tuple(warnings))


def chosen(
    alternatives: tuple[Combination, ...], facts: Facts
) -> tuple[Combination, tuple[Verdict, ...]]:
    """Return the first alternative that rules allow with its warnings, else the last one."""
    for combination in alternatives:
        verdicts = judge(combination, facts)
        if not rejected(verdicts):
            break
    return combination, verdicts


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


def values_of(lane: LaneSource, axis: str, text: str, facts: Facts) -> tuple[str, ...]:
    """Return what one written value of an axis means, by each family that the lane may use."""
    found = (
        axis_value(axis, text, family.releases(axis, facts)) for family in families_of(lane.base)
    )
    return tuple(dict.fromkeys(found))


def lane_values(lane: LaneSource, axis: str, facts: Facts) -> tuple[str, ...]:
    """Return the values of one axis of a lane in normal form, each once, includes among them."""
    written: list[str] = [*getattr(lane, axis)]
    for item in lane.include:
        written += getattr(item, axis) or ()
    return tuple(
        dict.fromkeys(value for text in written for value in values_of(lane, axis, text, facts))
    )


class _LaneExpansion:
    """What all cells of one lane share, made once."""

    def __init__(self, name: str, lane: LaneSource, facts: Facts) -> None:
        self.name = name
        self.lane = lane
        self.facts = facts
        self.families = families_of(lane.base)
        self.policy = _policy(lane.policy)
        self.gfx = tuple(sorted(set(lane.gfx)))
        self.ranking = Ranking(
            lane.default,
            lane.prefer.distro,
            tuple(normalise_python(text) for text in lane.prefer.python),
        )
        self.peaks = product_peaks(facts)
        self.excludes = [(self._wanted(item), item.reason) for item in lane.exclude]
        self._values: dict[tuple[str, str, str], str] = {}
        self._releases = {
            (family.name, axis): family.releases(axis, facts)
            for family in self.families
            for axis in AXES
        }

    def combinations(self) -> Iterator[tuple[Combination, ...]]:
        """Yield each element of the product, and of the includes, by each family in turn."""
        seen: set[str] = set()
        for written in self._written():
            alternatives = tuple(self._combination(family, written) for family in self.families)
            if alternatives[0].id not in seen:
                seen.add(alternatives[0].id)
                yield alternatives

    def _written(self) -> Iterator[tuple[str | None, ...]]:
        on_cpu = self.families[0].on_cpu
        for item in (None, *self.lane.include):
            values = [
                (item and getattr(item, axis)) or getattr(self.lane, axis) or (None,)
                for axis in AXES
            ]
            if on_cpu:
                values[AXES.index("rocm")] = (None,)
            yield from product(*values)

    def _combination(self, family: Family, written: tuple[str | None, ...]) -> Combination:
        values = (
            text if text is None else self._normal(family, axis, text)
            for axis, text in zip(AXES, written, strict=True)
        )
        distro, rocm, torch, python, flavour = values
        return Combination(
            self.name,
            family.name,
            distro or "",
            rocm,
            torch or "",
            python or "",
            flavour or "",
            self.gfx,
            self.lane.python_packages,
        )

    def _normal(self, family: Family, axis: str, text: str) -> str:
        key = (family.name, axis, text)
        if key not in self._values:
            self._values[key] = axis_value(axis, text, self._releases[family.name, axis])
        return self._values[key]

    def _wanted(self, item: AxesSource) -> dict[str, frozenset[str]]:
        """Return the values of an exclude by axis, in normal form where they are versions."""
        return {
            axis: frozenset(value for text in values for value in self._meant(axis, text))
            for axis, values in named(item)
        }

    def _meant(self, axis: str, text: str) -> tuple[str, ...]:
        try:
            return values_of(self.lane, axis, text, self.facts)
        except ValueError:
            return (text,)

    def exclusion(self, alternatives: tuple[Combination, ...]) -> str | None:
        """Return the reason of the exclude that drops it."""
        if not self.excludes:
            return None
        tables = [combination.axes for combination in alternatives]
        for wanted, reason in self.excludes:
            if wanted and any(_matches(wanted, axes) for axes in tables):
                return reason
        return None

    def cell(self, combination: Combination) -> Cell:
        made = families_of(combination.family)[0].specify(combination, self.facts)
        return Cell(
            id=combination.id,
            lane=self.name,
            distro=combination.distro,
            rocm=combination.rocm,
            torch=combination.torch,
            python=combination.python,
            flavour=combination.flavour,
            policy=self.policy,
            ranking=self.ranking,
            peaks=self.peaks if combination.rocm else (),
            package_manager=self.facts.distributions[combination.distro].package_manager,
            **{name: getattr(made, name) for name in _SPECIFIED},
        )


def product_peaks(facts: Facts) -> tuple[ProductPeaks, ...]:
    """Return the peaks that are known, by product."""
    by_product: dict[str, list[tuple[str, float]]] = {}
    for peak in facts.peaks.values():
        by_product.setdefault(peak.product, []).append((peak.dtype, peak.tflops))
    return tuple(
        ProductPeaks(product, tuple(sorted(found))) for product, found in sorted(by_product.items())
    )


_SPECIFIED = tuple(field.name for field in fields(Specification))


def named(item: AxesSource) -> list[tuple[str, tuple[str, ...]]]:
    """Return the axes that an exclude or include names, with the values as written."""
    pairs = ((axis, getattr(item, axis)) for axis in AXES)
    return [(axis, values) for axis, values in pairs if values]


def _matches(wanted: Mapping[str, frozenset[str]], axes: Mapping[str, str | None]) -> bool:
    return all(axes[axis] in values for axis, values in wanted.items())


def _rejected(combination: Combination, verdict: Verdict) -> Excluded:
    return Excluded(combination, verdict.code, verdict.reason, verdict.source)


def _policy(source: PolicySource) -> Policy:
    written = source.waiver
    waiver = Waiver(_levels(written.levels), written.reason, written.until) if written else None
    return Policy(_levels(source.levels), source.size_budget_bytes, waiver, source.signed)


def _levels(levels: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(levels), key=LEVELS.index))


def _order(cell: Cell) -> tuple[object, ...]:
    """Sort the newest first, the CPU after all ROCm."""
    rocm = version_key(cell.rocm) if cell.rocm else (-1, 0, 0)
    newest = [-part for part in (*rocm, *version_key(cell.torch), *python_key(cell.python))]
    return newest, cell.distro, cell.flavour, cell.lane
