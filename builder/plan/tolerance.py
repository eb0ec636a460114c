"""The gate ``tolerance``: whether a build is slower than its baseline, and how sure that is.

A verdict comes from samples and never from one number. Each side is a few processes with many
steps each. What is compared is the median of the ratios of all pairs of steps: where both sides
jump between the same two speeds, pairs of a kind outvote the mixed ones, while two medians could
land in different modes. Its interval is a bootstrap over processes and, within them, steps.
"""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Code = Literal["NO_CHANGE", "IMPROVED", "REGRESSION", "INCONCLUSIVE", "TOO_FEW_SAMPLES"]
Samples = tuple[tuple[float, ...], ...]

DEFAULT_TOLERANCE = 0.07
LEAST_NUMBERS = 5
ENOUGH_PROCESSES = 5
# How much clocks and placement move a median from one start to the next, as a standard deviation.
# It widens the interval while there are too few starts on a side to show it themselves.
START_SPREAD = 0.01
_Z = 1.96
_RESAMPLES = 400
_MOST_STEPS = 24  # steps of a process that take part, evenly spread
_SEED = 20261130
_GAP = 0.04


@dataclass(frozen=True, slots=True)
class Ratio:
    """Time of the new build over that of the baseline, with a 95 % interval; over 1 is slower."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the gate says of one workload.

    Attributes:
        code: ``REGRESSION`` only where the whole interval lies beyond the tolerance,
            ``NO_CHANGE`` only where all of it lies within.
        ratio: None where there are too few samples.
        baseline_modes: the speeds (seconds) between which the baseline jumps: one or two.
        new_modes: the same of the new build.
        detail: a sentence for people.
    """

    code: Code
    ratio: Ratio | None
    baseline_modes: tuple[float, ...]
    new_modes: tuple[float, ...]
    detail: str


def judge_tolerance(baseline: Samples, new: Samples, tolerance: float) -> Judgement:
    """Compare two builds.

    Args:
        baseline: seconds of steady steps, a tuple for each process.
        new: the same of the build in question.
        tolerance: by which fraction it may be slower, 0.07 for 7 %.
    """
    modes = (two_modes(_flat(baseline)), two_modes(_flat(new)))
    counts = min(len(_flat(baseline)), len(_flat(new)))
    if counts < LEAST_NUMBERS:
        told = f"{counts} samples on a side; {LEAST_NUMBERS} or more are needed."
        return Judgement("TOO_FEW_SAMPLES", None, *modes, told)
    ratio = pair_ratio(baseline, new)
    code = _code(ratio, tolerance)
    told = f"{_WORDS[code]}: {told_ratio(ratio)}, tolerance {tolerance:.0%}"
    if len(modes[0]) > 1 or len(modes[1]) > 1:
        told += f"; two modes ({_modes_told(modes[0])} s before, {_modes_told(modes[1])} s now)"
    return Judgement(code, ratio, *modes, f"{told}.")


_WORDS = {
    "REGRESSION": "slower than the baseline",
    "IMPROVED": "faster than the baseline",
    "NO_CHANGE": "no change",
    "INCONCLUSIVE": "inconclusive, no difference is shown",
}


def _code(ratio: Ratio, tolerance: float) -> Code:
    bound = 1.0 + tolerance
    if ratio.low > bound:
        return "REGRESSION"
    if ratio.high < 1.0 / bound:
        return "IMPROVED"
    if ratio.high <= bound and ratio.low >= 1.0 / bound:
        return "NO_CHANGE"
    return "INCONCLUSIVE"


def told_ratio(ratio: Ratio) -> str:
    """Tell a ratio of times with its interval."""
    return f"time x {ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


def _modes_told(modes: tuple[float, ...]) -> str:
    return " and ".join(f"{mode:.4g}" for mode in modes)


def _flat(samples: Samples) -> list[float]:
    return [time for process in samples for time in process]


def pair_ratio(baseline: Samples, new: Samples) -> Ratio:
    """Return the median of the ratios of all pairs, with its bootstrap interval.

    The random numbers are the same at each call, so equal samples give equal verdicts.
    """
    before, after = _logs(baseline), _logs(new)
    value = _median_difference(_flat(before), _flat(after))
    dice = random.Random(_SEED)  # noqa: S311 - resampling, no secret
    found = sorted(
        _median_difference(_resample(before, dice), _resample(after, dice))
        for _ in range(_RESAMPLES)
    )
    edge = int(0.025 * _RESAMPLES)
    unseen = _Z * START_SPREAD * math.sqrt(_unseen(baseline) + _unseen(new))
    below, above = value - found[edge], found[-1 - edge] - value
    low, high = math.hypot(max(0.0, below), unseen), math.hypot(max(0.0, above), unseen)
    return Ratio(math.exp(value), math.exp(value - low), math.exp(value + high))


def _unseen(samples: Samples) -> float:
    return 0.0 if len(samples) >= ENOUGH_PROCESSES else 1.0 / len(samples)


def _logs(samples: Samples) -> Samples:
    return tuple(
        tuple(math.log(time) for time in process[:: -(-len(process) // _MOST_STEPS)])
        for process in samples
        if process
    )


def _resample(samples: Samples, dice: random.Random) -> list[float]:
    processes = dice.choices(samples, k=len(samples))
    return [time for process in processes for time in dice.choices(process, k=len(process))]


def _median_difference(before: Sequence[float], after: Sequence[float]) -> float:
    return statistics.median([new - old for new in after for old in before])


def two_modes(times: Sequence[float]) -> tuple[float, ...]:
    """Return the centres of a sample that has two modes, else its median; empty for no sample.

    Two modes: the widest gap of the ordered times leaves a fifth of them or more on each side,
    and is wider than both groups. The self-test asks the same of one process; images carry it
    without this program, so it stands there once more.
    """
    if not times:
        return ()
    ordered, count = sorted(times), len(times)
    centre = statistics.median(ordered)
    least = max(2, count // 5)
    cuts = range(least, count - least + 1)
    if not cuts:
        return (centre,)
    cut = max(cuts, key=lambda place: ordered[place] - ordered[place - 1])
    low, high = ordered[:cut], ordered[cut:]
    gap = high[0] - low[-1]
    if gap < _GAP * centre or gap < max(low[-1] - low[0], high[-1] - high[0]):
        return (centre,)
    return (statistics.median(low), statistics.median(high))
