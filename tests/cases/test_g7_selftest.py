"""Field cases of group G7 that concern checks; those about benchmarks are in test_g7_bench."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from planted import outcome, plant
from rocm_torch_selftest import runner
from rocm_torch_selftest.arch.files import Offer
from rocm_torch_selftest.checks import dataloader, gpu_arch, gpu_precision
from rocm_torch_selftest.checks.environment import device_facts
from rocm_torch_selftest.known_lines import fault, harmless_counts
from rocm_torch_selftest.outcome import Result
from rocm_torch_selftest.runner import Ending
from rocm_torch_selftest.session import harmless_lines
from rocm_torch_selftest.table import checks_of
from rocm_torch_selftest.verdict import summary, verdict

ROOT = Path(__file__).parents[2]
LISTED = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101")
WORKSPACE = (
    "MIOpen(HIP): Warning [IsEnoughWorkspace] [GetSolutionsFallback WTI] Solver <GemmFwdRest>, "
    "workspace required: 576000000, provided ptr: 0 size: 0"
)
HIPBLASLT = (
    "UserWarning: Attempting to use hipBLASLt on an unsupported architecture! "
    "Overriding blas backend to hipblas"
)
IDS = "/opt/amdgpu/share/libdrm/amdgpu.ids: No such file or directory"
MEMORY_FAULT = (
    "Memory access fault by GPU node-1 (Agent handle: 0x1) on address 0x7f00. "
    "Reason: Page not present or supervisor privilege."
)


@pytest.mark.parametrize(
    ("agent", "torch", "code"),
    [
        pytest.param("gfx1102", LISTED, "ARCH_NOT_IN_TORCH", id="g7-01-invalid-device-function"),
        pytest.param("gfx1151", LISTED, "ARCH_NOT_IN_TORCH", id="g7-01-another-card"),
        pytest.param("gfx1102", (*LISTED, "gfx11-generic"), None, id="g7-01-generic-target"),
        pytest.param("gfx90a:sramecc+:xnack-", LISTED, None, id="g7-01-features"),
    ],
)
def test_a_card_without_code_is_named_before_its_first_kernel(
    agent: str, torch: tuple[str, ...], code: str | None
) -> None:
    offers = [Offer("torch", torch, "test"), Offer("rocblas", (*torch, "gfx1102"), "test")]
    found = gpu_arch.verdict([agent], "hip", offers, {})
    assert found.data.get("code") == code
    assert found.status == ("pass" if code is None else "fail")
    assert agent in found.detail


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(
            '"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"',
            id="g7-02-nobinary-abort",
        ),
        pytest.param(
            "rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: Illegal "
            "seek for GPU arch : gfx1102",
            id="g7-02-rocblas-abort",
        ),
    ],
)
def test_an_abort_for_want_of_code_is_named(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = plant(
        tmp_path,
        monkeypatch,
        f"""
def check(context):
    context.stage("torch.cuda.is_available")
    os.write(2, {said.encode()!r} + b"\\n")
    os.abort()
""",
    )
    found = outcome(setting)
    assert (found.status, found.data["code"]) == ("fail", "ARCH_NOT_IN_TORCH")
    assert "SIGABRT (stage: torch.cuda.is_available)" in found.detail
    assert "JSON" not in found.detail


@pytest.mark.parametrize(
    ("line", "name"),
    [
        pytest.param(WORKSPACE, "IsEnoughWorkspace", id="g7-03-miopen-workspace-warning"),
        pytest.param(HIPBLASLT, "hipBLASLt", id="g7-04-hipblaslt-unsupported"),
        pytest.param(IDS, "amdgpu.ids", id="g7-14-amdgpu-ids"),
    ],
)
def test_a_harmless_line_is_counted_and_fails_nothing(
    line: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = plant(
        tmp_path,
        monkeypatch,
        f"""
def check(context):
    for _ in range(3):
        print({line!r}, file=sys.stderr)
    return passed("The result is right.")

def wrong(context):
    print({line!r}, file=sys.stderr)
    raise CheckFailedError("The result is wrong.")
