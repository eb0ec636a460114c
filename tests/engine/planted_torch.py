"""A package called torch that loads the real one and plants one fault in it.

It is laid as ``torch/__init__.py`` in front of the real torch on PYTHONPATH. The fault is named
by the variable PLANTED_FAULT.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent


def real_torch() -> Any:
    """Import the torch that lies behind this package, under its own name."""
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    del sys.modules["torch"]
    importlib.invalidate_caches()
    return importlib.import_module("torch")


def wrong_product(torch: Any) -> None:
    """Make one element of each bfloat16 product wrong by an eighth of the largest."""
    right = torch.Tensor.__matmul__

    def multiply(left: Any, other: Any) -> Any:
        product = right(left, other)
        if product.dtype == torch.bfloat16 and product.ndim == 2:
            product[-1, -1] += 0.125 * product.abs().max() + 1.0
        return product

    torch.Tensor.__matmul__ = multiply


def lame_optimizer(torch: Any) -> None:
    """Make training steps without effect."""
    torch.optim.SGD.step = lambda *_args, **_words: None


def broken_convolution(torch: Any) -> None:
    """Make convolutions forget the padding's share: a shift by one."""
    right = torch.nn.functional.conv2d

    def convolve(image: Any, *rest: Any, **words: Any) -> Any:
        out = right(image, *rest, **words)
        return out if image.dtype == torch.float64 else out.roll(1, -1)

    torch.nn.functional.conv2d = convolve


def busy_waiting(_torch: Any) -> None:
    """Keep a core busy from the first import on."""

    def spin() -> None:
        while True:
            sum(range(1000))

    threading.Thread(target=spin, daemon=True).start()


def lost_bytes(torch: Any) -> None:
    """Lose the last byte of large copies."""
    right = torch.Tensor.copy_

    def copy(target: Any, source: Any, **words: Any) -> Any:
        done = right(target, source, **words)
        if target.numel() > 1_000_000:
            target.view(-1)[-1] += 1
        return done

    torch.Tensor.copy_ = copy


FAULTS = {
    "wrong-product": wrong_product,
    "lame-optimizer": lame_optimizer,
    "broken-convolution": broken_convolution,
    "busy-waiting": busy_waiting,
    "lost-bytes": lost_bytes,
}

if __name__ == "torch":
    FAULTS[os.environ["PLANTED_FAULT"]](real_torch())
