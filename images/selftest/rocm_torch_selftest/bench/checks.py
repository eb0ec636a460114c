"""The checks of the level ``bench``, as the table names them. They import no torch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Mapping

from rocm_torch_selftest.bench import caches, startup
from rocm_torch_selftest.bench.attempts import FIRST_LIMIT_S, another_process, attempt, data_of
from rocm_torch_selftest.bench.launch import launcher
from rocm_torch_selftest.bench.measure import Plan
from rocm_torch_selftest.bench.options import Options
from rocm_torch_selftest.bench.peaks import UNKNOWN, beside_peak
from rocm_torch_selftest.bench.worker import CPU, NO_GPU, OK, OUT_OF_MEMORY
from rocm_torch_selftest.bench.workloads import BY_NAME, Workload
from rocm_torch_selftest.checks.gpu import without_gpu
from rocm_torch_selftest.outcome import Outcome, failed, passed, skipped

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context

LEAST_OF_BARE = 0.9
TINY_STEPS = 10
LEAST_S = 1.5
LOUD_DIFFERENCE = 0.03
LEAST_KERNEL_S = 0.5


def _options(context: Context) -> Options:
    return Options.from_json(context.options)


def _model(context: Context, name: str) -> Outcome:
    options = _options(context)
    skip = without_gpu(options.backend)
    tiny = options.backend == CPU
    if skip is not None and not tiny:
        return skip
    nominal = BY_NAME[name]
    if options.dtype:
        nominal = nominal.with_dtype(options.dtype)
    if tiny:
        nominal = nominal.made_tiny()
    plan = _plan(options, tiny)
    more = another_process(options, name, time.time)
    tried = attempt(nominal, launcher(context.scratch), plan, more, context.stage)
    if tried.problem is not None:
        return _problem(tried.problem, f"{tried.workload.id}: ")
    return judge_model(data_of(tried, nominal), nominal)


def judge_model(data: Mapping[str, Any], nominal: Workload) -> Outcome:
    """Turn the data of a measured workload into its outcome."""
    cache = data["cache"]
    if cache and cache["code"] == caches.NOT_EFFECTIVE:
        return failed(f"{cache['detail']} [{cache['code']}]", **data, valid=False)
    told = (
        f"{data['workload']}: {data['throughput']:.4g} {data['unit']}, "
        f"{1000 * data['median_s']:.4g} ms a step, {_interval_told(data['interval_fraction'])}"
    )
    if data["did_not_fit"]:
        told += f"; batch {nominal.batch} did not fit, this is batch {data['batch']}"
    if data["eager_because"]:
        told += f"; not recorded as nominal, each step is launched anew: {data['eager_because']}"
    apart = data["between_processes"]
    if apart is not None and apart > 1 + LOUD_DIFFERENCE:
        told += f"; its processes differ by {apart - 1:.0%}"
    if nominal.tiny:
        return passed(f"{told}; tiny: it runs, and measures nothing.", **data, valid=True)
    if not data["precise"]:
        return skipped(f"{told}: not known to 2 % within the time.", **data, valid=False)
    return passed(f"{told}.", **data, valid=True)


def _interval_told(fraction: float | None) -> str:
    return "never steady" if fraction is None else f"interval {fraction:.1%}"


def _problem(answer: Mapping[str, Any], prefix: str = "") -> Outcome:
    told = f"{prefix}{answer['detail']}"
    if answer["status"] == OUT_OF_MEMORY:
        return skipped(f"{prefix}batch 1 does not fit: {answer['detail']}", valid=False)
    if answer["status"] == NO_GPU:
        return failed(f"There is a GPU, and {told}", valid=False)
    return failed(told, valid=False)


def _plan(options: Options, tiny: bool) -> Plan:
    if tiny:
        return Plan(budget_s=1.0, limit_s=20.0, min_steps=TINY_STEPS, max_fraction=1.0)
    return Plan(budget_s=options.share_s, limit_s=options.share_s + FIRST_LIMIT_S, least_s=LEAST_S)


def resnet50(context: Context) -> Outcome:
    """Measure training of ResNet-50."""
    return _model(context, "resnet50")


def bert_base(context: Context) -> Outcome:
    """Measure training of BERT-base."""
    return _model(context, "bert-base")


def yolov5s(context: Context) -> Outcome:
    """Measure training of YOLOv5s."""
    return _model(context, "yolov5s")


def vit_b16(context: Context) -> Outcome:
    """Measure training of ViT-B/16."""
    return _model(context, "vit-b16")


def sd15_unet(context: Context) -> Outcome:
    """Measure one denoising step of Stable Diffusion 1.5."""
    return _model(context, "sd15-unet")


def llama2_7b(context: Context) -> Outcome:
    """Measure the prefill of Llama-2-7B."""
    return _model(context, "llama2-7b")


def whisper_medium(context: Context) -> Outcome:
    """Measure Whisper medium: encoder and 32 tokens."""
    return _model(context, "whisper-medium")


def _simple(context: Context, job: str, **request: Any) -> Mapping[str, Any] | Outcome:
    options = _options(context)
    skip = without_gpu(options.backend)
    tiny = options.backend == CPU
    if skip is not None and not tiny:
        return skip
    context.stage(f"{job} {request.get('stage', '')}".strip())
    plan = _plan(options, tiny)
    plan = plan if tiny else Plan(budget_s=2.0, limit_s=plan.limit_s, least_s=LEAST_KERNEL_S)
    answer = launcher(context.scratch)(
        {"job": job, "plan": plan.__dict__, **request}, limit_s=plan.limit_s + FIRST_LIMIT_S
    )
    return answer if answer["status"] == OK else _problem(answer)


def run_startup(context: Context) -> Outcome:
    """Time the import, the availability check and a model's way to the device."""
    rows = []
    for stage in startup.STAGES:
        answer = _simple(context, "startup", stage=stage)
        if isinstance(answer, Outcome):
            return answer
        rows.append(dict(answer))
    told = ", ".join(f"{row['stage']} {row['seconds']:.2f} s" for row in rows)
    return passed(f"Each in a fresh process: {told}.", rows=rows, valid=True)


