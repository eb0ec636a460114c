"""Check ``train``: a small network learns on the GPU, and its loss falls as on the CPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Sequence

from rocm_torch_selftest.checks.gpu import first_device, usable_torch
from rocm_torch_selftest.outcome import failed, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

STEPS = 60
CLASSES = 10
BATCH = 64
SIDE = 16
WINDOW = 5  # steps that are averaged at either end
FALL = 0.5  # the loss must fall to this part of what it was
SAME = 1e-3  # relative difference of the first loss to the CPU's


@dataclass(frozen=True)
class Course:
    """How the losses of a training went.

    Attributes:
        first: mean of the first steps.
        last: mean of the last steps.
        roughness: the sum of all rises as a part of the fall; 0 where the loss never rose.
        largest_rise: the largest rise of one step, as a part of the first loss.
    """

    first: float
    last: float
    roughness: float
    largest_rise: float


def course(losses: Sequence[float]) -> Course:
    """Describe a series of at least two finite losses."""
    width = min(WINDOW, max(len(losses) // 2, 1))
    first, last = sum(losses[:width]) / width, sum(losses[-width:]) / width
    rises = [max(after - before, 0.0) for before, after in zip(losses, losses[1:])]
    fall = first - last
    roughness = sum(rises) / fall if fall > 0 else math.inf
    return Course(first, last, roughness, max(rises) / first if first else 0.0)


def judge(losses: Sequence[float]) -> str | None:
    """Return what is wrong with a training, as a sentence, or None."""
    for step, loss in enumerate(losses):
        if not math.isfinite(loss):
            return f"The loss of step {step} is {loss}."
    found = course(losses)
    if not found.last < FALL * found.first:
        return (
            f"The loss went from {found.first:.3g} to {found.last:.3g} in {len(losses)} steps; it "
            f"must fall below {FALL * found.first:.3g}."
        )
    return None


def run(context: Context) -> Outcome:
    """Train on the device, and the first step on the CPU as well."""
    torch, skip = usable_torch(context)
    if skip is not None:
        return skip
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    context.stage("first step on the CPU")
    expected = losses(torch, "cpu", 1)[0]
    context.stage("train")
    got = losses(torch, first_device(context), STEPS)
    problem = judge(got)
    if problem is None and abs(got[0] - expected) > SAME * expected:
        problem = f"The first loss is {got[0]:.6g}, and {expected:.6g} on the CPU."
    if problem is not None:
        return failed(problem, losses=[_finite(loss) for loss in got], first_on_cpu=expected)
    found = course(got)
    return passed(
        f"The loss fell from {found.first:.3g} to {found.last:.3g} in {STEPS} steps, roughness "
        f"{found.roughness:.3g}.",
        first=found.first,
        last=found.last,
        roughness=found.roughness,
        largest_rise=found.largest_rise,
        losses=[round(loss, 6) for loss in got],
    )


def _finite(loss: float) -> float | str:
    return loss if math.isfinite(loss) else str(loss)


def network(torch: Any) -> Any:
    """Make a small convolutional network with fixed weights."""
    torch.manual_seed(17)
    nn = torch.nn
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * (SIDE // 4) ** 2, CLASSES)),
    )


def batch(torch: Any, step: int) -> tuple[Any, Any]:
    """Make a batch: one fixed picture a class, under noise."""
    fixed = torch.Generator().manual_seed(1)
    pictures = torch.randn(CLASSES, 3, SIDE, SIDE, generator=fixed)
    generator = torch.Generator().manual_seed(1000 + step)
    labels = torch.randint(0, CLASSES, (BATCH,), generator=generator)
    noise = torch.randn(BATCH, 3, SIDE, SIDE, generator=generator)
    return pictures[labels] + noise, labels


def losses(torch: Any, device: str, steps: int) -> list[float]:
    """Train for some steps and return the loss of each."""
    model = network(torch).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    found = []
    for step in range(steps):
        images, labels = batch(torch, step)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        found.append(float(loss.item()))
    return found
