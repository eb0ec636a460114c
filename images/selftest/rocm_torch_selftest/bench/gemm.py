"""The job ``gemm``: TFLOP/s of matrix products by dtype and size, and beside them a bare loop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.bench.measure import Plan, measure
from rocm_torch_selftest.bench.steps import SEED

if TYPE_CHECKING:
    from rocm_torch_selftest.bench.worker import Bench

SIZES = (4096, 8192)
TINY_SIZES = (64, 128)
BARE_DTYPE = "bf16"
_BARE_S = 0.7
# Name in the document: torch's dtype, float32 matmul precision.
ROWS = {
    "fp32": ("float32", "highest"),
    "tf32": ("float32", "high"),
    "fp16": ("float16", "highest"),
    "bf16": ("bfloat16", "highest"),
}
_ON_CPU = ("fp32", "bf16")


def run(bench: Bench) -> dict[str, Any]:
    """Measure each dtype and size; the bare loop runs before and after its twin."""
    tiny = bench.device == "cpu"
    sizes = TINY_SIZES if tiny else SIZES
    wanted = bench.request.get("dtype")
    rows = []
    for name, (dtype, precision) in ROWS.items():
        if (tiny and name not in _ON_CPU) or (wanted and name not in (wanted, BARE_DTYPE)):
            continue
        bench.torch.set_float32_matmul_precision(precision)
        rows += [_row(bench, name, dtype, size, size == sizes[-1]) for size in sizes]
    return {"rows": rows, "tiny": tiny, "slowdown": bench.slowdown}


def _row(bench: Bench, name: str, dtype: str, size: int, largest: bool) -> dict[str, Any]:
    torch = bench.torch
    torch.manual_seed(SEED)
    kind = getattr(torch, dtype)
    left, right = (torch.randn(size, size, device=bench.device, dtype=kind) for _ in range(2))

    def step() -> Any:
        return torch.matmul(left, right)

    bare = largest and name == BARE_DTYPE
    before = _bare_s(bench, step) if bare else None
    found = measure(step, bench.wait, bench.clock(), Plan(**bench.request["plan"]))
    work = 2 * size**3 / 1e12
    row = {"dtype": name, "size": size, **found.to_json()}
    row["tflops"] = work / found.steady.interval.median if found.steady else None
    if before is not None:
        best = min(before, _bare_s(bench, step))
        row["bare_tflops"] = work / best
        row["fraction_of_bare"] = row["tflops"] / row["bare_tflops"] if row["tflops"] else None
    return row


def _bare_s(bench: Bench, step: Any) -> float:
    """Return the seconds of a product in a loop with nothing else in it, timed as a whole."""
    for _ in range(3):
        step()
    bench.wait()
    started = time.perf_counter()
    step()
    bench.wait()
    count = max(10, int(_BARE_S / max(time.perf_counter() - started, 1e-4)))
    started = time.perf_counter()
    for _ in range(count):
        step()
    bench.wait()
    return (time.perf_counter() - started) / count
