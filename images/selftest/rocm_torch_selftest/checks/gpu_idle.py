"""Check ``idle``: a process that has used the GPU and waits does not keep a core busy.

torch 2.12 on ROCm 10.0 is known to: a thread of the runtime spins after the first operation.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.checks.gpu import first_device, synchronize, usable_torch
from rocm_torch_selftest.outcome import failed, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

SETTLE_S = 1.0  # threads of OpenMP and of runtimes may spin for a moment on purpose
WATCH_S = 3.0
LIMIT = 0.10  # of one core


def run(context: Context) -> Outcome:
    """Use the device, wait, and look at the CPU time of all threads meanwhile."""
    torch, skip = usable_torch(context)
    if skip is not None:
        return skip
    device = first_device(context)
    context.stage("use the device")
    _use(torch, device)
    context.stage("wait")
    time.sleep(SETTLE_S)
    cpu, wall = time.process_time(), time.monotonic()
    time.sleep(WATCH_S)
    return judge(time.process_time() - cpu, time.monotonic() - wall)


def _use(torch: Any, device: str) -> None:
    block = torch.ones(512, 512, device=device)
    for _ in range(10):
        block = (block @ block) * (1.0 / 512)
    block.sum().item()
    synchronize(torch, device)


def judge(cpu_s: float, wall_s: float) -> Outcome:
    """Judge the CPU seconds of a process that waited for some seconds."""
    share = cpu_s / wall_s
    data = {"share_of_a_core": round(share, 4), "limit": LIMIT, "seconds": round(wall_s, 3)}
    if not share < LIMIT:
        return failed(
            f"The process uses {share:.0%} of a core while it waits after a GPU operation; "
            f"{LIMIT:.0%} is allowed.",
            code="IDLE_SPIN",
            **data,
        )
    return passed(f"The process uses {share:.1%} of a core while it waits.", **data)
