"""Check ``precision``: the switches for reduced precision do what they say, on and off.

They are global state, and a tolerance that is right for one position is wrong for the other:
float32 products with TF32 (XF32 on MI300) are right to three digits, without it to seven.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.checks import rounding
from rocm_torch_selftest.checks.gpu import first_device, usable_torch
from rocm_torch_selftest.checks.gpu_matmul import has_switch
from rocm_torch_selftest.outcome import CheckFailedError, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

SIZE = (256, 1024, 192)
TF32 = "allow_tf32"
SWITCHES = (
    (TF32, "float32"),
    ("allow_fp16_reduced_precision_reduction", "float16"),
    ("allow_bf16_reduced_precision_reduction", "bfloat16"),
)


def judge(dtype: str, error: float, inner: int, *, reduced: bool) -> str | None:
    """Judge a measured error; return what is wrong as a sentence, or None.

    Args:
        dtype: ``float32``, ``float16`` or ``bfloat16``.
        error: largest error of a product before it is rounded to its type, relative to |A| |B|.
        inner: inner size of the product.
        reduced: whether the type's switch was on.
    """
    allowed = rounding.relative_bound(inner, rounding_of(dtype, reduced=reduced))
    if error <= allowed:
        return None
    position = "on" if reduced else "off"
    return (
        f"A {dtype} product with reduced precision {position} is off by {error:.2g} of its terms; "
        f"{allowed:.2g} is allowed."
    )


def rounding_of(dtype: str, *, reduced: bool) -> rounding.Rounding:
    """Return how a product rounds; reduced reductions add partial sums in the half type itself.

    Only the last few partial sums are added so, hence one more rounding of each factor's size
    and not of each term.
    """
    if dtype == "float32":
        return rounding.of_type(dtype, tf32=reduced)
    plain = rounding.of_type(dtype)
    factors = plain.result if reduced else 0.0
    return rounding.Rounding(plain.result, plain.sums, factors)


def run(context: Context) -> Outcome:
    """Multiply with each switch off and on; put it back as it was found."""
    torch, skip = usable_torch(context)
    if skip is not None:
        return skip
    device = first_device(context)
    matmul = torch.backends.cuda.matmul
    errors: dict[str, dict[str, float]] = {}
    for name, dtype in SWITCHES:
        if not has_switch(matmul, name):
            continue
        before = getattr(matmul, name)
        errors[name] = {}
        try:
            for reduced in (False, True):
                position = "on" if reduced else "off"
                context.stage(f"{dtype} product with {name} {position}")
                errors[name][position] = _measured(torch, device, name, dtype, reduced)
        finally:
            setattr(matmul, name, before)
    shortened = errors.get(TF32, {}).get("on", 0.0) > 4 * errors.get(TF32, {}).get("off", 1.0)
    used = "is used when allowed" if shortened else "is not used here"
    return passed(
        f"Products keep to {', '.join(errors)} on and off; TF32/XF32 {used}.",
        relative_errors=errors,
        tf32_used=shortened,
        matmul_precision=torch.get_float32_matmul_precision(),
    )


def _measured(torch: Any, device: str, switch: str, dtype: str, reduced: bool) -> float:
    matmul = torch.backends.cuda.matmul
    setattr(matmul, switch, reduced)
    if bool(getattr(matmul, switch)) is not reduced:
        raise CheckFailedError(f"The switch {switch} does not stay {reduced}.", switch=switch)
    error = relative_error(torch, device, dtype)
    problem = judge(dtype, error, SIZE[1], reduced=reduced)
    if problem is not None:
        raise CheckFailedError(problem, switch=switch, reduced=reduced, error=error)
    return error


def relative_error(torch: Any, device: str, dtype: str) -> float:
    """Return the largest error of a product relative to |A| |B|, without the result's rounding."""
    rows, inner, columns = SIZE
    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(32)
    left = torch.randn(rows, inner, generator=generator, dtype=torch.float64).to(kind)
    right = torch.randn(inner, columns, generator=generator, dtype=torch.float64).to(kind)
    got = (left.to(device) @ right.to(device)).to("cpu", torch.float64)
    exact = left.double() @ right.double()
    magnitude = left.double().abs() @ right.double().abs()
    own = rounding.UNIT_ROUNDOFF[dtype] * exact.abs() if dtype != "float32" else 0.0
    beyond = ((got - exact).abs() - own).clamp(min=0.0)
    return float((beyond / magnitude).max())
