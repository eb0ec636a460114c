from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from rocm_torch_selftest.bench import attempts
from rocm_torch_selftest.bench.attempts import Tried, another_process, attempt, data_of
from rocm_torch_selftest.bench.checks import judge_gemm, judge_model
from rocm_torch_selftest.bench.launch import launcher
from rocm_torch_selftest.bench.measure import Plan
from rocm_torch_selftest.bench.options import Options
from rocm_torch_selftest.bench.peaks import UNKNOWN, beside_peak
from rocm_torch_selftest.bench.request import Request
from rocm_torch_selftest.bench.worker import is_out_of_memory, slowdown_of
from rocm_torch_selftest.bench.workloads import ALL, BY_NAME
from rocm_torch_selftest.cell import Cell, CellFileError
from rocm_torch_selftest.cli import main

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

RESNET = BY_NAME["resnet50"]
PLAN = Plan(budget_s=1.0, limit_s=5.0)
COUNTS = {"miopen-db": 0, "miopen-kernels": 0}
ABORTING_TORCH = "import os; os.abort()"
FULL_TORCH = """
class version: hip = "6.2"; cuda = None
class cuda:
    @staticmethod
    def is_available(): raise RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB")
"""
EMPTY_TORCH = FULL_TORCH.replace(
    'raise RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB")', "return False"
)


def answer(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "status": "ok",
        "samples_s": [0.1] * 30,
        "median_s": 0.1,
        "interval_fraction": 0.001,
        "time_to_steady_s": 1.0,
        "precise": True,
        "caches": {"before": COUNTS, "after": COUNTS, "state": None},
        "settings": {},
        "memory": None,
        "device": None,
        "backend": "cuda",
        "slowdown": 1.0,
    }
    return {**values, **changes}


class Device:
    """Launches nothing: a device on which batches up to ``fits`` have room."""

    def __init__(self, fits: int) -> None:
        self.fits = fits
        self.batches: list[int] = []

    def __call__(self, request: Mapping[str, Any], *, limit_s: float) -> Mapping[str, Any]:
        assert limit_s >= attempts.FIRST_LIMIT_S
        batch = request["workload"]["batch"]
        self.batches.append(batch)
        if batch > self.fits:
            return {"status": "out-of-memory", "detail": "HIP out of memory."}
        return answer()


def run(device: Device, processes: int = 2) -> Tried:
    due = another_process(Options(processes=processes), RESNET.name, lambda: 0.0)
    return attempt(RESNET, device, PLAN, due, lambda _: None)


def test_what_does_not_fit_halves_its_batch_in_a_fresh_process_and_says_so() -> None:
    device = Device(fits=100)
    tried = run(device)
    assert device.batches == [256, 128, 64, 64]
    data = data_of(tried, RESNET)
    assert (data["batch"], data["nominal_batch"], data["did_not_fit"]) == (64, 256, [256, 128])
    assert "/b64/" in data["workload"]
    assert data["throughput"] == pytest.approx(640)
    outcome = judge_model(data, RESNET)
    assert outcome.status == "pass"
    assert "batch 256 did not fit" in outcome.detail


def test_a_batch_of_one_that_does_not_fit_has_no_result() -> None:
    device = Device(fits=0)
    tried = run(device)
    assert device.batches[-1] == 1
    assert tried.answers == ()
    assert tried.problem is not None
    assert tried.problem["status"] == "out-of-memory"


def test_a_second_process_needs_room_in_the_budget_for_the_other_workloads() -> None:
    now = [0.0]
    options = Options(deadline=180.0, after={"resnet50": 9})
    due = another_process(options, "resnet50", lambda: now[0])
    assert due([])
    now[0] = 12.0
    assert due([answer()])
    now[0] = 60.0
    assert not due([answer()])
    assert not due([answer(), answer()])


def test_where_kernels_are_kept_on_disk_there_is_always_a_second_process() -> None:
    now = [0.0]
    due = another_process(Options(deadline=10.0), "resnet50", lambda: now[0])
    now[0] = 400.0
    cold = answer(caches={"before": COUNTS, "after": COUNTS, "state": "cold"})
    assert due([cold])
    assert not due([cold, cold])


