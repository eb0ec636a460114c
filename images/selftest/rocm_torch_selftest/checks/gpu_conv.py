"""Check ``conv``: convolutions (MIOpen, cuDNN) and their gradients agree with float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.checks import rounding
from rocm_torch_selftest.checks.gpu import first_device, usable_torch
from rocm_torch_selftest.outcome import passed

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

TYPES = ("float32", "float16", "bfloat16")
# Fast algorithms (Winograd, FFT) pass through larger values than a plain sum does: by up to 32
# for the tiles in use (Barabasz and others, 2020).
SPREAD = 32.0


@dataclass(frozen=True)
class Shape:
    """One convolution: batch, channels in and out, side of image and kernel, and how it steps."""

    batch: int
    channels: int
    filters: int
    side: int
    kernel: int
    stride: int = 1
    padding: int = 0
    groups: int = 1

    @property
    def name(self) -> str:
        """Return it as a word for reports."""
        groups = f", {self.groups} groups" if self.groups > 1 else ""
        return (
            f"{self.kernel}x{self.kernel} convolution of {self.channels} to {self.filters} "
            f"channels, stride {self.stride}{groups}"
        )


SHAPES = (
    Shape(2, 3, 8, 17, 3, padding=1),
    Shape(2, 16, 32, 14, 3, padding=1),
    Shape(3, 16, 24, 19, 5, stride=2, padding=2, groups=2),
    Shape(2, 32, 16, 9, 1),
    Shape(1, 8, 8, 33, 7, stride=2, padding=3, groups=8),
)


def run(context: Context) -> Outcome:
    """Convolve and differentiate in each type with TF32 off."""
    torch, skip = usable_torch(context)
    if skip is not None:
        return skip
    device = first_device(context)
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    worst: dict[str, float] = {}
    for dtype in TYPES:
        for shape in SHAPES:
            context.stage(f"{shape.name} in {dtype}")
            worst[dtype] = max(worst.get(dtype, 0.0), *errors(torch, device, dtype, shape))
    library = "MIOpen" if getattr(torch.version, "hip", None) else "cuDNN"
    return passed(
        f"{len(SHAPES)} convolutions and their gradients are right in {', '.join(TYPES)}.",
        fraction_of_bound=worst,
        library=library if device != "cpu" else "none",
        library_version=torch.backends.cudnn.version() if device != "cpu" else None,
    )


def how(dtype: str) -> rounding.Rounding:
    """Return how a convolution rounds.

    Halves are shortened on the way by fast algorithms, and where partial sums are kept in the
    type: by about two roundings of each factor.
    """
    plain = rounding.of_type(dtype)
    factors = 2 * plain.result if dtype != "float32" else 0.0
    return rounding.Rounding(plain.result, plain.sums, factors, SPREAD)


def errors(torch: Any, device: str, dtype: str, shape: Shape) -> list[float]:
    """Return the errors of result and both gradients as fractions of their bounds.

    Raises:
        CheckFailedError: one of them is farther off.
    """
    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(5)

    def numbers(*size: int) -> Any:
        return torch.randn(*size, generator=generator, dtype=torch.float64).to(kind)

    image = numbers(shape.batch, shape.channels, shape.side, shape.side)
    per_group = shape.channels // shape.groups
    weight = numbers(shape.filters, per_group, shape.kernel, shape.kernel)
    exact = _convolve(torch, image.double(), weight.double(), shape, None)
    slope = numbers(*exact[0].shape)
    exact = _convolve(torch, image.double(), weight.double(), shape, slope.double())
    magnitude = _convolve(
        torch, image.double().abs(), weight.double().abs(), shape, slope.double().abs()
    )
    got = _convolve(torch, image.to(device), weight.to(device), shape, slope.to(device))
    area = exact[0].shape[2] * exact[0].shape[3]
    window = shape.kernel * shape.kernel
    inner = (
        per_group * window,
        shape.filters // shape.groups * window,
        shape.batch * area,
    )
    names = ("result", "gradient by the image", "gradient by the weights")
    found = []
    for index, name in enumerate(names):
        bound = rounding.error_bound(
            torch, exact[index], magnitude[index], inner[index], how(dtype)
        )
        value = got[index].to("cpu", torch.float64)
        what = f"{name} of a {shape.name} in {dtype}"
        found.append(rounding.fraction_of_bound(torch, value, exact[index], bound, what))
    return found


def _convolve(torch: Any, image: Any, weight: Any, shape: Shape, slope: Any) -> tuple[Any, ...]:
    """Return the result and, given the slope of a loss, its gradients by image and weights."""
    x, w = image.detach().requires_grad_(), weight.detach().requires_grad_()
    y = torch.nn.functional.conv2d(
        x, w, stride=shape.stride, padding=shape.padding, groups=shape.groups
    )
    if slope is None:
        return (y.detach(),)
    y.backward(slope)
    return y.detach(), x.grad, w.grad
