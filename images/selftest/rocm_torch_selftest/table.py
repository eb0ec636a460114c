"""Which checks there are, what each needs, and which ones a level requires.

A new check is one function in ``checks/`` and one row here or in ``gpu_table``.
"""

from __future__ import annotations

from rocm_torch_selftest.check import (
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
    *GPU_CHECKS,
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
