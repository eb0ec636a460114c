"""Check ``matmul``: products on each GPU agree with float64 on the CPU, type by type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.checks import products
from rocm_torch_selftest.checks.gpu import devices, usable_torch
from rocm_torch_selftest.outcome import passed

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

TYPES = ("float32", "float16", "bfloat16")


def run(context: Context) -> Outcome:
    """Multiply odd and even sizes in each type with all reduced-precision modes off."""
    torch, skip = usable_torch(context)
    if skip is not None:
        return skip
    switches = full_precision(torch)
    worst: dict[str, dict[str, float]] = {}
    for device in devices(torch, context):
        worst[device] = {}
        for name in TYPES:
            dtype = getattr(torch, name)
            context.stage(f"exact product in {name} on {device}")
            products.exact_product(torch, device, dtype)
            context.stage(f"random products in {name} on {device}")
            worst[device][name] = max(
                products.worst_error(torch, device, dtype, size) for size in products.SIZES
            )
    return passed(
        f"Products in {', '.join(TYPES)} are within what rounding allows on {', '.join(worst)}.",
        fraction_of_bound=worst,
        switches=switches,
    )


def full_precision(torch: Any) -> dict[str, bool]:
    """Turn reduced precision off, as far as this torch has the switches; return their state."""
    matmul = torch.backends.cuda.matmul
    names = (
        "allow_tf32",
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    )
    present = [name for name in names if has_switch(matmul, name)]
    for name in present:
        setattr(matmul, name, False)
    return {name: bool(getattr(matmul, name)) for name in present}


def has_switch(matmul: Any, name: str) -> bool:
    """Tell whether torch has a switch; torch 1.13 asserts where others say AttributeError."""
    try:
        getattr(matmul, name)
    except (AttributeError, AssertionError):
        return False
    return True
