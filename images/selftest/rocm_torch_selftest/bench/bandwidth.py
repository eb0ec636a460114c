"""The job ``bandwidth``: bytes a second that the device's own memory moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.bench.measure import Plan, measure

if TYPE_CHECKING:
    from rocm_torch_selftest.bench.worker import Bench

BYTES = 2 << 30
TINY_BYTES = 1 << 20
_PART_OF_FREE = 8  # two buffers and what else needs room


def run(bench: Bench) -> dict[str, Any]:
    """Copy and scale a buffer; bytes read and bytes written both count."""
    torch, tiny = bench.torch, bench.device == "cpu"
    size = TINY_BYTES
    if not tiny:
        size = min(BYTES, torch.cuda.mem_get_info()[0] // _PART_OF_FREE)
    source = torch.ones(size // 4, dtype=torch.float32, device=bench.device)
    target = torch.empty_like(source)
    steps = {
        "copy": lambda: target.copy_(source),
        "scale": lambda: torch.mul(source, 1.5, out=target),
    }
    rows = []
    for name, step in steps.items():
        found = measure(step, bench.wait, bench.clock(), Plan(**bench.request["plan"]))
        row = {"operation": name, "bytes": 2 * source.numel() * 4, **found.to_json()}
        median = found.steady.interval.median if found.steady else None
        row["bytes_per_s"] = row["bytes"] / median if median else None
        rows.append(row)
    return {"rows": rows, "tiny": tiny, "slowdown": bench.slowdown}
