"""How far a computed sum of products may be from the true one.

For an inner size k, computed with unit roundoff u in any order of summation, each element is
within ``k u / (1 - k u) * (|A| |B|)`` of the exact one (Higham, Accuracy and Stability of
Numerical Algorithms, section 3.5). Rounding errors have both signs, so that in practice
``6 sqrt(k)`` stands in the place of k (Higham and Mary, 2019): a sharper bound from k = 36 on.
Rounding the element to the result's type adds u of that type times its magnitude.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rocm_torch_selftest.outcome import CheckFailedError

# Unit roundoff by name of the type; half and bfloat16 products are summed in float32.
UNIT_ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}
TF32_ROUNDOFF = 2.0**-11  # TF32 and XF32 keep 10 bits of the significand of each factor
CERTAINTY = 6.0  # standard deviations of a random walk of rounding errors


@dataclass(frozen=True)
class Rounding:
    """How an operation rounds.

    Attributes:
        result: unit roundoff of the result's type.
        sums: unit roundoff of the sums.
        factors: unit roundoff of the factors, where an operation shortens them first.
        spread: how much larger than a plain sum the intermediate values may be.
    """

    result: float
    sums: float
    factors: float = 0.0
    spread: float = 1.0


def of_type(name: str, *, tf32: bool = False) -> Rounding:
    """Return how a matrix product in a type rounds; TF32 concerns float32 only."""
    unit = UNIT_ROUNDOFF[name]
    factors = TF32_ROUNDOFF if tf32 and name == "float32" else 0.0
    return Rounding(unit, min(unit, UNIT_ROUNDOFF["float32"]), factors)


def relative_bound(inner: int, rounding: Rounding) -> float:
    """Return the largest error of a sum of ``inner`` products, relative to ``|A| |B|``."""
    terms = min(float(max(inner, 2)), CERTAINTY * math.sqrt(max(inner, 2)))
    summed = rounding.spread * terms * rounding.sums
    shortened = 2 * rounding.factors + rounding.factors**2
    return shortened + (1 + shortened) * summed / (1 - min(summed, 0.5))


def error_bound(torch: Any, exact: Any, magnitude: Any, inner: int, rounding: Rounding) -> Any:
    """Return the bound of each element.

    Args:
        torch: the module.
        exact: the true values, in float64.
        magnitude: the same sums over absolute values, in float64.
        inner: how many products one element adds up.
        rounding: how the operation rounds.
    """
    bound = relative_bound(inner, rounding) * magnitude
    return bound + rounding.result * (exact.abs() + bound) + torch.finfo(torch.float32).tiny


def fraction_of_bound(torch: Any, got: Any, exact: Any, bound: Any, what: str) -> float:
    """Return the largest error as a fraction of its bound.

    Raises:
        CheckFailedError: a shape is wrong, or an element is not finite or farther off.
    """
    if got.shape != exact.shape or not bool(torch.isfinite(got).all()):
        raise CheckFailedError(f"The {what} has a wrong shape or is not finite.", what=what)
    fraction = float(((got - exact).abs() / bound).max())
    if not fraction <= 1.0:
        error = float((got - exact).abs().max())
        raise CheckFailedError(
            f"The {what} is off by up to {error:.3g}, {fraction:.3g} times what rounding explains.",
            what=what,
            error=error,
            fraction_of_bound=fraction,
        )
    return fraction


def root_mean_square(values: Any) -> float:
    """Return the root of the mean square of a tensor."""
    return math.sqrt(float(values.double().pow(2).mean()))


def relative_distance(torch: Any, got: Any, exact: Any, limit: float, what: str) -> float:
    """Return the RMS of the error relative to the RMS of the values.

    For operations whose single elements have no useful bound (softmax, a training step).

    Raises:
        CheckFailedError: a shape is wrong, a value is not finite, or the distance is too large.
    """
    if got.shape != exact.shape or not bool(torch.isfinite(got).all()):
        raise CheckFailedError(f"The {what} has a wrong shape or is not finite.", what=what)
    distance = root_mean_square(got - exact) / max(root_mean_square(exact), 1e-30)
    if not distance <= limit:
        raise CheckFailedError(
            f"The {what} is off by {distance:.3g} of its size; {limit:.3g} is allowed.",
            what=what,
            distance=distance,
            limit=limit,
        )
    return distance
