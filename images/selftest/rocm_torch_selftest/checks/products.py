"""Matrix products and how far one may be from the true value.

For a product of inner size k, computed with unit roundoff u in any order of summation, each
element is within ``k u / (1 - k u) * (|A| |B|)`` of the exact one (Higham, Accuracy and Stability
of Numerical Algorithms, section 3.5). Rounding errors have both signs, so that in practice
``6 sqrt(k)`` stands in the place of k (Higham and Mary, 2019): a sharper bound from k = 36 on.
Rounding the element to the result's type adds u of that type times its magnitude.
"""

from __future__ import annotations

import math
from typing import Any

from rocm_torch_selftest.outcome import CheckFailedError

# Unit roundoff by name of the type; half and bfloat16 products are summed in float32.
UNIT_ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}
CERTAINTY = 6.0  # standard deviations of a random walk of rounding errors
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


def worst_error(torch: Any, device: str, dtype: Any, size: tuple[int, int, int]) -> float:
    """Multiply random matrices and return the largest error as a fraction of its bound.

    Args:
        torch: the module.
        device: ``cpu``, ``cuda:0``, ...
        dtype: type of the factors and of the result, less exact than float64.
        size: rows, inner size and columns.

    Raises:
        CheckFailedError: an element is not finite or farther off than the bound.
    """
    rows, inner, columns = size
    generator = torch.Generator().manual_seed(20_240_229)
    left = torch.randn(rows, inner, generator=generator, dtype=torch.float64).to(dtype)
    right = torch.randn(inner, columns, generator=generator, dtype=torch.float64).to(dtype)
    got = (left.to(device) @ right.to(device)).to("cpu", torch.float64)
    return error_fraction(torch, got, left.double(), right.double(), str(dtype).split(".")[-1])


def error_fraction(torch: Any, got: Any, left: Any, right: Any, name: str) -> float:
    """Return the largest error of ``got`` as a fraction of its bound; see ``worst_error``."""
    inner = left.shape[1]
    exact = left @ right
    terms = min(float(max(inner, 2)), CERTAINTY * math.sqrt(max(inner, 2)))
    summed = terms * min(UNIT_ROUNDOFF[name], UNIT_ROUNDOFF["float32"])
    bound = summed / (1 - summed) * (left.abs() @ right.abs())
    bound = bound + UNIT_ROUNDOFF[name] * (exact.abs() + bound) + torch.finfo(torch.float32).tiny
    shape = "x".join(str(number) for number in (left.shape[0], inner, right.shape[1]))
    if got.shape != exact.shape or not bool(torch.isfinite(got).all()):
        raise CheckFailedError(f"The {shape} product in {name} has a wrong shape or is not finite.")
    fraction = float(((got - exact).abs() / bound).max())
    if not fraction <= 1.0:
        error = float((got - exact).abs().max())
        raise CheckFailedError(
            f"The {shape} product in {name} is off by up to {error:.3g}, "
            f"{fraction:.3g} times what rounding explains.",
            size=shape,
            dtype=name,
            error=error,
            fraction_of_bound=fraction,
        )
    return fraction
