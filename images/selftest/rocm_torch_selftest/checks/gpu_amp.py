"""Check ``amp``: training steps under autocast with a gradient scaler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.checks import rounding
from rocm_torch_selftest.checks.gpu import first_device, usable_torch
from rocm_torch_selftest.outcome import CheckFailedError, not_applicable, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

TYPES = ("float16", "bfloat16")
WIDTH = 96
LIMIT = 40.0  # times the unit roundoff: three layers, forward and back, in the type


def run(context: Context) -> Outcome:
    """Compare a scaled step with a step in float32; then let one overflow and be left out."""
    torch, skip = usable_torch(context)
    if skip is not None:
        return skip
    device = first_device(context)
    scaler = _scaler(torch, device)
    if scaler is None:
        return not_applicable("This torch has no gradient scaler for this device.")
    context.stage("gradients in float32")
    exact, _ = gradients(torch, device, None, None)
    distances: dict[str, float] = {}
    for name in TYPES:
        context.stage(f"gradients under autocast in {name}")
        got, dtype = gradients(torch, device, getattr(torch, name), scaler)
        if str(dtype) != f"torch.{name}":
            raise CheckFailedError(f"Autocast to {name} multiplied in {dtype}.", dtype=str(dtype))
        limit = LIMIT * rounding.UNIT_ROUNDOFF[name]
        what = f"gradient of a step under autocast in {name}"
        distances[name] = rounding.relative_distance(torch, got, exact, limit, what)
    context.stage("a step whose gradients overflow")
    scales = overflow(torch, device, _scaler(torch, device))
    return passed(
        "Autocast computes right gradients, and the scaler leaves an overflowing step out.",
        distances=distances,
        scales=scales,
    )


def _scaler(torch: Any, device: str) -> Any:
    kind = device.split(":")[0]
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(kind, init_scale=1024.0)
    return torch.cuda.amp.GradScaler(init_scale=1024.0) if kind == "cuda" else None


def _model(torch: Any, device: str) -> Any:
    torch.manual_seed(23)
    nn = torch.nn
    layers = (nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())
    return nn.Sequential(*layers, nn.Linear(WIDTH, 8)).to(device)


def gradients(torch: Any, device: str, dtype: Any, scaler: Any) -> tuple[Any, Any]:
    """Return the gradient of the middle layer's weights, and the type that it multiplied in."""
    model = _model(torch, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images = torch.randn(48, WIDTH, generator=torch.Generator().manual_seed(4)).to(device)
    if dtype is None:
        out = model(images)
        out.pow(2).mean().backward()
        return model[2].weight.grad.detach().to("cpu", torch.float64), out.dtype
    with torch.autocast(device_type=device.split(":")[0], dtype=dtype):
        out = model(images)
        loss = out.float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    found = model[2].weight.grad.detach().to("cpu", torch.float64)
    scaler.step(optimizer)
    scaler.update()
    return found, out.dtype


def overflow(torch: Any, device: str, scaler: Any) -> dict[str, float]:
    """Make gradients infinite: the weights must stay and the scale must fall.

    Raises:
        CheckFailedError: they do not.
    """
    model = _model(torch, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model[0].weight.detach().clone()
    scale = float(scaler.get_scale())
    out = model(torch.ones(4, WIDTH, device=device))
    scaler.scale((out * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    after = float(scaler.get_scale())
    if not torch.equal(model[0].weight.detach(), before):
        raise CheckFailedError("The scaler took a step with infinite gradients.")
    if not after < scale:
        raise CheckFailedError(f"The scale stays {after:g} after gradients that overflowed.")
    return {"before": scale, "after": after}
