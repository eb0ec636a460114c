from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rocm_torch_selftest import runner
from rocm_torch_selftest.runner import Setting, run_together
from rocm_torch_selftest.table import Check

if TYPE_CHECKING:
    from rocm_torch_selftest.outcome import Result

FAULTS = """
import os, signal, subprocess, sys, atexit
from rocm_torch_selftest.outcome import passed, CheckFailedError

def good(context):
    print("noise on stdout")
    return passed("It is right.", value=7)

def hang(context):
    context.stage("wait for ever")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()

def abort(context):
    context.stage("call the driver")
    print("Unable to find code object for all current devices!", file=sys.stderr, flush=True)
    os.abort()

def leave(context):
    context.stage("train")
    os._exit(0)

def leave_politely(context):
    sys.exit(0)

def pass_and_crash(context):
    atexit.register(os.abort)
    return passed("It is right.")

def pass_and_hang(context):
    atexit.register(signal.pause)
    return passed("It is right.")

def forge(context):
    (context.scratch.parent / "forge.json").write_text('{"id": "forge", "status": "fine"}')
    os._exit(0)

def nothing(context):
    return None

def refuse(context):
    raise RuntimeError("HIP error: invalid device function\\nmore")

def disagree(context):
    raise CheckFailedError("The product is off.", error=0.5)

def mistake(context):
    return passed("x")["y"]

def stray(context):
    return passed("It is right.", pid=subprocess.Popen(["sleep", "600"]).pid)
"""


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "faults.py").write_text(FAULTS)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(runner, "TERM_GRACE_S", 0.2)
    return Setting(None, scratch)


def check(name: str, *, limit_s: float = 30.0) -> Check:
    return Check(name, "gpu", f"planted.faults:{name}", "a planted fault", limit_s=limit_s)


def outcome(name: str, setting: Setting, *, limit_s: float = 30.0) -> Result:
    return run_together([check(name, limit_s=limit_s)], setting)[name]


def test_a_check_that_passes_brings_its_data_back(setting: Setting) -> None:
    found = outcome("good", setting)
    assert (found.status, found.detail, found.data) == ("pass", "It is right.", {"value": 7})


def test_a_check_that_hangs_and_ignores_sigterm_is_killed_and_fails(setting: Setting) -> None:
    found = outcome("hang", setting, limit_s=1.0)
    assert found.status == "fail"
    assert "within 1 s" in found.detail
    assert "SIGKILL" in found.detail
    assert "wait for ever" in found.detail


def test_a_check_that_aborts_fails_with_signal_stage_and_last_words(setting: Setting) -> None:
    found = outcome("abort", setting)
    assert found.status == "fail"
    assert "SIGABRT" in found.detail
    assert "call the driver" in found.detail
    assert "Unable to find code object" in found.detail


@pytest.mark.parametrize("name", ["leave", "leave_politely"])
def test_an_exit_0_without_a_result_is_a_failure(setting: Setting, name: str) -> None:
    found = outcome(name, setting)
    assert found.status == "fail"
    assert "exited with status 0 without a result" in found.detail


def test_a_pass_whose_process_then_crashes_is_a_failure(setting: Setting) -> None:
    found = outcome("pass_and_crash", setting)
    assert found.status == "fail"
    assert "SIGABRT" in found.detail
    assert "end of the process" in found.detail


def test_a_pass_whose_process_never_ends_is_a_failure(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "EXIT_LIMIT_S", 0.5)
    found = outcome("pass_and_hang", setting)
    assert found.status == "fail"
    assert "within 0.5 s" in found.detail


def test_a_result_file_with_an_unknown_status_counts_for_nothing(setting: Setting) -> None:
    assert outcome("forge", setting).status == "fail"


def test_a_check_that_returns_nothing_is_an_error(setting: Setting) -> None:
    assert outcome("nothing", setting).status == "error"


def test_what_torch_refuses_is_a_failure_and_not_an_error_of_ours(setting: Setting) -> None:
    found = outcome("refuse", setting)
    assert found.status == "fail"
    assert found.detail.startswith("RuntimeError: HIP error: invalid device function: this torch")
    assert found.data["code"] == "ARCH_NOT_IN_TORCH"


def test_a_disagreement_found_deep_inside_keeps_its_numbers(setting: Setting) -> None:
    found = outcome("disagree", setting)
    assert (found.status, found.data) == ("fail", {"error": 0.5})


def test_a_mistake_in_our_own_code_is_an_error_with_its_traceback(setting: Setting) -> None:
    found = outcome("mistake", setting)
    assert found.status == "error"
    assert "The self-test itself broke" in found.detail
    assert any("faults.py" in line for line in found.data["traceback"])


def test_a_check_whose_module_is_missing_does_not_pass(setting: Setting) -> None:
    found = run_together([Check("x", "gpu", "planted.nowhere:run", "gone")], setting)["x"]
    assert found.status in ("fail", "error")


def test_after_a_crash_the_other_checks_still_run(setting: Setting) -> None:
    names = ["good", "abort", "disagree", "leave", "refuse"]
    found = run_together([check(name) for name in names], setting)
    assert {name: found[name].status for name in names} == {
        "good": "pass",
        "abort": "fail",
        "disagree": "fail",
        "leave": "fail",
        "refuse": "fail",
    }


def test_with_stop_at_crash_the_rest_is_left_out(setting: Setting) -> None:
    found = run_together([check("abort"), check("good")], setting, stop_at_crash=True)
    assert list(found) == ["abort"]


def test_what_a_check_leaves_running_is_ended(setting: Setting) -> None:
    pid = outcome("stray", setting).data["pid"]
    deadline = time.monotonic() + 30
    while runs(Path(f"/proc/{pid}/stat")):
        assert time.monotonic() < deadline, "it was left running"


def runs(status: Path) -> bool:
    """Tell whether a process is more than a zombie that its parent has not yet waited for."""
    try:
        return status.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_run_that_is_told_to_stop_ends_its_child(setting: Setting) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(InterruptedError):
        run_together([check("hang")], Setting(None, setting.scratch, stop))
