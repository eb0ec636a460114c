"""Check ``devices``: torch sees the GPUs, and each one computes something right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocm_torch_selftest.checks.environment import device_facts
from rocm_torch_selftest.checks.gpu import usable_torch
from rocm_torch_selftest.outcome import failed, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

COUNT = 100_000


def run(context: Context) -> Outcome:
    """Add up whole numbers on each device; seeing a device is not yet using it."""
    torch, skip = usable_torch(context)
    if skip is not None:
        return skip
    devices = []
    for index in range(torch.cuda.device_count()):
        context.stage(f"properties of device {index}")
        devices.append(device_facts(torch, index))
        context.stage(f"compute on device {index}")
        total = int(torch.arange(COUNT, dtype=torch.int64, device=f"cuda:{index}").sum().item())
        if total != COUNT * (COUNT - 1) // 2:
            return failed(
                f"Device {index} ({devices[-1]['name']}) adds 0 to {COUNT - 1} up to {total}.",
                devices=devices,
            )
    names = ", ".join(f"{device['name']} ({device['gfx']})" for device in devices)
    return passed(f"{len(devices)} GPUs compute: {names}.", devices=devices)