def test_a_kernel_cache_that_does_not_work_makes_the_result_invalid() -> None:
    caches = {"before": COUNTS, "after": COUNTS, "state": "cold"}
    slow = answer(caches=caches, time_to_steady_s=385.0, backend="hip")
    data = data_of(Tried(RESNET, (slow, slow)), RESNET)
    outcome = judge_model(data, RESNET)
    assert (outcome.status, outcome.data["valid"]) == ("fail", False)
    assert "CACHE_NOT_EFFECTIVE" in outcome.detail


def test_a_median_that_is_not_known_well_enough_is_no_pass() -> None:
    vague = answer(precise=False, interval_fraction=0.08)
    outcome = judge_model(data_of(Tried(RESNET, (answer(), vague)), RESNET), RESNET)
    assert outcome.status == "skip"
    assert "interval 8.0%" in outcome.detail
    never = {**vague, "samples_s": [1.0, 2.0]}
    del never["interval_fraction"]
    data = data_of(Tried(RESNET, (never,)), RESNET)
    assert data["interval_fraction"] is None
    assert judge_model(data, RESNET).status == "skip"


def test_processes_that_differ_are_told() -> None:
    fast, slow = answer(), answer(samples_s=[0.113] * 30, median_s=0.113)
    data = data_of(Tried(RESNET, (fast, slow)), RESNET)
    assert data["between_processes"] == pytest.approx(1.13)
    assert "its processes differ by 13%" in judge_model(data, RESNET).detail
    alike = data_of(Tried(RESNET, (fast, fast)), RESNET)
    assert "differ" not in judge_model(alike, RESNET).detail


def test_ids_fix_everything_and_a_dtype_is_part_of_them() -> None:
    assert [workload.id for workload in ALL] == [
        "resnet50/train/b256/224/amp-bf16/channels_last/sgd/v1",
        "bert-base/train/b32/s128/amp-bf16/contiguous/adamw/graph/v1",
        "yolov5s/train/b64/640/amp-bf16/channels_last/sgd/v1",
        "vit-b16/train/b128/224/amp-bf16/contiguous/adamw/v1",
        "sd15-unet/infer/b1/64x64/fp16/channels_last/graph/v1",
        "llama2-7b/prefill/b1/s512/fp16/contiguous/graph/v1",
        "whisper-medium/infer/b8/encoder+32tokens/fp16/contiguous/graph/v1",
    ]
    assert "/amp-fp16/" in RESNET.with_dtype("fp16").id
    assert "/fp32/" in RESNET.with_dtype("fp32").id
    assert "/bf16/" in BY_NAME["llama2-7b"].with_dtype("bf16").id
    assert RESNET.made_tiny().id.startswith("resnet50-tiny/")
    assert "/graph/" not in BY_NAME["bert-base"].with_dtype("fp16").id


def test_a_step_that_the_device_cannot_record_is_measured_as_it_is_under_another_id() -> None:
    def launch(request: Mapping[str, Any], *, limit_s: float) -> Mapping[str, Any]:
        assert limit_s
        refused = {"status": "refused", "detail": "RuntimeError: capture is not possible"}
        return refused if request["workload"]["replay"] else answer()

    unet, said = BY_NAME["sd15-unet"], list[str]()
    tried = attempt(unet, launch, PLAN, lambda answers: len(answers) < 2, said.append)
    data = data_of(tried, unet)
    assert "/graph/" in data["nominal_workload"]
    assert "/graph/" not in data["workload"]
    assert "capture" in data["eager_because"]
    assert "capture is not possible" in judge_model(data, unet).detail


@pytest.mark.parametrize(
    ("torch", "status", "word"),
    [
        (FULL_TORCH, "out-of-memory", "Tried to allocate"),
        (ABORTING_TORCH, "crashed", "status -6"),
        (EMPTY_TORCH, "no-gpu", "sees no GPU"),
        ("raise ImportError('libamdhip64.so.6 is missing')", "refused", "libamdhip64"),
    ],
)
def test_however_a_worker_process_ends_there_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: str, status: str, word: str
) -> None:
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(torch)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    request = {"job": "workload", "workload": RESNET.to_json(), "plan": PLAN.__dict__}
    found = launcher(tmp_path)(request, limit_s=60)
    assert found["status"] == status
    assert word in found["detail"]


