from __future__ import annotations

import copy
import json
import random
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocm_torch_selftest.bench.workloads import ALL

from builder.cli.main import run
from builder.errors import CouldNotError
from builder.plan.tolerance import DEFAULT_TOLERANCE, judge_tolerance, pair_ratio
from builder.report.bench_chart import chart
from builder.report.bench_compare import compare
from builder.report.bench_results import parse_run, read_runs
from builder.report.bench_table import report_document, report_lines

if TYPE_CHECKING:
    from pathlib import Path

DEVICE = {
    "name": "AMD Instinct MI300X",
    "gfx": "gfx942",
    "pci_id": "1002:74a1",
    "compute_units": 304,
    "memory_bytes": 206_141_652_992,
}
STATE = {"power_cap_w": 750.0, "partition_mode": "SPX/NPS1"}


def samples(centre: float, seed: int, processes: int = 2, count: int = 40) -> list[dict[str, Any]]:
    """Steps with a per cent of noise, and half a per cent between processes."""
    dice = random.Random(seed)  # noqa: S311 - samples, no secrets
    found = []
    for _ in range(processes):
        own = centre * (1 + 0.005 * dice.gauss(0, 1))
        found.append({"samples_s": [own * (1 + 0.01 * dice.gauss(0, 1)) for _ in range(count)]})
    return found


def model_check(workload: str, name: str, seconds: float, seed: int) -> dict[str, Any]:
    data = {
        "workload": workload,
        "nominal_workload": workload,
        "throughput": 1 / seconds,
        "unit": "images/s",
        "median_s": seconds,
        "interval_fraction": 0.01,
        "processes": samples(seconds, seed),
        "settings": {"MIOPEN_FIND_MODE": None},
        "memory": {"allocated_peak": 2**30, "reserved_peak": 2**31, "device_used": 2**32},
        "device": STATE,
        "slowdown": 1.0,
    }
    return {"id": name, "level": "bench", "status": "pass", "detail": "fine", "data": data}


def document(seed: int = 1, factor: float = 1.0) -> dict[str, Any]:
    """Return a document as the self-test writes it, for a device that nobody measured."""
    checks = [
        model_check(workload.id, workload.name, 0.01 * (place + 1) * factor, seed + place)
        for place, workload in enumerate(ALL)
    ]
    row = {
        "dtype": "bf16",
        "size": 8192,
        "tflops": 600 / factor,
        "median_s": 0.0018 * factor,
        "samples_s": samples(0.0018 * factor, seed)[0]["samples_s"],
    }
    checks.append({"id": "gemm", "status": "pass", "detail": "fine", "data": {"rows": [row]}})
    stages = [{"stage": "import", "seconds": 1.5}]
    checks.append({"id": "startup", "status": "pass", "detail": "fine", "data": {"rows": stages}})
    return {
        "schema": "rocm-torch/selftest/v1",
        "level": "bench",
        "cell": "rocm6.2.4-torch2.7.1-py311-ubuntu22.04",
        "summary": {"verdict": "pass"},
        "environment": {"torch": "2.7.1+rocm6.2.4", "devices": [DEVICE]},
        "checks": checks,
    }


def codes(old: dict[str, Any], new: dict[str, Any]) -> dict[str, str]:
    found = compare([parse_run(old, "a")], [parse_run(new, "b")], DEFAULT_TOLERANCE)
    return {pair.workload: pair.code for pair in found.pairs}


@pytest.mark.parametrize("seed", range(10, 100, 20))
def test_two_runs_of_one_build_are_no_change_for_every_model(seed: int) -> None:
    assert set(codes(document(seed), document(seed + 7)).values()) == {"NO_CHANGE"}


@pytest.mark.parametrize("seed", range(10, 100, 20))
def test_fifteen_per_cent_slower_is_a_regression_for_every_model(seed: int) -> None:
    found = codes(document(seed), document(seed + 7, factor=1.15))
    assert len(found) == len(ALL) + 1
    assert set(found.values()) == {"REGRESSION"}
    assert set(codes(document(seed, factor=1.15), document(seed + 7)).values()) == {"IMPROVED"}


