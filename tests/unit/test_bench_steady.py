from __future__ import annotations

import math
import random
import statistics
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocm_torch_selftest.bench.clock import CpuClock
from rocm_torch_selftest.bench.measure import KEPT_SAMPLES, Measured, Plan, measure
from rocm_torch_selftest.bench.steady import analyse, median_interval, modes, steady_start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TIMES = st.lists(st.floats(1e-5, 100.0), min_size=1, max_size=60)


class Machine:
    """A device whose steps take the times that it was given, the last one for ever after."""

    def __init__(self, *times: float) -> None:
        self._times = list(times)
        self.now = 0.0
        self.steps = 0

    def step(self) -> None:
        self.now += self._times[min(self.steps, len(self._times) - 1)]
        self.steps += 1

    def start(self) -> None:
        pass

    def time(self, step: Callable[[], None]) -> float:
        before = self.now
        step()
        return self.now - before

    def finish(self) -> list[float]:
        return []


def measured(*times: float, plan: Plan | None = None) -> tuple[Machine, Measured]:
    machine = Machine(*times)
    chosen = plan or Plan(budget_s=1000.0, limit_s=10_000.0)
    found = measure(machine.step, lambda: None, machine, chosen, lambda: machine.now)
    return machine, found


def dice_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - samples, no secrets


def around(centre: float, count: int, noise: float = 0.01, seed: int = 1) -> list[float]:
    dice = dice_of(seed)
    return [centre * (1 + noise * dice.uniform(-1, 1)) for _ in range(count)]


def test_a_long_plateau_of_tuning_is_no_steady_state_once_faster_steps_follow() -> None:
    times = [*around(5.0, 12), *around(2.0, 9), *around(0.1, 40)]
    found = analyse(times)
    assert found is not None
    assert found.dropped == 21
    assert [round(stage) for stage in found.stages_s] == [5, 2]
    assert found.interval.median == pytest.approx(0.1, rel=0.01)


def test_a_single_slow_step_later_on_belongs_to_the_steady_state() -> None:
    times = [3.0, *around(0.1, 20), 0.5, *around(0.1, 20)]
    assert steady_start(times) == 1


def test_too_few_steps_after_the_slow_ones_are_not_steady() -> None:
    assert analyse([24.4, 3.0]) is None
    assert analyse([24.4, 3.0, 0.9]) is None


@given(times=TIMES)
def test_the_interval_holds_the_median_and_lies_within_the_sample(times: list[float]) -> None:
    found = median_interval(times)
    assert min(times) <= found.low <= found.median <= found.high <= max(times)


@given(times=TIMES, factor=st.floats(0.01, 100.0))
def test_the_unit_of_time_changes_nothing(times: list[float], factor: float) -> None:
    found, scaled = analyse(times), analyse([time * factor for time in times])
    assert (found is None) == (scaled is None)
    if found is not None and scaled is not None and found.dropped == scaled.dropped:
        assert math.isclose(found.interval.median * factor, scaled.interval.median, rel_tol=1e-9)


def test_the_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    dice = dice_of(7)
    hits = 0
    for _ in range(300):
        found = median_interval([dice.lognormvariate(0.0, 0.1) for _ in range(35)])
        hits += found.low <= 1.0 <= found.high
    assert hits / 300 >= 0.93


def test_an_interval_of_no_times_is_refused() -> None:
    with pytest.raises(ValueError, match="no times"):
        median_interval([])


@pytest.mark.parametrize(
    ("times", "count"),
    [
        ([22.5, 25.5, 22.6, 25.4, 22.5], 2),
        (around(10.0, 50), 1),
        ([*around(10.0, 25), *around(12.0, 25)], 2),
        ([*around(10.0, 49), 20.0], 1),
        ([1.0], 1),
    ],
)
def test_two_modes_are_told_from_noise_and_from_single_outliers(
    times: Sequence[float], count: int
) -> None:
    assert len(modes(times)) == count


def test_measuring_goes_on_past_a_plateau_until_there_are_thirty_fast_steps() -> None:
    _, found = measured(60.0, *around(5.0, 20), *around(0.1, 400))
    assert found.precise
    assert found.steady is not None
    assert found.steady.dropped == 21
    assert len(found.times_s) - 21 >= 30
    assert found.to_steady_s == pytest.approx(160, rel=0.05)


def test_a_device_that_is_never_precise_is_left_when_its_time_is_up_and_that_is_said() -> None:
    dice = dice_of(3)
    wild = [dice.uniform(0.5, 1.5) for _ in range(3000)]
    machine, found = measured(*wild, plan=Plan(budget_s=60.0, limit_s=500.0))
    assert not found.precise
    assert machine.now < 120


def test_steps_that_are_slow_for_ever_end_at_the_limit() -> None:
    machine, found = measured(400.0, plan=Plan(budget_s=10.0, limit_s=1000.0))
    assert not found.precise
    assert machine.now <= 1600


def test_clocks_get_time_to_settle_before_precision_counts() -> None:
    machine, _ = measured(0.01, plan=Plan(budget_s=9.0, limit_s=100.0, least_s=2.0))
    assert machine.now >= 2.0


def test_of_many_steps_evenly_spread_ones_are_kept() -> None:
    _, found = measured(0.01, plan=Plan(budget_s=90.0, limit_s=100.0, least_s=20.0))
    kept = found.to_json()["samples_s"]
    assert 0 < len(kept) <= KEPT_SAMPLES
    assert statistics.median(kept) == pytest.approx(0.01)


def test_a_clock_that_slows_on_purpose_waits_until_the_step_took_so_much_longer() -> None:
    machine = Machine(1.0)

    def now() -> float:
        machine.now += 0.001  # looking takes a moment, so that waiting ends
        return machine.now

    assert CpuClock(1.0, now).time(machine.step) == pytest.approx(1.0, abs=0.01)
    assert CpuClock(1.15, now).time(machine.step) == pytest.approx(1.15, abs=0.01)
