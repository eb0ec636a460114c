"""Check ``compile``: torch.compile makes kernels that compute the same as torch itself.

On a GPU Triton writes them; it needs a C compiler and, for its launcher, the headers of Python.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.checks import rounding
from rocm_torch_selftest.checks.gpu import first_device, usable_torch
from rocm_torch_selftest.outcome import failed, not_applicable, passed, skipped

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

KERNEL_SUFFIXES = (".hsaco", ".cubin")
LIMIT = 1e-5  # of the RMS, in float32


def run(context: Context) -> Outcome:
    """Compile a fused function and a training step, with empty caches."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(context.scratch / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(context.scratch / "triton")
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pool of processes to outlive the check
    torch, skip = usable_torch(context)
    if skip is not None:
        return skip
    if not hasattr(torch, "compile"):
        return not_applicable("This torch has no torch.compile.")
    missing = missing_tools()
    if missing:
        return skipped(f"torch.compile cannot be tried without {' and '.join(missing)}.")
    device = first_device(context)
    context.stage("compile and run a fused function")
    distance = compare_function(torch, device)
    context.stage("compile and run a training step")
    distance = max(distance, compare_step(torch, device))
    kernels = count_kernels(context.scratch)
    if device != "cpu" and not kernels:
        return failed("torch.compile ran and no kernel of Triton was made.", kernels=kernels)
    return passed(
        f"Compiled code agrees with eager code to {distance:.2g}; {kernels} kernels were made.",
        distance=distance,
        kernels=kernels,
    )


def missing_tools() -> list[str]:
    """Return which of the tools that compilation needs are not here."""
    missing = []
    compiler = os.environ.get("CC") or "gcc"
    if not any(shutil.which(name) for name in (compiler, "cc", "clang")):
        missing.append("a C compiler")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        missing.append(str(header))
    return missing


def count_kernels(folder: Path) -> int:
    """Count the GPU kernels that were compiled below a folder."""
    return sum(1 for file in folder.rglob("*") if file.suffix in KERNEL_SUFFIXES)


def _fused(x: Any, y: Any) -> Any:
    z = (x * 1.5 + y).tanh() * x.sigmoid()
    return z / (z.abs().sum(dim=-1, keepdim=True) + 1.0) + y.amax(dim=0)


def compare_function(torch: Any, device: str) -> float:
    """Return the distance of a compiled pointwise function with reductions from the eager one."""
    generator = torch.Generator().manual_seed(6)
    x, y = (torch.randn(127, 515, generator=generator).to(device) for _ in range(2))
    got = torch.compile(_fused, fullgraph=True)(x, y)
    exact = _fused(x.cpu().double(), y.cpu().double())
    value = got.to("cpu", torch.float64)
    return rounding.relative_distance(torch, value, exact, LIMIT, "compiled function")


def compare_step(torch: Any, device: str) -> float:
    """Return the distance of gradients through a compiled network from the eager ones."""
    torch.manual_seed(9)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(65, 33), nn.GELU(), nn.LayerNorm(33), nn.Linear(33, 7))
    exact_model = nn.Sequential(nn.Linear(65, 33), nn.GELU(), nn.LayerNorm(33), nn.Linear(33, 7))
    exact_model.load_state_dict(model.state_dict())
    given = torch.randn(31, 65, generator=torch.Generator().manual_seed(10))
    exact_model.double()(given.double()).pow(2).mean().backward()
    model = model.to(device)
    torch.compile(model)(given.to(device)).pow(2).mean().backward()
    got = model[0].weight.grad.to("cpu", torch.float64)
    exact = exact_model[0].weight.grad
    return rounding.relative_distance(torch, got, exact, LIMIT, "gradient of a compiled network")
