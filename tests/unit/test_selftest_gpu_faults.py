"""Faults planted under the GPU checks: each is caught, and named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import rocm_torch_selftest
from kernel_files import rocblas, torch_package
from planted import outcome, plant, stand_in_torch
from rocm_torch_selftest import kfd, runner, table
from rocm_torch_selftest.checks import gpu, gpu_arch
from rocm_torch_selftest.context import Context
from rocm_torch_selftest.outcome import Result
from rocm_torch_selftest.runner import Setting, run_together
from rocm_torch_selftest.session import Run, harmless_lines, rehearsed, run_level

if TYPE_CHECKING:
    from rocm_torch_selftest.table import Check

SELFTEST = Path(rocm_torch_selftest.__file__).parent.parent


def row(check_id: str) -> Check:
    return next(check for check in table.checks_of("gpu") if check.id == check_id)


def level_gpu(torch: Path, *only: str) -> tuple[int, dict[str, Any]]:
    words = [word for name in only for word in ("--only", name)]
    done = subprocess.run(
        [sys.executable, "-m", "rocm_torch_selftest", "--level", "gpu", "--json", *words],
        env={**os.environ, "PYTHONPATH": f"{torch}:{SELFTEST}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def test_zero_devices_on_a_machine_with_a_gpu_fail_and_are_named(tmp_path: Path) -> None:
    code, document = level_gpu(stand_in_torch(tmp_path, "return False"), "devices", "train")
    assert code == 2
    details = {check["id"]: check["detail"] for check in document["checks"]}
    assert "no device" in details["devices"]
    assert "torch 0" in details["devices"]
    assert "sees no device" in details["train"]


def test_an_abort_in_the_availability_check_is_named_with_its_stage(tmp_path: Path) -> None:
    code, document = level_gpu(stand_in_torch(tmp_path, "os.abort()"), "devices")
    assert code == 2
    assert "SIGABRT (stage: torch.cuda.is_available)" in document["checks"][0]["detail"]


def test_an_exit_0_in_the_availability_check_is_named_with_its_stage(tmp_path: Path) -> None:
    code, document = level_gpu(stand_in_torch(tmp_path, "os._exit(0)"), "devices")
    assert code == 2
    assert (
        "status 0 without a result (stage: torch.cuda.is_available)"
        in (document["checks"][0]["detail"])
    )


def test_a_hang_in_the_availability_check_is_ended_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "signal.signal(signal.SIGTERM, signal.SIG_IGN) or [signal.pause() for _ in iter(int, 1)]"
    torch = stand_in_torch(tmp_path, body)
    monkeypatch.setenv("PYTHONPATH", str(torch))
    monkeypatch.setattr(runner, "TERM_GRACE_S", 0.2)
    (tmp_path / "scratch").mkdir()
    check = replace(row("devices"), limit_s=3.0)
    found = run_together([check], Setting(None, tmp_path / "scratch"))["devices"]
    assert (found.status, found.data["code"]) == ("fail", "GPU_HANG")
    assert "SIGKILL" in found.detail
    assert "stage: torch.cuda.is_available" in found.detail


def machine_with(target: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """Play a machine with one AMD GPU: a node that opens, and a topology that names the GPU."""
    node = folder / "nodes/1"
    node.mkdir(parents=True)
    (node / "properties").write_text(f"gfx_target_version {target}\n")
    monkeypatch.setattr(gpu, "KFD", "dev/null")
    monkeypatch.setattr(gpu_arch, "gpu_targets", lambda: kfd.gpu_targets(folder / "nodes"))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delenv("HSA_OVERRIDE_GFX_VERSION", raising=False)
    return Context(None, folder, lambda _: None)


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        (90010, "pass", None),
        (110002, "fail", "ARCH_NOT_IN_TORCH"),
        (90006, "fail", "ARCH_NOT_IN_BLAS"),
    ],
)
def test_a_torch_without_the_devices_target_is_named_without_starting_hip(
    target: int, status: str, code: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rocblas(torch_package(tmp_path, "gfx90a:xnack-", "gfx1100", "gfx906"), "gfx90a", "gfx1100")
    found = gpu_arch.run(machine_with(target, tmp_path, monkeypatch))
    assert (found.status, found.data.get("code")) == (status, code), found.detail
    assert kfd.target_name(target) in found.detail


def test_a_required_check_that_was_skipped_makes_the_level_incomplete_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = plant(
        tmp_path,
        monkeypatch,
        """
