"""Check ``autograd``: gradients equal the ones that calculus gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.context import Context, load_torch
from rocm_torch_selftest.outcome import CheckFailedError, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.outcome import Outcome

TOLERANCE = 1e-12  # in float64, relative to the largest element


def run(context: Context) -> Outcome:
    """Differentiate a polynomial and a least-squares loss."""
    context.stage("import torch")
    torch = load_torch()
    generator = torch.Generator().manual_seed(7)

    def variable(*size: int) -> Any:
        return torch.randn(*size, generator=generator, dtype=torch.float64).requires_grad_()

    context.stage("gradient of a polynomial")
    x, w = variable(31), variable(31)
    (x**3 + 2 * x * w).sum().backward()
    errors = {
        "polynomial by x": _error(x.grad, 3 * x.detach() ** 2 + 2 * w.detach()),
        "polynomial by w": _error(w.grad, 2 * x.detach()),
    }
    context.stage("gradient of a least-squares loss")
    a, y = variable(19, 5).detach(), variable(19, 3).detach()
    b = variable(5, 3)
    (0.5 * (a @ b - y).pow(2).sum()).backward()
    errors["least squares"] = _error(b.grad, a.T @ (a @ b.detach() - y))
    return passed(
        f"{len(errors)} gradients equal the analytic ones to {max(errors.values()):.1e}.",
        relative_errors=errors,
    )


def _error(got: Any, expected: Any) -> float:
    if got is None:
        raise CheckFailedError("backward() left no gradient.")
    error = float((got - expected).abs().max() / expected.abs().max())
    if not error <= TOLERANCE:
        raise CheckFailedError(
            f"A gradient is off by {error:.3g} of its size; {TOLERANCE:g} is allowed.",
            relative_error=error,
        )
    return error