def test_a_worker_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import signal; signal.pause()")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    found = launcher(tmp_path)({"job": "gemm", "plan": PLAN.__dict__}, limit_s=1)
    assert found["status"] == "crashed"
    assert "no end within 1 s" in found["detail"]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("HIP out of memory. Tried to allocate 20 GiB"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_memory_that_ends_is_told_by_its_words(error: Exception) -> None:
    assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("HIP error: invalid device function"))


@pytest.mark.parametrize("text", ["0.9", "-1", "nan"])
def test_a_factor_that_would_not_slow_down_is_refused(text: str) -> None:
    assert slowdown_of({}) == 1.0
    with pytest.raises(ValueError, match="ROCM_TORCH_BENCH_SLOWDOWN"):
        slowdown_of({"ROCM_TORCH_BENCH_SLOWDOWN": text})


def gemm_row(**changes: Any) -> dict[str, Any]:
    values = {"dtype": "bf16", "size": 8192, "tflops": 700.0, "bare_tflops": 780.0}
    row: dict[str, Any] = {**values, "fraction_of_bare": 700 / 780, **changes}
    return beside_peak(row, {"1002:74a1": {"bf16": 1307.0}}, ("AMD Instinct MI300X", "1002:74a1"))


def test_a_product_slower_than_the_bare_loop_fails_and_a_peak_is_told_where_known() -> None:
    slow = judge_gemm([gemm_row()], tiny=False, slowdown=1.0)
    assert slow.status == "fail"
    assert "90% of the bare loop" in slow.detail
    good = judge_gemm([gemm_row(fraction_of_bare=0.97)], tiny=False, slowdown=1.0)
    assert good.status == "pass"
    assert "54% of the bf16 peak 1307" in good.detail
    row = beside_peak({"dtype": "bf16", "tflops": 1.0}, {}, ("AMD Instinct MI300X",))
    assert (row["peak_tflops"], row["peak_told"]) == (None, UNKNOWN)


def test_a_subset_narrows_what_is_required_and_the_document_says_so() -> None:
    asked = Request(subset=("gemm",))
    assert asked.narrowed({"gemm", "resnet50"}) == {"gemm"}
    assert Request().narrowed({"gemm", "resnet50"}) == {"gemm", "resnet50"}
    assert json.loads(json.dumps(asked.to_json()))["subset"] == ["gemm"]
    environment = {"backend": "cuda", "devices": [{"name": "A", "pci_id": None}]}
    options = Options.from_json(
        json.loads(json.dumps(asked.options(environment, ["gemm", "startup"], 100.0)))
    )
    assert options.products == ("A",)
    assert options.deadline == pytest.approx(265.6)
    assert options.after == {"gemm": 1, "startup": 0}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--level", "bench", "--subset", "resnet51"], "resnet51"),
        (["--level", "smoke", "--subset", "gemm"], "belong to --level bench"),
        (["--level", "bench", "--budget", "-1"], "positive"),
        (["--level", "bench", "--budget", "soon"], "--budget"),
        (["--level", "bench", "--processes", "0"], "positive"),
        (["--level", "bench", "--dtype", "int8"], "--dtype"),
    ],
)
def test_a_call_that_asks_for_nonsense_is_a_bad_call(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 64
    assert told in capsys.readouterr().err


CELL = {
    "schema": "rocm-torch/cell/v1",
    "id": "a",
    "python": "3.11",
    "expected": {
        "torch_version": "2.7.1+rocm6.2.4",
        "backend": "hip",
        "hip_version": None,
        "contents": [],
        "pip_check_known": [],
    },
}


def test_the_peaks_of_a_cell_reach_the_checks_and_others_are_refused() -> None:
    peaks = {"1002:74a1": {"bf16": 1307.4}}
    cell = Cell.from_json({**CELL, "peaks": peaks})
    assert Cell.from_json(json.loads(json.dumps(cell.to_json()))).peaks == peaks
    assert Cell.from_json(CELL).peaks == {}
    wrongs: tuple[Any, ...] = ([], {"1002:74a1": 1307.4}, {"1002:74a1": {"bf16": "much"}})
    for wrong in wrongs:
        with pytest.raises(CellFileError, match="peaks"):
            Cell.from_json({**CELL, "peaks": wrong})