def run_gemm(context: Context) -> Outcome:
    """Measure matrix products, beside a bare loop and the product's peak."""
    answer = _simple(context, "gemm", dtype=_options(context).dtype)
    if isinstance(answer, Outcome):
        return answer
    peaks = {} if context.cell is None else context.cell.peaks
    rows = [beside_peak(row, peaks, _options(context).products) for row in answer["rows"]]
    return judge_gemm(rows, tiny=answer["tiny"], slowdown=answer["slowdown"])


def judge_gemm(rows: list[dict[str, Any]], *, tiny: bool, slowdown: float) -> Outcome:
    """Turn the rows into the outcome: a large bf16 product must be as fast as the bare loop's."""
    largest = max(row["size"] for row in rows)
    told = ", ".join(
        f"{row['dtype']} {row['tflops']:.4g}"
        for row in rows
        if row["size"] == largest and row["tflops"]
    )
    peak = next((row["peak_told"] for row in reversed(rows) if row["peak_tflops"]), UNKNOWN)
    detail = f"TFLOP/s at {largest}: {told}; {peak}"
    data = {"rows": rows, "tiny": tiny, "slowdown": slowdown}
    for row in rows:
        if not row["tflops"]:
            return skipped(
                f"{row['dtype']} {row['size']} did not become steady.", **data, valid=False
            )
        fraction = row.get("fraction_of_bare")
        if fraction is not None and fraction < LEAST_OF_BARE and not tiny and slowdown == 1.0:
            return failed(
                f"bf16 at {row['size']} ran at {fraction:.0%} of the bare loop "
                f"({row['tflops']:.4g} of {row['bare_tflops']:.4g} TFLOP/s).",
                **data,
                valid=False,
            )
    return passed(f"{detail}.", **data, valid=True)


def run_bandwidth(context: Context) -> Outcome:
    """Measure what the device's memory moves."""
    answer = _simple(context, "bandwidth")
    if isinstance(answer, Outcome):
        return answer
    rows = [dict(row) for row in answer["rows"]]
    if not all(row["bytes_per_s"] for row in rows):
        return skipped("The copies did not become steady.", rows=rows, valid=False)
    told = ", ".join(f"{row['operation']} {row['bytes_per_s'] / 1e9:.5g} GB/s" for row in rows)
    return passed(f"{told}.", rows=rows, tiny=answer["tiny"], valid=True)
