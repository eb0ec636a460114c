"""Where the steady state of a row of times begins, and how sure its median is. Pure functions.

A first step can be slow in stages: kernels are searched and compiled, then loaded in each new
process, and only then it is steady. A plateau of slow steps is no steady state when faster ones
follow, so the end of the row is what everything is compared with.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

ENOUGH = 3  # fewer steps after the warm-up say nothing about being steady
_ABOVE = 0.10  # a step is slow when it takes this much longer than the end of the row ...
_SPREADS = 4.0  # ... and is this many (robust) standard deviations above it
_MAD_TO_SIGMA = 1.4826
_STAGE = 1.5  # neighbours in the warm-up that differ by this factor are two stages
_GAP = 0.04  # two modes lie at least this far apart, relative to the median
CONFIDENCE_Z = 1.96


@dataclass(frozen=True)
class Interval:
    """The median of a sample with the bounds between which it lies with 95 % confidence."""

    median: float
    low: float
    high: float

    @property
    def fraction(self) -> float:
        """Return the width of the interval relative to the median."""
        return (self.high - self.low) / self.median if self.median else math.inf


@dataclass(frozen=True)
class Steady:
    """A row of times, divided.

    Attributes:
        dropped: how many steps at the start belong to the warm-up.
        stages_s: the warm-up's stages, the median of each; empty where there is none.
        interval: of the median of the rest.
        modes_s: one or two: the centres between which the steady steps jump.
        drift: median of the last third of the steady steps over that of the first third.
    """

    dropped: int
    stages_s: tuple[float, ...]
    interval: Interval
    modes_s: tuple[float, ...]
    drift: float

    def to_json(self) -> Mapping[str, Any]:
        """Return what the document keeps."""
        return {
            "warmup_steps": self.dropped,
            "warmup_stages_s": list(self.stages_s),
            "median_s": self.interval.median,
            "interval_s": [self.interval.low, self.interval.high],
            "interval_fraction": self.interval.fraction,
            "modes_s": list(self.modes_s),
            "drift": self.drift,
        }


def median_interval(times: Sequence[float]) -> Interval:
    """Return the median and its 95 % interval from order statistics: no shape is assumed.

    Raises:
        ValueError: there are no times.
    """
    if not times:
        raise ValueError("there are no times")
    ordered, count = sorted(times), len(times)
    reach = CONFIDENCE_Z * math.sqrt(count) / 2
    low = max(0, math.floor((count - 1) / 2 - reach))
    high = min(count - 1, math.ceil((count - 1) / 2 + reach))
    return Interval(statistics.median(ordered), ordered[low], ordered[high])


def steady_start(times: Sequence[float]) -> int | None:
    """Return how many steps at the start are warm-up, or None where nothing is steady yet.

    Single slow steps later on are part of the steady state: they happen to users, too.
    """
    if len(times) < ENOUGH:
        return None
    end = times[-max(ENOUGH, len(times) // 2) :]
    usual = statistics.median(end)
    spread = _MAD_TO_SIGMA * statistics.median(abs(time - usual) for time in end)
    limit = usual + max(_ABOVE * usual, min(_SPREADS * spread, usual / 2))
    for number, time in enumerate(times):
        if time <= limit and statistics.median(times[number : number + ENOUGH]) <= limit:
            return number if len(times) - number >= ENOUGH else None
    return None


def analyse(times: Sequence[float]) -> Steady | None:
    """Divide a row of times into warm-up and steady state; None while it is not steady."""
    start = steady_start(times)
    if start is None:
        return None
    rest = times[start:]
    third = max(1, len(rest) // 3)
    return Steady(
        dropped=start,
        stages_s=_stages(times[:start]),
        interval=median_interval(rest),
        modes_s=modes(rest),
        drift=statistics.median(rest[-third:]) / statistics.median(rest[:third]),
    )


def _stages(times: Sequence[float]) -> tuple[float, ...]:
    groups: list[list[float]] = []
    for time in times:
        if groups and max(time, groups[-1][-1]) < _STAGE * min(time, groups[-1][-1]):
            groups[-1].append(time)
        else:
            groups.append([time])
    return tuple(statistics.median(group) for group in groups)


def modes(times: Sequence[float]) -> tuple[float, ...]:
    """Return the centres of a sample that has two modes, else its median alone.

    Two modes: the widest gap of the ordered times parts them into two groups, each with a fifth
    of them or more, and is wider than either group.
    """
    ordered, count = sorted(times), len(times)
    centre = statistics.median(ordered)
    least = max(2, count // 5)
    cuts = range(least, count - least + 1)
    if not cuts:
        return (centre,)
    cut = max(cuts, key=lambda place: ordered[place] - ordered[place - 1])
    low, high = ordered[:cut], ordered[cut:]
    gap = high[0] - low[-1]
    inner = max(_middle_width(low), _middle_width(high))
    if gap < _GAP * centre or gap < inner:
        return (centre,)
    return (statistics.median(low), statistics.median(high))


def _middle_width(ordered: Sequence[float]) -> float:
    edge = len(ordered) // 10
    return ordered[len(ordered) - 1 - edge] - ordered[edge]
