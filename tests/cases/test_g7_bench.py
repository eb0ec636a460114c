"""Field cases of the group G7 that are about benchmarks: each is the kind, not the one input."""

from __future__ import annotations

import pytest
from rocm_torch_selftest.bench import caches
from rocm_torch_selftest.bench.attempts import FIRST_LIMIT_S
from rocm_torch_selftest.bench.checks import judge_model
from rocm_torch_selftest.bench.steady import analyse
from rocm_torch_selftest.bench.workloads import BY_NAME

from builder.plan.tolerance import DEFAULT_TOLERANCE, Samples, judge_tolerance


def processes(*medians: float) -> Samples:
    return tuple((median,) for median in medians)


@pytest.mark.parametrize(
    ("times", "dropped", "stages"),
    [
        pytest.param([24.4, 3.0, 0.91, 0.9, 0.92], 2, 2, id="g7-05-first-run-tuning"),
        pytest.param([3.0, 0.91, 0.9, 0.92], 1, 1, id="g7-05-second-process"),
        pytest.param([250.0, 250.0, 250.0, 0.9, 0.9, 0.9], 3, 1, id="g7-05-a-search-a-shape"),
        pytest.param([0.91, 0.9, 0.92], 0, 0, id="g7-05-warm"),
    ],
)
def test_the_stages_of_a_first_run_are_warm_up(
    times: list[float], dropped: int, stages: int
) -> None:
    found = analyse(times)
    assert found is not None
    assert found.dropped == dropped
    assert len(found.stages_s) == stages
    assert round(found.interval.median, 2) in (0.9, 0.91)


def test_g7_05_the_first_step_may_take_minutes_without_being_a_hang() -> None:
    assert FIRST_LIMIT_S >= 600


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            processes(22.5, 25.5, 22.6, 25.4, 22.5),
            processes(25.4, 22.6, 25.5, 25.6, 22.4),
            id="g7-11-bimodal-baseline",
        ),
        pytest.param(
            processes(22.5, 25.5, 22.6, 25.4, 22.5),
            processes(25.4, 25.5, 25.6, 25.4, 25.5),
            id="g7-11-only-the-slow-mode-seen",
        ),
        pytest.param(
            processes(22.4, 25.5, 22.6, 25.4, 22.5, 25.3),
            processes(25.4, 22.6, 25.5, 22.3, 25.6, 22.4),
            id="g7-11-even",
        ),
    ],
)
def test_two_modes_raise_no_alarm_and_are_told(before: Samples, after: Samples) -> None:
    found = judge_tolerance(before, after, DEFAULT_TOLERANCE)
    assert found.code in ("INCONCLUSIVE", "NO_CHANGE")
    assert "regression" not in found.detail
    assert "two modes" in found.detail
    assert len(found.baseline_modes) == 2


def test_g7_11_bimodal_baseline_is_inconclusive() -> None:
    before, after = (22.5, 25.5, 22.6, 25.4, 22.5), (25.4, 22.6, 25.5, 25.6, 22.4)
    found = judge_tolerance(processes(*before), processes(*after), DEFAULT_TOLERANCE)
    assert found.code == "INCONCLUSIVE"


def test_g7_11_one_number_a_side_is_never_a_verdict() -> None:
    found = judge_tolerance(processes(22.5), processes(25.5), DEFAULT_TOLERANCE)
    assert (found.code, found.ratio) == ("TOO_FEW_SAMPLES", None)


def test_g7_11_both_modes_fifteen_per_cent_slower_are_a_regression() -> None:
    before = (22.5, 25.5) * 20
    after = tuple(1.15 * time for time in before)
    found = judge_tolerance((before, before), (after, after), DEFAULT_TOLERANCE)
    assert found.code == "REGRESSION"


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(((0, 0), (0, 0), (0, 0)), id="g7-16-cache-never-hits"),
        pytest.param(((0, 40), (40, 80), (80, 120)), id="g7-16-written-and-never-found"),
        pytest.param(((0, 40), (40, 40), (40, 40)), id="g7-16-written-once"),
    ],
)
def test_a_cache_that_never_hits_is_named_and_torch_is_not_blamed(
    files: tuple[tuple[int, int], ...],
) -> None:
    found = caches.judge((385.1, 385.1, 385.1), files, 6.0)
    assert found.code == "CACHE_NOT_EFFECTIVE"
    assert "regression" not in found.detail


@pytest.mark.parametrize(
    ("seconds", "files", "code"),
    [
        ((385.0, 6.1), ((0, 40), (40, 40)), "CACHE_EFFECTIVE"),
        ((6.2, 6.1), ((40, 40), (40, 40)), "CACHE_NOT_NEEDED"),
        ((385.0, 60.0), ((0, 40), (40, 40)), "CACHE_EFFECTIVE"),
        ((385.0, 300.0), ((0, 40), (40, 80)), "CACHE_NOT_EFFECTIVE"),
        ((385.0,), ((0, 40),), "CACHE_UNKNOWN"),
    ],
)
def test_a_cache_that_works_or_is_not_needed_is_no_fault(
    seconds: tuple[float, ...], files: tuple[tuple[int, int], ...], code: str
) -> None:
    assert caches.judge(seconds, files, 6.0).code == code


def test_g7_16_the_result_of_a_dead_cache_is_not_valid_and_not_slow() -> None:
    dead = caches.judge((385.1, 385.1), ((0, 0), (0, 0)), 6.0)
    nominal = BY_NAME["resnet50"]
    data = {"cache": {"code": dead.code, "detail": dead.detail}, "median_s": 385.1}
    outcome = judge_model(data, nominal)
    assert outcome.status == "fail"
    assert outcome.data["valid"] is False
    assert "CACHE_NOT_EFFECTIVE" in outcome.detail
    assert "regression" not in outcome.detail
