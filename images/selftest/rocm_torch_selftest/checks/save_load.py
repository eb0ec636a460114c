"""Check ``save-load``: tensors and a model's state come back from a file as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.context import Context, load_torch
from rocm_torch_selftest.outcome import CheckFailedError, passed

if TYPE_CHECKING:
    from pathlib import Path

    from rocm_torch_selftest.outcome import Outcome

TYPES = ("float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool")


def run(context: Context) -> Outcome:
    """Save and load tensors of several types, and the state of a small model."""
    context.stage("import torch")
    torch = load_torch()
    context.stage("save and load tensors")
    size = _tensors(torch, context.scratch / "tensors.pt")
    context.stage("save and load a state_dict")
    size += _state(torch, context.scratch / "state.pt")
    return passed(
        f"Tensors of {len(TYPES)} types and a model's state_dict came back equal ({size} bytes).",
        bytes=size,
        types=list(TYPES),
    )


def _load(torch: Any, path: Path) -> Any:
    try:
        return torch.load(path, weights_only=True)
    except TypeError:  # before torch 1.13
        return torch.load(path)


def _tensors(torch: Any, path: Path) -> int:
    base = torch.arange(24).reshape(4, 6) % 7
    saved = {name: base.to(getattr(torch, name)) for name in TYPES}
    torch.save(saved, path)
    loaded = _load(torch, path)
    if set(loaded) != set(saved):
        raise CheckFailedError(f"Saved the keys {sorted(saved)} and loaded {sorted(loaded)}.")
    for name, tensor in saved.items():
        if loaded[name].dtype != tensor.dtype or not torch.equal(loaded[name], tensor):
            raise CheckFailedError(f"A saved tensor of type {name} did not come back equal.")
    return path.stat().st_size


def _state(torch: Any, path: Path) -> int:
    def model(seed: int) -> Any:
        torch.manual_seed(seed)
        layers = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
        return torch.nn.Sequential(*layers).eval()

    first, second = model(1), model(2)
    example = torch.linspace(-1, 1, 18).reshape(3, 6)
    with torch.no_grad():
        if torch.equal(first(example), second(example)):
            raise CheckFailedError("Two models made from different seeds give the same result.")
        torch.save(first.state_dict(), path)
        second.load_state_dict(_load(torch, path), strict=True)
        if not torch.equal(first(example), second(example)):
            raise CheckFailedError("A model with a loaded state_dict gives another result.")
    return path.stat().st_size
