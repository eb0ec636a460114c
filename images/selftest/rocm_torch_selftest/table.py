"""Which checks there are, what each needs, and which ones a level requires.

A new check is one function in ``checks/`` and one row here or in ``gpu_table``.
"""

from __future__ import annotations

from rocm_torch_selftest.check import (
    BENCH,
    CPU,
    CUDA,
    ENVIRONMENT,
    EVERY_BACKEND,
    GPU,
    HIP,
    LEVELS,
    SMOKE,
    Check,
)
from rocm_torch_selftest.gpu_table import GPU_CHECKS

__all__ = [
    "BENCH",
    "CHECKS",
    "CPU",
    "CUDA",
    "ENVIRONMENT",
    "EVERY_BACKEND",
    "GPU",
    "HIP",
    "LEVELS",
    "PROBES",
    "SMOKE",
    "Check",
    "checks_of",
    "required_ids",
]


def _bench(check_id: str, function: str, about: str) -> Check:
    """Return a row of the level ``bench``; the limit leaves time to search for kernels."""
    run = f"rocm_torch_selftest.bench.checks:{function}"
    return Check(check_id, BENCH, run, about, alone=True, limit_s=2400)


CHECKS = (
    Check("import", SMOKE, "importing:run", "torch imports", alone=True, limit_s=120),
    Check("version", SMOKE, "version:run", "torch, backend and Python are what the cell expects"),
    Check("matmul-cpu", SMOKE, "matmul_cpu:run", "matrix products on the CPU are right"),
    Check("autograd", SMOKE, "autograd:run", "gradients equal the analytic ones"),
    Check("save-load", SMOKE, "save_load:run", "tensors and state survive save and load"),
    Check(
        "dataloader",
        SMOKE,
        "dataloader:run",
        "two worker processes send batches through /dev/shm",
        alone=True,
    ),
    Check(
        "shared-libraries",
        SMOKE,
        "shared_libraries:run",
        "every shared library of torch finds what it links to",
        needs_torch=False,
    ),
    Check(
        "pip-check",
        SMOKE,
        "pip_check:run",
        "pip check finds nothing that the base did not have",
        needs_torch=False,
    ),
    Check(
        "distributions",
        SMOKE,
        "distributions:run",
        "no installed package replaces or contradicts the ROCm build of torch",
        needs_torch=False,
    ),
    Check(
        "numpy",
        SMOKE,
        "numpy_exchange:run",
        "tensors and NumPy arrays are exchanged without a warning",
        limit_s=120,
    ),
    Check(
        "clean-environment",
        SMOKE,
        "clean_environment:run",
        "torch imports without the image's environment variables",
        limit_s=120,
    ),
    Check(
        "user-and-caches",
        SMOKE,
        "user_and_caches:run",
        "this user has private, writable cache directories",
        needs_torch=False,
    ),
    Check(
        "shells",
        SMOKE,
        "shells:run",
        "the default python has torch in login and other shells",
        needs_torch=False,
    ),
    Check(
        "contents",
        SMOKE,
        "contents:run",
        "each tool that the cell promises is there and works",
        needs_torch=False,
        limit_s=180,
    ),
    Check(
        "hipify",
        SMOKE,
        "hipify:run",
        "a CUDA kernel is ported and compiled for each GPU target",
        needs_torch=False,
        limit_s=600,
    ),
    Check(
        "opencl",
        SMOKE,
        "opencl:run",
        "clinfo runs, and sees the GPU where there is one",
        needs_torch=False,
    ),
    *GPU_CHECKS,
    _bench("resnet50", "resnet50", "how fast ResNet-50 trains"),
    _bench("bert-base", "bert_base", "how fast BERT-base trains"),
    _bench("yolov5s", "yolov5s", "how fast YOLOv5s trains"),
    _bench("vit-b16", "vit_b16", "how fast ViT-B/16 trains"),
    _bench("sd15-unet", "sd15_unet", "how fast Stable Diffusion 1.5 denoises"),
    _bench("llama2-7b", "llama2_7b", "how fast Llama-2-7B reads a prompt"),
    _bench("whisper-medium", "whisper_medium", "how fast Whisper medium transcribes"),
    _bench("startup", "run_startup", "how long a user waits before the first step"),
    _bench("gemm", "run_gemm", "matrix products reach what the device can do"),
    _bench("bandwidth", "run_bandwidth", "how many bytes a second the memory moves"),
)

PROBES = (
    Check("environment-torch", ENVIRONMENT, "environment:torch_facts", "what torch says of itself"),
    Check("environment-devices", ENVIRONMENT, "environment:devices", "which devices torch sees"),
)


def checks_of(level: str) -> tuple[Check, ...]:
    """Return the checks of a level, in the order in which they run."""
    return tuple(check for check in CHECKS if check.level == level)


def required_ids(level: str, backend: str | None) -> frozenset[str]:
    """Return the ids that a level requires on a backend.

    A backend that is not known (torch does not import) requires what any backend would.
    """
    return frozenset(
        check.id
        for check in checks_of(level)
        if (backend in check.required if backend is not None else check.required)
    )
