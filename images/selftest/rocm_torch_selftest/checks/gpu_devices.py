"""Check ``devices``: torch sees the GPUs that the layers below see, and each one computes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Mapping

from rocm_torch_selftest.checks import gpu_libraries
from rocm_torch_selftest.checks.environment import device_facts
from rocm_torch_selftest.checks.gpu import prepared
from rocm_torch_selftest.outcome import CheckFailedError, failed, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

COUNT = 100_000
VISIBILITY = (
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)
_AGENTS = {"hip": gpu_libraries.hsa_gpus, "cuda": gpu_libraries.nvml_devices}
_RUNTIME: Mapping[str, Callable[[], int]] = {
    "hip": gpu_libraries.hip_devices,
    "cuda": lambda: len(gpu_libraries.cuda_targets()),
}


def run(context: Context) -> Outcome:
    """Count on three layers, then add up whole numbers on each device."""
    torch, skip = prepared(context)
    if skip is not None:
        return skip
    backend = "hip" if torch.version.hip else "cuda"
    layers: dict[str, int | str] = {}
    if context.device == "cuda":
        layers["agents"] = _count(context, "count agents (HSA, or NVML)", _AGENTS[backend])
        layers["runtime"] = _count(context, "count devices (HIP, or CUDA)", _RUNTIME[backend])
        context.stage("torch.cuda.is_available")
        layers["torch"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
    visibility = {name: os.environ[name] for name in VISIBILITY if name in os.environ}
    problem = judge(layers, visibility, backend)
    if problem is not None:
        return failed(problem, counts=layers, visibility=visibility)
    if context.device == "cpu":
        _add_up(torch, "cpu", "The CPU")
        return passed("The CPU computes.")
    found = [_computes(context, torch, index) for index in range(torch.cuda.device_count())]
    names = ", ".join(f"{device['name']} ({device['gfx']})" for device in found)
    return passed(
        f"{len(found)} GPUs compute: {names}.",
        devices=found,
        counts=layers,
        visibility=visibility,
    )


def _count(context: Context, stage: str, count: Callable[[], int]) -> int | str:
    context.stage(stage)
    try:
        return count()
    except (gpu_libraries.LibraryError, OSError, AttributeError) as error:
        return f"unknown: {error}"


def judge(
    counts: Mapping[str, int | str], visibility: Mapping[str, str], backend: str
) -> str | None:
    """Return what is wrong with the counts, as a sentence, or None.

    Args:
        counts: devices by layer (``agents``, ``runtime``, ``torch``); a text where a layer could
            not be asked; empty in a rehearsal.
        visibility: the variables that are set and hide devices.
        backend: ``hip`` or ``cuda``. NVML does not heed the variables and lists the host's GPUs
            in some containers, so its count is told and not compared.
    """
    if not counts:
        return None
    told = ", ".join(f"{layer} {count}" for layer, count in counts.items())
    why = "; ".join(f"{name}={value}" for name, value in visibility.items())
    hidden = f"; hidden by {why}" if why else ""
    torch = counts["torch"]
    if torch == 0:
        return f"{_lowest_empty_layer(counts)} no device (counts: {told}{hidden})."
    runtime, agents = counts.get("runtime"), counts.get("agents")
    if isinstance(runtime, int) and runtime != torch:
        return f"Torch and the runtime below it count differently: {told}{hidden}."
    fewer = isinstance(agents, int) and isinstance(torch, int) and torch < agents
    if backend == "hip" and fewer and not visibility:
        return f"Agents are lost between HSA and torch, and no variable hides them: {told}."
    return None


def _lowest_empty_layer(counts: Mapping[str, int | str]) -> str:
    names = {"agents": "HSA (or NVML) finds", "runtime": "HIP (or CUDA) sees"}
    for layer, words in names.items():
        if counts.get(layer) == 0:
            return words
    return "Torch sees"


def _computes(context: Context, torch: Any, index: int) -> dict[str, Any]:
    context.stage(f"properties of device {index}")
    facts = device_facts(torch, index)
    context.stage(f"compute on device {index}")
    _add_up(torch, f"cuda:{index}", f"Device {index} ({facts['name']})")
    return facts


def _add_up(torch: Any, device: str, name: str) -> None:
    total = int(torch.arange(COUNT, dtype=torch.int64, device=device).sum().item())
    if total != COUNT * (COUNT - 1) // 2:
        raise CheckFailedError(f"{name} adds 0 to {COUNT - 1} up to {total}.", total=total)