""",
    )
    found = outcome(setting)
    assert found.status == "pass"
    assert found.data["harmless_lines"] == {name: 3}
    told = harmless_lines([found, replace(found, id="other")])
    assert told[name]["count"] == 6
    assert told[name]["reason"]
    # The same text beside a wrong result excuses nothing.
    assert outcome(setting, "wrong").status == "fail"


def test_g7_03_a_line_that_only_resembles_a_harmless_one_is_not_counted() -> None:
    assert harmless_counts("opening /opt/x: No such file or directory\nMIOpen error: failed") == {}


@pytest.mark.usefixtures("quick_signals")
def test_g7_06_a_hang_that_ignores_signals_is_killed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = plant(
        tmp_path,
        monkeypatch,
        """
def check(context):
    context.stage("first large copy")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        signal.pause()
""",
    )
    found = outcome(setting, limit_s=1.0)
    assert (found.status, found.data["code"]) == ("fail", "GPU_HANG")
    assert "SIGKILL" in found.detail
    assert "first large copy" in found.detail
    assert "host_unhealthy" not in found.data  # it did end


@pytest.fixture
def quick_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TERM_GRACE_S", 0.2)


def test_g7_06_a_process_that_even_sigkill_does_not_end_makes_the_host_unhealthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process in state D cannot be made at will: how the supervisor ends is played.
    setting = plant(tmp_path, monkeypatch, "def check(context):\n    return None\n")

    def ends(*_: object) -> Ending:
        return Ending(None, late=True, last_signal="SIGKILL")

    monkeypatch.setattr(runner, "_supervise", ends)
    monkeypatch.setattr(runner, "_read_result", lambda *_: None)
    found = outcome(setting)
    assert (found.data["code"], found.data["host_unhealthy"]) == ("GPU_HANG", True)
    assert "not even SIGKILL ended it" in found.detail


@pytest.mark.parametrize(
    ("allow_tf32", "right"),
    [
        pytest.param(True, True, id="g7-07-tf32-xf32"),
        pytest.param(False, False, id="g7-07-tf32-off"),
    ],
)
@pytest.mark.parametrize("inner", [64, 1024, 4096])
def test_one_error_is_right_or_wrong_by_the_position_of_the_switch(
    allow_tf32: bool, right: bool, inner: int
) -> None:
    problem = gpu_precision.judge("float32", 0.0009, inner, reduced=allow_tf32)
    assert (problem is None) is right
    assert gpu_precision.judge("float32", 0.05, inner, reduced=allow_tf32) is not None


def test_g7_07_each_numeric_check_runs_in_a_process_of_its_own() -> None:
    numeric = ("matmul", "precision", "conv", "attention", "amp", "train")
    rows = {check.id: check for check in checks_of("gpu")}
    assert all(rows[name].alone for name in numeric)


def test_g7_08_a_run_in_which_nothing_ran_is_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def check(context):\n    sys.exit(5)\n\ndef other(context):\n    os._exit(5)\n"
    setting = plant(tmp_path, monkeypatch, source)
    results = [outcome(setting), outcome(setting, "other")]
    assert {found.status for found in results} == {"fail"}
    assert all("status 5 without a result" in found.detail for found in results)
    assert verdict([], frozenset()) == "incomplete"


def test_g7_08_shards_are_judged_by_what_they_ran_together() -> None:
    ran = Result("b", "gpu", "pass", 0.1, "It is right.")
    required = frozenset({"b"})
    assert summary([ran], required)["verdict"] == "pass"
    assert summary([], required)["missing"] == ["b"]
    assert summary([], required)["verdict"] == "incomplete"


def test_g7_10_a_failure_before_a_pipe_is_not_hidden_by_the_status_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = plant(
        tmp_path,
        monkeypatch,
        """
def check(context):
    log = context.scratch / "log"
    status = subprocess.call(["bash", "-c", f"false | tee {log}"])
    os._exit(status)  # 0: the only thing that is looked at where nobody asks for a result
""",
    )
    found = outcome(setting)
    assert found.status == "fail"
    assert "status 0 without a result" in found.detail


def test_g7_10_an_exit_handler_that_leaves_with_0_hides_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = plant(
        tmp_path,
        monkeypatch,
        """
def check(context):
    context.stage("train")
    atexit.register(os._exit, 0)
    raise CheckFailedError("The loss does not fall.")

