"""Check ``matmul-fp8``: scaled products of 8-bit floats, where the device has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.checks import rounding
from rocm_torch_selftest.checks.gpu import devices, usable_torch
from rocm_torch_selftest.context import backend_of
from rocm_torch_selftest.outcome import CheckFailedError, not_applicable, passed, skipped

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

SIZES = ((16, 32, 16), (64, 256, 96), (256, 1024, 128))  # multiples of 16: what the kernels take
# Hopper's 8-bit products are added up with about 13 bits after the leading one before they reach
# a float32 sum (DeepSeek-V3 technical report, section 3.3.2); the result is bfloat16.
HOW = rounding.Rounding(rounding.UNIT_ROUNDOFF["bfloat16"], 2.0**-13)
FNUZ_TARGETS = ("gfx940", "gfx941", "gfx942")
FN_TARGETS = ("gfx950", "gfx1200", "gfx1201")


def type_name(backend: str, target: str) -> str | None:
    """Return the 8-bit type that a device multiplies, or None where it has none.

    ``target`` is a gfx name, or ``sm_89`` and later on CUDA. MI300 has the variant without
    negative zero; later AMD GPUs and NVIDIA's have the one of the OCP standard.
    """
    if backend == "hip":
        plain = target.split(":")[0]
        if plain in FNUZ_TARGETS:
            return "float8_e4m3fnuz"
        return "float8_e4m3fn" if plain in FN_TARGETS else None
    digits = target.rpartition("_")[2]
    return "float8_e4m3fn" if digits.isdigit() and int(digits) >= 89 else None


def run(context: Context) -> Outcome:
    """Multiply on each device that has such a type."""
    torch, skip = usable_torch(context)
    if skip is not None:
        return skip
    worst: dict[str, float] = {}
    for device in devices(torch, context):
        name = _type_of(torch, device)
        if name is None or not hasattr(torch, "_scaled_mm") or not hasattr(torch, name):
            continue
        dtype = getattr(torch, name)
        for size in SIZES:
            context.stage(f"{size} product in {name} on {device}")
            try:
                exact_product(torch, device, dtype)
            except NotImplementedError:
                if device != "cpu":
                    raise
                return skipped("This torch has no 8-bit products on the CPU to rehearse with.")
            worst[device] = max(worst.get(device, 0.0), worst_error(torch, device, dtype, size))
    if not worst:
        return not_applicable("No device here multiplies 8-bit floats.")
    return passed("8-bit products are within what rounding allows.", fraction_of_bound=worst)


def _type_of(torch: Any, device: str) -> str | None:
    if device == "cpu":
        return "float8_e4m3fn"
    properties = torch.cuda.get_device_properties(device)
    if backend_of(torch) == "hip":
        return type_name("hip", str(properties.gcnArchName))
    return type_name("cuda", f"sm_{properties.major}{properties.minor}")


def scaled_product(torch: Any, left: Any, right: Any) -> Any:
    """Multiply two 8-bit matrices; the kernels want the second one by columns."""
    one = torch.ones((), dtype=torch.float32, device=left.device)
    columns = right.t().contiguous().t()
    got = torch._scaled_mm(left, columns, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    return got[0] if isinstance(got, tuple) else got  # a pair before torch 2.5


def exact_product(torch: Any, device: str, dtype: Any) -> None:
    """Multiply small whole numbers, whose product bfloat16 holds exactly."""
    rows, inner, columns = 16, 32, 16
    a = [[(3 * i + 2 * j) % 5 - 2 for j in range(inner)] for i in range(rows)]
    b = [[(5 * i + j) % 7 - 3 for j in range(columns)] for i in range(inner)]
    expected = [
        [sum(a[i][k] * b[k][j] for k in range(inner)) for j in range(columns)] for i in range(rows)
    ]
    left = torch.tensor(a, dtype=torch.float32).to(dtype).to(device)
    right = torch.tensor(b, dtype=torch.float32).to(dtype).to(device)
    got = scaled_product(torch, left, right).to("cpu", torch.float64).tolist()
    if got != expected:
        raise CheckFailedError(f"A product of whole numbers in {dtype} is wrong.", dtype=str(dtype))


def worst_error(torch: Any, device: str, dtype: Any, size: tuple[int, int, int]) -> float:
    """Multiply random matrices and return the largest error as a fraction of its bound."""
    rows, inner, columns = size
    generator = torch.Generator().manual_seed(8)
    left = torch.randn(rows, inner, generator=generator).to(dtype)
    right = torch.randn(inner, columns, generator=generator).to(dtype)
    got = scaled_product(torch, left.to(device), right.to(device)).to("cpu", torch.float64)
    a, b = left.double(), right.double()
    exact = a @ b
    bound = rounding.error_bound(torch, exact, a.abs() @ b.abs(), inner, HOW)
    what = f"{rows}x{inner}x{columns} product in {dtype}"
    return rounding.fraction_of_bound(torch, got, exact, bound, what)