def test_equal_samples_give_equal_verdicts() -> None:
    old, new = parse_run(document(1), "a"), parse_run(document(2), "b")
    first, second = (compare([old], [new], 0.07).to_json() for _ in range(2))
    assert first == second


@settings(max_examples=20)
@given(
    times=st.lists(st.floats(0.001, 10.0), min_size=5, max_size=12),
    factor=st.floats(0.5, 2.0),
)
def test_the_ratio_of_a_scaled_sample_is_the_scale(times: list[float], factor: float) -> None:
    before = (tuple(times),)
    found = pair_ratio(before, (tuple(time * factor for time in times),))
    assert found.low <= found.value <= found.high
    assert found.value == pytest.approx(factor, rel=1e-9) or len(set(times)) > 1


def test_few_starts_leave_more_unsaid_than_many() -> None:
    def width(processes: int) -> float:
        side = ((1.0,) * 10,) * processes
        found = pair_ratio(side, side)
        return found.high - found.low

    assert width(1) > width(2) > width(4) > width(5) == 0


def test_a_slow_down_within_the_tolerance_is_no_change_and_around_it_inconclusive() -> None:
    side = ((1.0,) * 10,) * 2
    assert judge_tolerance(side, ((1.04,) * 10,) * 2, 0.07).code == "NO_CHANGE"
    assert judge_tolerance(side, ((1.08,) * 10,) * 2, 0.07).code == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("pci_id", "1002:74a2", "pci id"),
        ("compute_units", 152, "compute units"),
        ("memory_bytes", 2**36, "memory gib"),
    ],
)
def test_another_product_is_refused(key: str, value: object, word: str) -> None:
    new = document(2)
    new["environment"]["devices"] = [{**DEVICE, key: value}]
    found = compare([parse_run(document(1), "a")], [parse_run(new, "b")], 0.07)
    assert (found.verdict, found.pairs) == ("incomplete", ())
    assert word in found.refusals[0]


@pytest.mark.parametrize(("key", "value"), [("power_cap_w", 500.0), ("partition_mode", "CPX/NPS4")])
def test_another_power_cap_or_partition_is_refused(key: str, value: object) -> None:
    new = document(2)
    for check in new["checks"]:
        if "device" in check["data"]:
            check["data"]["device"] = {**STATE, key: value}
    found = compare([parse_run(document(1), "a")], [parse_run(new, "b")], 0.07)
    assert found.verdict == "incomplete"
    assert str(value) in found.refusals[0]


def test_another_image_is_refused_unless_that_is_wanted() -> None:
    new = {**document(2), "cell": "rocm7.2.0-torch2.9.1-py312-ubuntu24.04"}
    runs = [parse_run(document(1), "a")], [parse_run(new, "b")]
    assert "image lineage" in compare(*runs, 0.07).refusals[0]
    assert compare(*runs, 0.07, across_images=True).verdict == "pass"


def test_another_batch_or_a_failed_result_is_not_compared() -> None:
    new = document(2)
    halved = new["checks"][0]["data"]
    halved["workload"] = halved["workload"].replace("b256", "b128")
    new["checks"][1].update(status="fail", detail="No effect. [CACHE_NOT_EFFECTIVE]")
    new["checks"][2]["data"] = {}
    found = compare([parse_run(document(1), "a")], [parse_run(new, "b")], 0.07)
    problems = [pair.problem for pair in found.pairs if pair.code == "NOT_COMPARABLE"]
    assert found.verdict == "incomplete"
    assert "b128" in str(problems[0])
    assert "CACHE_NOT_EFFECTIVE" in str(problems[1])
    assert "no result" in str(problems[2])