from rocm_torch_selftest.outcome import skipped

def good(context):
    return passed("It is right.")

def skips(context):
    return skipped("There is too little memory.")
""",
    )
    checks = tuple(
        replace(row(name), run=f"planted.faults:{function}", needs_torch=False)
        for name, function in (("matmul", "good"), ("memory", "skips"))
    )
    monkeypatch.setattr(table, "CHECKS", checks)
    document = run_level(Run("gpu", checks, setting))
    assert document["summary"]["verdict"] == "incomplete"
    assert document["summary"]["missing"] == ["memory"]


def test_after_a_process_that_nothing_ends_no_other_gpu_check_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = "def check(context):\n    return passed('It is right.')\n"
    setting = plant(tmp_path, monkeypatch, functions)
    checks = tuple(
        replace(row(name), run="planted.faults:check", needs_torch=False)
        for name in ("arch", "hip-kernel", "devices")
    )

    def stuck(rows: list[Check], *_: object, **__: object) -> dict[str, Result]:
        data = {"host_unhealthy": True}
        return {one.id: Result(one.id, one.level, "fail", 1.0, "It hangs.", data) for one in rows}

    monkeypatch.setattr("rocm_torch_selftest.session.run_together", stuck)
    document = run_level(Run("gpu", checks, setting))
    statuses = {check["id"]: check["status"] for check in document["checks"]}
    assert statuses == {"arch": "fail", "hip-kernel": "skip", "devices": "skip"}
    assert "check arch does not end" in document["checks"][1]["detail"]


def test_a_rehearsal_is_never_a_pass_and_hides_no_failure() -> None:
    setting = Setting(None, Path("/nowhere"), device="cpu")
    right = Result("conv", "gpu", "pass", 1.0, "It is right.")
    assert rehearsed(right, setting).status == "skip"
    assert "shows nothing about a GPU" in rehearsed(right, setting).detail
    assert rehearsed(replace(right, status="fail"), setting).status == "fail"
    assert rehearsed(replace(right, level="smoke"), setting).status == "pass"
    assert rehearsed(right, replace(setting, device="cuda")) == right


def test_harmless_lines_of_all_processes_are_added_up_with_their_reasons() -> None:
    data = {"harmless_lines": {"hipBLASLt": 1, "amdgpu.ids": 2}}
    one = Result("conv", "gpu", "pass", 1.0, "It is right.", data)
    told = harmless_lines([one, replace(one, data={}), replace(one, id="matmul")])
    assert {name: entry["count"] for name, entry in told.items()} == {
        "amdgpu.ids": 4,
        "hipBLASLt": 2,
    }


def test_that_hipblas_computed_in_place_of_hipblaslt_stands_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "Attempting to use hipBLASLt on an unsupported architecture! Overriding"
    functions = f"def check(context):\n    print({line!r})\n    return passed('It is right.')\n"
    setting = plant(tmp_path, monkeypatch, functions)
    check = replace(row("matmul"), run="planted.faults:check", needs_torch=False)
    document = run_level(Run("gpu", (check,), setting))
    assert document["environment"]["blas_backend"] == "hipblas"
    assert document["harmless_lines"]["hipBLASLt"]["count"] == 1


def test_a_flood_of_lines_keeps_its_beginning_and_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = plant(
        tmp_path,
        monkeypatch,
        """
def check(context):
    print("hipErrorNoBinaryForGpu", flush=True)
    for _ in range(40_000):
        print("x" * 60)
    print("the last words", flush=True)
    os.abort()
""",
    )
    found = outcome(setting)
    assert found.data["code"] == "ARCH_NOT_IN_TORCH"
    assert "the last words" in found.detail
