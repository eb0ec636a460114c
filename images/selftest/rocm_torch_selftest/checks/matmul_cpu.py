"""Check ``matmul-cpu``: matrix products on the CPU are right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocm_torch_selftest.checks import products
from rocm_torch_selftest.context import Context, load_torch
from rocm_torch_selftest.outcome import passed

if TYPE_CHECKING:
    from rocm_torch_selftest.outcome import Outcome


def run(context: Context) -> Outcome:
    """Compare products with whole numbers and with a float64 reference."""
    context.stage("import torch")
    torch = load_torch()
    for dtype in (torch.float64, torch.float32):
        context.stage(f"exact product in {dtype}")
        products.exact_product(torch, "cpu", dtype)
    context.stage("float64 against sums by Python")
    fractions = {"float64": products.reference_error(torch)}
    context.stage("float32 against float64")
    fractions["float32"] = max(
        products.worst_error(torch, "cpu", torch.float32, size) for size in products.SIZES
    )
    return passed(
        f"Exact in whole numbers; {len(products.SIZES)} sizes in float32 within "
        f"{fractions['float32']:.1%} of the error that rounding allows.",
        fraction_of_bound=fractions,
        threads=torch.get_num_threads(),
    )
