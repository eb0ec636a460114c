"""The job of a worker that runs one workload."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.bench import caches, device_state
from rocm_torch_selftest.bench.measure import Plan, measure
from rocm_torch_selftest.bench.steps import build_step
from rocm_torch_selftest.bench.workloads import Workload

if TYPE_CHECKING:
    from rocm_torch_selftest.bench.worker import Bench


def run(bench: Bench) -> dict[str, Any]:
    """Build the model, measure its steps, then ask the device how it was doing."""
    torch, device = bench.torch, bench.device
    settings = use_benchmark_settings(torch)
    workload = Workload(**bench.request["workload"])
    before = caches.count_files(os.environ, Path.home())
    first_kernel_s = bench.first_kernel()
    step = build_step(torch, workload, device)
    bench.wait()
    found = measure(step, bench.wait, bench.clock(), Plan(**bench.request["plan"]))
    state = device_state.under_load(torch, device, step)
    after = caches.count_files(os.environ, Path.home())
    return {
        **found.to_json(),
        "first_kernel_s": first_kernel_s,
        "import_s": bench.import_s,
        "slowdown": bench.slowdown,
        "settings": settings,
        "memory": memory(torch, device),
        "device": state,
        "caches": {
            "before": before,
            "after": after,
            "state": caches.temperature(before, bench.backend),
        },
        "backend": bench.backend,
    }


def use_benchmark_settings(torch: Any) -> dict[str, Any]:
    """Set the article's switches, and return what they and the environment's are."""
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    return {
        "cudnn.benchmark": bool(torch.backends.cudnn.benchmark),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "fused_attention": hasattr(torch.nn.functional, "scaled_dot_product_attention"),
        "MIOPEN_FIND_MODE": os.environ.get("MIOPEN_FIND_MODE"),
        "PYTORCH_TUNABLEOP_ENABLED": os.environ.get("PYTORCH_TUNABLEOP_ENABLED"),
        "threads": torch.get_num_threads(),
    }


def memory(torch: Any, device: str) -> dict[str, Any] | None:
    """Return bytes: torch's peaks and, beside them, what the device itself counts as used."""
    if device == "cpu":
        return None
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated_peak": torch.cuda.max_memory_allocated(),
        "reserved_peak": torch.cuda.max_memory_reserved(),
        "device_used": total - free,
        "device_total": total,
    }
