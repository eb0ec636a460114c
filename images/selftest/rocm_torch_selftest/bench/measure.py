"""The loop that measures: until it is steady and the median is known well enough."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Callable, Mapping

from rocm_torch_selftest.bench.steady import Steady, analyse

MIN_STEPS = 30
_LOOK_EVERY = 5
_LOOK_GROWTH = 1.1  # looking costs host time, which the step may need
MAX_STEPS = 5_000
KEPT_SAMPLES = 400


@dataclass(frozen=True)
class Plan:
    """How long to measure.

    Attributes:
        budget_s: seconds after which to stop once there are enough steady steps.
        limit_s: seconds after which to stop in any case; searching for kernels can take minutes.
        min_steps: steady steps that are measured at least.
        least_s: seconds to measure at least: clocks need time to settle under load.
        max_fraction: the width of the median's interval, relative to it, that is aimed at.
    """

    budget_s: float
    limit_s: float
    min_steps: int = MIN_STEPS
    max_fraction: float = 0.02
    least_s: float = 0.0


@dataclass(frozen=True)
class Measured:
    """All steps that were timed, the first one included.

    Attributes:
        times_s: seconds of each step in order.
        steady: their division, None where they did not become steady.
        to_steady_s: seconds until the steady state began.
        precise: enough steady steps, and an interval that is narrow enough.
    """

    times_s: tuple[float, ...]
    steady: Steady | None
    to_steady_s: float | None
    precise: bool

    def to_json(self) -> Mapping[str, Any]:
        """Return what the document keeps; of many steady steps, evenly spread ones."""
        steady = self.steady
        kept = self.times_s[steady.dropped :] if steady else self.times_s
        skip = -(-len(kept) // KEPT_SAMPLES)
        return {
            "first_step_s": self.times_s[0],
            "time_to_steady_s": self.to_steady_s,
            "precise": self.precise,
            "steps": len(kept),
            "samples_s": [float(f"{one:.6g}") for one in kept[:: max(1, skip)]],
            **(steady.to_json() if steady else {}),
        }


def measure(
    step: Callable[[], Any],
    wait: Callable[[], Any],
    clock: Any,
    plan: Plan,
    now: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Run ``step`` again and again and time it.

    Args:
        step: what is measured.
        wait: returns when the device has done all of its work.
        clock: gives the time of each step, see ``clock_for``.
        plan: when to stop.
        now: seconds of a clock that only goes forward.
    """
    started = now()
    step()
    wait()
    times = [now() - started]
    clock.start()
    look = _LOOK_EVERY
    while now() - started < plan.limit_s and len(times) < MAX_STEPS:
        one = clock.time(step)
        if one is not None:
            times.append(one)
        if len(times) >= look:
            if _enough(times, plan, now() - started):
                break
            look = max(look + _LOOK_EVERY, int(look * _LOOK_GROWTH))
    times += clock.finish()
    steady = analyse(times)
    to_steady = sum(times[: steady.dropped]) if steady else None
    return Measured(tuple(times), steady, to_steady, _precise(steady, len(times), plan))


def _precise(steady: Steady | None, count: int, plan: Plan) -> bool:
    return (
        steady is not None
        and count - steady.dropped >= plan.min_steps
        and steady.interval.fraction <= plan.max_fraction
    )


def _enough(times: list[float], plan: Plan, passed_s: float) -> bool:
    if passed_s < plan.least_s:
        return False
    steady = analyse(times)
    if _precise(steady, len(times), plan):
        return True
    many = steady is not None and len(times) - steady.dropped >= plan.min_steps
    return many and passed_s > plan.budget_s
