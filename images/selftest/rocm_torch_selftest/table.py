"""Which checks there are, what each needs, and which ones a level requires.

A new check is one function in ``checks/`` and one row here.
"""

from __future__ import annotations

from dataclasses import dataclass

CPU = "cpu"
HIP = "hip"
CUDA = "cuda"
EVERY_BACKEND = (CPU, HIP, CUDA)

SMOKE = "smoke"
GPU = "gpu"
BENCH = "bench"
LEVELS = (SMOKE, GPU, BENCH)
ENVIRONMENT = "environment"  # not a level: probes that fill the document's environment


@dataclass(frozen=True)
class Check:
    """One row of the table.

    Attributes:
        id: stable name; never used again for something else.
        level: the level that it belongs to.
        run: ``module:function``; a module name without a dot lies in ``checks/``. The function
            takes a ``Context`` and returns an ``Outcome``.
        about: what it shows, as a short sentence for ``--list``.
        required: backends for which the level is not complete without it.
        needs_torch: it imports torch, so it is not tried once torch is known not to import.
        alone: it gets a process of its own; others of one kind share one.
        limit_s: seconds until it counts as hanging and is ended.
    """

    id: str
    level: str
    run: str
    about: str
    required: tuple[str, ...] = EVERY_BACKEND
    needs_torch: bool = True
    alone: bool = False
    limit_s: float = 60.0


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
    Check(
        "devices",
        GPU,
        "gpu_devices:run",
        "torch sees the GPUs and each one computes",
        alone=True,
        limit_s=120,
    ),
    Check(
        "matmul",
        GPU,
        "gpu_matmul:run",
        "fp32, fp16 and bf16 products on the GPU are right",
        alone=True,
        limit_s=300,
    ),
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
