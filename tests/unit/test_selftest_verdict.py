from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocm_torch_selftest import table
from rocm_torch_selftest.outcome import STATUSES, Result
from rocm_torch_selftest.verdict import EXIT_CODES, summary, verdict

from builder.pipeline.selftest import LEVEL_SECONDS

PACKAGE = Path(table.__file__).parent
BACKENDS = [*table.EVERY_BACKEND, None]


def result(check_id: str, status: str) -> Result:
    return Result(check_id, "smoke", status, 0.1, "Something was found.")


def results_for(level: str) -> st.SearchStrategy[list[Result]]:
    ids = [check.id for check in table.checks_of(level)]
    return st.dictionaries(st.sampled_from(ids), st.sampled_from(STATUSES)).map(
        lambda chosen: [result(name, status) for name, status in chosen.items()]
    )


@pytest.mark.parametrize("level", table.LEVELS)
@given(data=st.data(), backend=st.sampled_from(BACKENDS))
def test_a_pass_means_that_nothing_required_is_skipped_missing_or_failed(
    level: str, data: st.DataObject, backend: str | None
) -> None:
    results = data.draw(results_for(level))
    if verdict(results, table.required_ids(level, backend)) != "pass":
        return
    statuses = {entry.id: entry.status for entry in results}
    assert "pass" in statuses.values()
    assert not set(statuses.values()) & {"fail", "error"}
    for name in table.required_ids(level, backend):
        assert statuses.get(name) in ("pass", "not_applicable")


@given(data=st.data(), level=st.sampled_from(table.LEVELS), backend=st.sampled_from(BACKENDS))
def test_leaving_out_a_required_check_never_gives_a_pass(
    data: st.DataObject, level: str, backend: str | None
) -> None:
    required = sorted(table.required_ids(level, backend))
    gone = data.draw(st.sampled_from(required))
    results = [result(name, "pass") for name in required if name != gone]
    assert verdict(results, frozenset(required)) == "incomplete"
    assert verdict([*results, result(gone, "skip")], frozenset(required)) == "incomplete"


@given(results=results_for("smoke"))
def test_one_failure_or_error_makes_the_verdict_fail(results: list[Result]) -> None:
    for status in ("fail", "error", "a status nobody knows"):
        assert verdict([*results, result("import", status)], frozenset({"import"})) == "fail"


def test_a_run_in_which_nothing_applied_is_no_pass() -> None:
    results = [result("version", "not_applicable")]
    assert verdict(results, frozenset({"version"})) == "incomplete"
    assert verdict([], frozenset()) == "incomplete"


def test_a_check_that_does_not_apply_leaves_the_verdict_whole() -> None:
    results = [result("import", "pass"), result("version", "not_applicable")]
    assert verdict(results, frozenset({"import", "version"})) == "pass"


def test_the_summary_counts_errors_as_failed_and_not_applicable_as_nothing() -> None:
    results = [result(status, status) for status in STATUSES]
    assert summary(results, frozenset()) == {
        "passed": 1,
        "failed": 2,
        "skipped": 1,
        "verdict": "fail",
        "missing": [],
    }


def test_exit_codes_are_those_of_the_contract() -> None:
    assert EXIT_CODES == {"pass": 0, "fail": 2, "incomplete": 3}


def test_the_smoke_level_has_every_check_of_the_contract_and_requires_it_everywhere() -> None:
    smoke = {
        "import",
        "version",
        "matmul-cpu",
        "autograd",
        "save-load",
        "dataloader",
        "shared-libraries",
        "pip-check",
        "distributions",
        "numpy",
        "clean-environment",
        "user-and-caches",
        "shells",
        "contents",
        "hipify",
        "opencl",
    }
    for backend in BACKENDS:
        assert table.required_ids("smoke", backend) == smoke


def test_a_cpu_torch_does_not_make_the_gpu_level_pass_for_want_of_requirements() -> None:
    gpu = {check.id for check in table.checks_of("gpu")}
    assert table.required_ids("gpu", "cpu") == gpu
    assert table.required_ids("gpu", "hip") == gpu
    assert table.required_ids("gpu", "cuda") == gpu - {"compile"}


def test_the_gpu_level_has_every_check_of_the_contract() -> None:
    assert {check.id for check in table.checks_of("gpu")} == {
        *("arch", "hip-kernel", "devices", "matmul", "matmul-fp8", "precision", "memory"),
        *("transfer", "conv", "attention", "amp", "compile", "graph", "streams", "train"),
        *("concurrent", "idle", "allreduce", "api"),
    }


def test_the_limits_of_the_gpu_level_leave_room_for_the_report_in_the_builders_own() -> None:
    limits = [check.limit_s for check in table.checks_of("gpu")]
    assert sum(limits) < LEVEL_SECONDS["gpu"] - 120


def test_ids_are_unique_and_each_row_names_a_function_that_exists() -> None:
    rows = [*table.CHECKS, *table.PROBES]
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        module, _, name = row.run.partition(":")
        if "." not in module:
            module = f"rocm_torch_selftest.checks.{module}"
        assert callable(getattr(importlib.import_module(module), name))
        assert row.limit_s > 0


def test_gpu_checks_and_the_dataloader_run_in_processes_of_their_own() -> None:
    for check in table.CHECKS:
        if check.level == "gpu" or check.id in ("import", "dataloader"):
            assert check.alone, check.id


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.name))
def test_the_source_is_python_3_8_and_imports_the_standard_library_only(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))
    allowed = {*sys.stdlib_module_names, "rocm_torch_selftest"}
    if file.parent.name == "models":  # imported by name, and in a process that has torch
        allowed.add("torch")
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            assert name.split(".")[0] in allowed, f"{file.name} imports {name}"
            if "torch" not in allowed:
                assert not name.startswith("rocm_torch_selftest.models"), file.name