def dies(context):
    context.stage("train")
    atexit.register(os._exit, 0)
    sys.exit("half done")
""",
    )
    assert outcome(setting).detail == "The loss does not fall."
    found = outcome(setting, "dies")
    assert found.status == "fail"
    assert "stage: train" in found.detail


@pytest.mark.parametrize("folder", ["builder", "images/selftest", "scripts", "benchmarks"])
def test_g7_10_every_process_that_our_code_starts_is_asked_for_its_status(folder: str) -> None:
    for file in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner, words = node.func.value, {word.arg for word in node.keywords}
            if not isinstance(owner, ast.Name) or owner.id not in ("subprocess", "os"):
                continue
            where = f"{file.relative_to(ROOT)}:{node.lineno}"
            assert node.func.attr not in ("system", "popen", "call", "getoutput"), where
            assert "shell" not in words, where
            if node.func.attr == "run":
                assert "check" in words, where


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(
            "unable to write to file </torch_1_1>: No space left on device (28)", id="g7-12-shm"
        ),
        pytest.param(
            "NCCL WARN Error: failed to extend /dev/shm/nccl-abc to 33030532 bytes, "
            "error: No space left on device (28)",
            id="g7-12-shm-of-a-collective",
        ),
    ],
)
def test_a_full_shared_memory_is_named_and_no_disk_is_blamed(said: str) -> None:
    found = fault(said, {}, {})
    assert found is not None
    assert found[0] == "SHM_TOO_SMALL"
    assert "--shm-size" in found[1]
    assert "disk" not in found[1]


def test_g7_12_the_dataloader_check_names_the_size_and_the_fix() -> None:
    found = dataloader.too_small(64 << 20, 0, "unable to write to file </torch_1_1>")
    assert found.data["code"] == "SHM_TOO_SMALL"
    assert "64.0 MiB" in found.detail
    assert "--shm-size" in found.detail
    assert "disk full" not in found.detail


def test_g7_14_a_device_without_a_name_is_known_by_its_target() -> None:
    class Properties:
        name = "AMD Radeon Graphics"
        gcnArchName = "gfx1100:xnack-"  # noqa: N815 - torch's name
        major, minor, multi_processor_count, total_memory = 11, 0, 48, 24 << 30

    class Torch:
        class version:  # noqa: N801 - torch's name
            hip = "6.2.41133"

        class cuda:  # noqa: N801 - torch's name
            @staticmethod
            def get_device_properties(_: int) -> type[Properties]:
                return Properties

    assert device_facts(Torch, 0)["gfx"] == "gfx1100"


@pytest.mark.parametrize(
    ("override", "says"),
    [
        pytest.param("10.3.0", ["HSA_OVERRIDE_GFX_VERSION=10.3.0"], id="g7-15-memory-access-fault"),
        pytest.param(None, [], id="g7-15-without-override"),
    ],
)
def test_a_memory_fault_names_the_gpu_of_the_node_and_the_override(
    override: str | None, says: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = plant(
        tmp_path,
        monkeypatch,
        f"""
def check(context):
    context.stage("product in float16")
    print({MEMORY_FAULT!r}, file=sys.stderr, flush=True)
    os.abort()
""",
    )
    # Node 0 is the CPU: the number is KFD's, not the index that torch counts by.
    monkeypatch.setattr(runner, "gpu_targets", lambda: {1: "gfx1103"})
    monkeypatch.delenv("HSA_OVERRIDE_GFX_VERSION", raising=False)
    if override is not None:
        monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", override)
    found = outcome(setting)
    assert (found.status, found.data["code"]) == ("fail", "GPU_MEMORY_FAULT")
    for words in [*says, "gfx1103", "product in float16"]:
        assert words in found.detail
    assert ("HSA_OVERRIDE" in found.detail) is (override is not None)


def test_g7_15_a_crash_of_a_check_leaves_no_core_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import resource\n\ndef check(context):\n"
    source += "    return passed(str(resource.getrlimit(resource.RLIMIT_CORE)))\n"
    assert outcome(plant(tmp_path, monkeypatch, source)).detail == "(0, 0)"
