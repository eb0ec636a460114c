"""Matrix products, compared with whole numbers, with sums by Python and with float64."""

from __future__ import annotations

import math
from typing import Any

from rocm_torch_selftest.checks import rounding
from rocm_torch_selftest.checks.rounding import UNIT_ROUNDOFF
from rocm_torch_selftest.outcome import CheckFailedError

SIZES = ((1, 1, 1), (17, 31, 13), (64, 64, 64), (129, 257, 65), (256, 1024, 128))


def exact_product(torch: Any, device: str, dtype: Any) -> None:
    """Multiply small whole numbers, whose product every type holds exactly, and compare.

    The expected numbers are computed by Python, so that torch is not compared with itself.

    Raises:
        CheckFailedError: an element differs.
    """
    rows, inner, columns = 7, 5, 9
    a = [[(3 * i + 2 * j) % 5 - 2 for j in range(inner)] for i in range(rows)]
    b = [[(5 * i + j) % 7 - 3 for j in range(columns)] for i in range(inner)]
    expected = [
        [sum(a[i][k] * b[k][j] for k in range(inner)) for j in range(columns)] for i in range(rows)
    ]
    left = torch.tensor(a, dtype=dtype, device=device)
    right = torch.tensor(b, dtype=dtype, device=device)
    got = (left @ right).to("cpu", torch.float64).tolist()
    if got != expected:
        raise CheckFailedError(
            f"A {rows}x{inner} by {inner}x{columns} product of whole numbers in {dtype} is wrong.",
            got=got,
            expected=expected,
        )


def reference_error(torch: Any) -> float:
    """Check the float64 reference itself against correctly rounded sums by Python.

    Returns:
        The largest error of a sample of elements, as a fraction of its bound.

    Raises:
        CheckFailedError: an element is farther off than the bound.
    """
    rows, inner, columns = 129, 257, 65
    generator = torch.Generator().manual_seed(1_123_581_321)
    left = torch.randn(rows, inner, generator=generator, dtype=torch.float64)
    right = torch.randn(inner, columns, generator=generator, dtype=torch.float64)
    product = left @ right
    worst = 0.0
    for index in range(columns):
        terms = [a * b for a, b in zip(left[2 * index].tolist(), right[:, index].tolist())]
        bound = inner * UNIT_ROUNDOFF["float64"] * 1.01 * math.fsum(map(abs, terms))
        error = abs(float(product[2 * index, index]) - math.fsum(terms))
        if not error <= bound:
            raise CheckFailedError(
                f"The {rows}x{inner}x{columns} product in float64 is off by {error:.3g}; "
                f"rounding explains {bound:.3g}.",
                dtype="float64",
                error=error,
            )
        worst = max(worst, error / bound)
    return worst


def worst_error(
    torch: Any, device: str, dtype: Any, size: tuple[int, int, int], *, tf32: bool = False
) -> float:
    """Multiply random matrices and return the largest error as a fraction of its bound.

    Args:
        torch: the module.
        device: ``cpu``, ``cuda:0``, ...
        dtype: type of the factors and of the result, less exact than float64.
        size: rows, inner size and columns.
        tf32: the product may shorten float32 factors.

    Raises:
        CheckFailedError: an element is not finite or farther off than the bound.
    """
    rows, inner, columns = size
    generator = torch.Generator().manual_seed(20_240_229)
    left = torch.randn(rows, inner, generator=generator, dtype=torch.float64).to(dtype)
    right = torch.randn(inner, columns, generator=generator, dtype=torch.float64).to(dtype)
    got = (left.to(device) @ right.to(device)).to("cpu", torch.float64)
    name = str(dtype).split(".")[-1]
    how = rounding.of_type(name, tf32=tf32)
    exact, magnitude = left.double() @ right.double(), left.double().abs() @ right.double().abs()
    bound = rounding.error_bound(torch, exact, magnitude, inner, how)
    what = f"{rows}x{inner}x{columns} product in {name}"
    return rounding.fraction_of_bound(torch, got, exact, bound, what)
