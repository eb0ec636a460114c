"""The job ``startup``: what a user waits for before the first step; one stage a process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocm_torch_selftest.bench.worker import Bench

STAGES = ("import", "is-available", "model-to-device")
_LAYERS, _WIDTH = 18, 4096  # 18 square float32 matrices of 64 MiB: 1.2 GB
_TINY_WIDTH = 64


def run(bench: Bench) -> dict[str, Any]:
    """Return the seconds of the stage that the request names, and of the import before it."""
    stage = bench.request["stage"]
    answer: dict[str, Any] = {"stage": stage, "import_s": bench.import_s}
    if stage == STAGES[1]:
        answer["seconds"] = _seconds(bench.available)
    elif stage == STAGES[2]:
        answer.update(_to_device(bench))
    else:
        answer["seconds"] = bench.import_s
    return answer


def _to_device(bench: Bench) -> dict[str, Any]:
    """Move a model of 1.2 GB as a user does: filled on the host, in pageable memory."""
    nn = bench.torch.nn
    width = _TINY_WIDTH if bench.device == "cpu" else _WIDTH
    layers = [nn.Linear(width, width, bias=False, device="meta") for _ in range(_LAYERS)]
    model = nn.Sequential(*layers).to_empty(device="cpu")
    for parameter in model.parameters():
        nn.init.zeros_(parameter)  # touched, so that the pages are there
    size = sum(one.numel() * one.element_size() for one in model.parameters())

    def move() -> None:
        model.to(bench.device)
        bench.wait()

    return {"seconds": _seconds(move), "bytes": size}


def _seconds(action: Any) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