def test_settings_that_differ_are_noted() -> None:
    new = document(2)
    new["checks"][0]["data"]["settings"] = {"MIOPEN_FIND_MODE": "FAST"}
    found = compare([parse_run(document(1), "a")], [parse_run(new, "b")], 0.07)
    assert found.pairs[0].notes == ("MIOPEN_FIND_MODE: None and FAST",)


def write(path: Path, content: dict[str, Any]) -> str:
    path.write_text(json.dumps(content), "utf-8")
    return str(path)


def test_the_exit_status_says_pass_regression_or_incomplete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write(tmp_path / "old.json", document(1))
    same = write(tmp_path / "same.json", document(2))
    slow = write(tmp_path / "slow.json", document(3, factor=1.15))
    part = copy.deepcopy(document(4))
    del part["checks"][0]
    less = write(tmp_path / "less.json", part)
    assert run(["bench", "compare", old, same]) == 0
    assert run(["bench", "compare", old, slow]) == 2
    assert run(["bench", "compare", old, less]) == 3
    assert run(["bench", "compare", old, slow, "--tolerance", "0.5"]) == 0
    capsys.readouterr()
    assert run(["bench", "compare", old, slow, "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["verdict"]) == ("rocm-torch/bench-compare/v1", "regression")


def test_a_folder_is_several_runs_of_one_build(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.json", document(number))
    wrapped = {"schema": "rocm-torch/test-report/v1", "selftest": document(9)}
    write(tmp_path / "wrapped.json", wrapped)
    runs = read_runs(tmp_path)
    assert len(runs) == 4
    assert compare(runs[:2], runs[2:], 0.07).verdict == "pass"


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"schema": "rocm-torch/matrix/v1"},
        {**document(), "level": "smoke"},
        {**document(), "checks": [{"id": "resnet50"}]},
        {**document(), "environment": None},
    ],
)
def test_what_is_no_result_is_refused_without_a_traceback(content: Any) -> None:
    with pytest.raises(CouldNotError, match="no result of the level bench"):
        parse_run(content, "x.json")


def test_the_report_has_rates_memory_prices_and_the_articles_figures_marked() -> None:
    runs = [parse_run(document(1), "one.json"), parse_run(document(2), "<two>.json")]
    text = "\n".join(report_lines(runs, 2.0))
    assert "PER PRICE" in text
    assert "MEMORY, GiB" in text
    assert "750 W cap" in text
    assert text.count("unverified, unit unknown") == len(ALL)
    found = report_document(runs, 2.0)["runs"][0]["results"][0]
    assert found["throughput_per_price"] == pytest.approx(found["throughput"] / 2)
    assert "PER PRICE" not in "\n".join(report_lines(runs, None))


def test_a_run_that_was_slowed_on_purpose_says_so() -> None:
    slowed = document(1)
    slowed["checks"][0]["data"]["slowdown"] = 1.15
    assert "slowed on purpose" in "\n".join(report_lines([parse_run(slowed, "x")], None))


def test_the_chart_is_well_formed_and_has_a_bar_for_each_result() -> None:
    runs = [parse_run(document(1), "one.json"), parse_run(document(2), "<two>&.json")]
    root = ET.fromstring(chart(runs, price=3.0))  # noqa: S314 - our own text
    bars = [item for item in root if item.tag.endswith("rect")]
    assert len(bars) == 1 + 2 + 2 * (len(ALL) + 1)
    assert any("<two>&.json" in (item.text or "") for item in root)


def test_the_report_writes_its_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = write(tmp_path / "a.json", document(1))
    assert run(["bench", "report", result, "--svg", str(tmp_path / "a.svg"), "--json"]) == 0
    assert (tmp_path / "a.svg").read_text("utf-8").startswith("<svg")
    assert json.loads(capsys.readouterr().out)["schema"] == "rocm-torch/bench-report/v1"
    assert run(["bench", "report", result, "--svg", str(tmp_path / "no/a.svg")]) == 1
