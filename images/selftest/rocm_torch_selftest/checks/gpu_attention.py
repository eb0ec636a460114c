"""Check ``attention``: each way to compute attention that this build has agrees with float64."""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.checks import rounding
from rocm_torch_selftest.checks.gpu import first_device, usable_torch
from rocm_torch_selftest.outcome import failed, not_applicable, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

MATH = "MATH"
BACKENDS = (MATH, "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
TYPES = ("float16", "bfloat16")
SHAPES = ((2, 4, 128, 64), (1, 3, 129, 64))  # batch, heads, length, width
# Scores and weights are rounded to the type before they are used; both have sizes around 1.
LIMIT_RESULT = 8.0  # times the unit roundoff of the type, of the RMS
LIMIT_GRADIENT = 24.0
# What torch says of a backend that this build or this GPU does not have.
_NOT_HERE = (
    "no available kernel",
    "no viable backend",
    "not compiled with",
    "was not built with",
    "execution plans",  # cuDNN has no plan for the shape
)


def run(context: Context) -> Outcome:
    """Try each backend alone; one that is not here is told, a wrong one fails."""
    torch, skip = usable_torch(context)
    if skip is not None:
        return skip
    try:
        attention = importlib.import_module("torch.nn.attention")
    except ImportError:
        return not_applicable("This torch has no choice of attention backends.")
    device = first_device(context)
    distances: dict[str, float] = {}
    absent: dict[str, str] = {}
    for name in BACKENDS:
        choice = getattr(attention.SDPBackend, name, None)
        if choice is None:
            absent[name] = "not known to this torch"
            continue
        for dtype in TYPES:
            context.stage(f"{name} in {dtype}")
            try:
                with attention.sdpa_kernel(choice):
                    distances[f"{name} {dtype}"] = worst_distance(torch, device, dtype)
            except RuntimeError as error:
                if not is_absence(str(error)):
                    raise
                absent[f"{name} {dtype}"] = str(error).splitlines()[0]
    return judge(distances, absent)


def is_absence(message: str) -> bool:
    """Tell whether torch says that a backend is not here, in contrast to a failure of it."""
    low = message.lower()
    return any(words in low for words in _NOT_HERE)


def judge(distances: dict[str, float], absent: dict[str, str]) -> Outcome:
    """Pass where the plain way works; the others may be missing, and are named."""
    data = {"distances": distances, "absent": absent}
    missing = [dtype for dtype in TYPES if f"{MATH} {dtype}" not in distances]
    if missing:
        return failed(f"Not even the plain attention works in {', '.join(missing)}.", **data)
    ways = sorted({name.split()[0] for name in distances})
    return passed(f"Attention is right by {', '.join(ways)}.", **data)


def worst_distance(torch: Any, device: str, dtype: str) -> float:
    """Compute attention and gradients for each shape, causal and not.

    Returns:
        The largest distance of a result, relative to its RMS.

    Raises:
        CheckFailedError: a result or gradient is farther off than the limit.
    """
    unit = rounding.UNIT_ROUNDOFF[dtype]
    worst = 0.0
    for shape in SHAPES:
        for causal in (False, True):
            generator = torch.Generator().manual_seed(3)
            given = [
                torch.randn(*shape, generator=generator, dtype=torch.float64).to(
                    getattr(torch, dtype)
                )
                for _ in range(4)
            ]
            exact = _plain(torch, [tensor.double() for tensor in given], causal)
            got = _attend(torch, [tensor.to(device) for tensor in given], causal)
            kind = "causal " if causal else ""
            for index, name in enumerate(("result", "gradient by q", "by k", "by v")):
                limit = (LIMIT_GRADIENT if index else LIMIT_RESULT) * unit
                value = got[index].to("cpu", torch.float64)
                what = f"{name} of {kind}attention {shape} in {dtype}"
                found = rounding.relative_distance(torch, value, exact[index], limit, what)
                worst = max(worst, found if index == 0 else 0.0)
    return worst


def _attend(torch: Any, given: list[Any], causal: bool) -> list[Any]:
    q, k, v = (tensor.detach().requires_grad_() for tensor in given[:3])
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    out.backward(given[3])
    return [out.detach(), q.grad, k.grad, v.grad]


def _plain(torch: Any, given: list[Any], causal: bool) -> list[Any]:
    """Compute the same by its definition."""
    q, k, v = (tensor.detach().requires_grad_() for tensor in given[:3])
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        length = q.shape[-2]
        above = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(above, float("-inf"))
    out = torch.softmax(scores, dim=-1) @ v
    out.backward(given[3])
    return [out.detach(), q.grad, k.grad, v.grad]
