"""Two sets of bench results side by side: pairs that may be compared, and what each shows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from builder.plan.tolerance import Judgement, judge_tolerance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.report.bench_results import BenchRun, Measurement, Product

SCHEMA = "rocm-torch/bench-compare/v1"
Verdict = Literal["pass", "regression", "incomplete"]
_SETTINGS = ("cudnn.benchmark", "float32_matmul_precision", "MIOPEN_FIND_MODE", "fused_attention")


@dataclass(frozen=True, slots=True)
class Pair:
    """One workload of both sides.

    Attributes:
        workload: its id; the baseline's where they differ.
        judgement: None where the two cannot be compared.
        problem: why they cannot.
        notes: what else differs, and may explain a difference.
    """

    workload: str
    judgement: Judgement | None
    problem: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """Return the judgement's code, or ``NOT_COMPARABLE``."""
        return self.judgement.code if self.judgement else "NOT_COMPARABLE"


@dataclass(frozen=True, slots=True)
class Comparison:
    """All pairs, and what keeps the two sides from being compared at all."""

    refusals: tuple[str, ...]
    pairs: tuple[Pair, ...]
    tolerance: float

    @property
    def verdict(self) -> Verdict:
        """A regression weighs more than what is missing; inconclusive pairs pass."""
        codes = {pair.code for pair in self.pairs}
        if "REGRESSION" in codes:
            return "regression"
        if self.refusals or not codes or codes & {"NOT_COMPARABLE", "TOO_FEW_SAMPLES"}:
            return "incomplete"
        return "pass"

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "tolerance": self.tolerance,
            "refusals": list(self.refusals),
            "pairs": [_pair_json(pair) for pair in self.pairs],
        }


def _pair_json(pair: Pair) -> dict[str, Any]:
    found = pair.judgement
    ratio = found.ratio if found else None
    return {
        "workload": pair.workload,
        "code": pair.code,
        "time_ratio": ratio.value if ratio else None,
        "interval": [ratio.low, ratio.high] if ratio else None,
        "modes_s": [list(found.baseline_modes), list(found.new_modes)] if found else None,
        "detail": found.detail if found else pair.problem,
        "notes": list(pair.notes),
    }


def compare(
    baseline: Sequence[BenchRun],
    new: Sequence[BenchRun],
    tolerance: float,
    *,
    across_images: bool = False,
) -> Comparison:
    """Compare two builds by the runs of each.

    Args:
        baseline: runs of the build that is the measure; their processes are taken together.
        new: runs of the build in question.
        tolerance: by which fraction it may be slower.
        across_images: compare images of different lineages, too.
    """
    refusals = [*_within(baseline), *_within(new)]
    refusals += _differences(baseline[0], new[0], across_images=across_images)
    if refusals:
        return Comparison(tuple(dict.fromkeys(refusals)), (), tolerance)
    olds, news = _by_name(baseline), _by_name(new)
    names = list(dict.fromkeys([*olds, *news]))
    pairs = tuple(_pair(name, olds.get(name, []), news.get(name, []), tolerance) for name in names)
    return Comparison((), (*pairs, *_absent(baseline, new, names)), tolerance)


def _within(runs: Sequence[BenchRun]) -> list[str]:
    """Return why the runs of one side are not runs of one build."""
    first = runs[0]
    return [text for run in runs[1:] for text in _differences(first, run, across_images=False)]


def _differences(one: BenchRun, other: BenchRun, *, across_images: bool) -> list[str]:
    found = product_differences(one.product, other.product)
    if one.lineage != other.lineage and not across_images:
        found.append(f"image lineage: {one.lineage} and {other.lineage}")
    return found


def product_differences(one: Product, other: Product) -> list[str]:
    """Return in what two devices differ; what is known of one only counts as a difference."""
    return [
        f"{field.name.replace('_', ' ')}: {getattr(one, field.name)} "
        f"and {getattr(other, field.name)}"
        for field in fields(one)
        if getattr(one, field.name) != getattr(other, field.name)
    ]


def nominal_name(found: Measurement) -> str:
    """Return the name under which two sides meet, whatever batch did fit."""
    return str(found.data.get("nominal_workload", found.workload))


def _by_name(runs: Sequence[BenchRun]) -> dict[str, list[Measurement]]:
    found: dict[str, list[Measurement]] = {}
    for run in runs:
        for one in run.measurements:
            found.setdefault(nominal_name(one), []).append(one)
    return found


def _pair(
    name: str, olds: Sequence[Measurement], news: Sequence[Measurement], tolerance: float
) -> Pair:
    if not olds or not news:
        side = "baseline" if not olds else "new build"
        return Pair(name, None, f"The {side} has no result.")
    for one in (*olds, *news):
        if one.problem is not None:
            return Pair(name, None, one.problem)
    ids = sorted({one.workload for one in (*olds, *news)})
    if len(ids) > 1:
        return Pair(name, None, f"Different workloads were run: {' and '.join(ids)}.")
    before, after = (
        tuple(process for one in side for process in one.samples) for side in (olds, news)
    )
    return Pair(name, judge_tolerance(before, after, tolerance), None, _notes(olds[0], news[0]))


def _notes(old: Measurement, new: Measurement) -> tuple[str, ...]:
    before, after = (one.data.get("settings") or {} for one in (old, new))
    return tuple(
        f"{name}: {before.get(name)} and {after.get(name)}"
        for name in _SETTINGS
        if before.get(name) != after.get(name)
    )


def _absent(
    baseline: Sequence[BenchRun], new: Sequence[BenchRun], names: Sequence[str]
) -> tuple[Pair, ...]:
    """Return checks that gave no result on one side; those without any on both are left out."""
    found = {}
    for run in (*baseline, *new):
        for check, why in run.missing:
            if not any(name.startswith(check) for name in names):
                found[check] = Pair(check, None, why)
    return tuple(found.values())
