"""Rules about what amd-smi, rocm-smi and rocminfo say, and what that proves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from builder.host.rules.ask import accesses, line_with, told
from builder.host.rules.model import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.host.rules.facts import HostFacts
    from builder.host.snapshot.model import HostSnapshot

_BDF = re.compile(r"\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE)
TIMED_OUT = 124  # the status that host_tools records for a program that was ended


def no_module_text(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Rocminfo looks for the module in /sys, and says so in a container that hides it too."""
    said = line_with(told(snapshot), r"ROCk module is NOT loaded")
    if not said:
        return None
    return Finding(
        code="ROCMINFO_NO_MODULE",
        severity="warning",
        summary='rocminfo says "ROCk module is NOT loaded". Where the nodes are missing or closed,'
        " that follows; the module itself may well be loaded.",
        evidence=said,
        source="https://github.com/ROCm/legacy-rocm-build/issues/1506",
    )


def out_of_resources(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The runtime says this for nearly everything that goes wrong at its start."""
    said = line_with(told(snapshot), r"OUT_OF_RESOURCES")
    if not said:
        return None
    return Finding(
        code="OUT_OF_RESOURCES",
        severity="warning",
        summary="HSA_STATUS_ERROR_OUT_OF_RESOURCES is not about the GPU's memory: the runtime says"
        " it whenever it cannot start.",
        evidence=said,
        source="https://github.com/ROCm/legacy-rocm-build/issues/1088",
    )


def smi_is_no_proof(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Monitoring reads sysfs and needs no kfd."""
    worked = [
        name
        for name in ("amd-smi", "rocm-smi")
        if name in snapshot.tools and snapshot.tools[name].status == 0
    ]
    kfd_closed = any(one.node.is_kfd and one.result != "ok" for one in accesses(snapshot))
    if not worked or not kfd_closed:
        return None
    return Finding(
        code="SMI_IS_NO_PROOF",
        severity="info",
        summary=f"{worked[0]} lists the card, and that proves nothing: it reads sysfs and needs no"
        " /dev/kfd.",
        evidence=(f"{worked[0]}: exit 0",),
        source="https://github.com/ROCm/ROCm-docker/issues/114",
    )


def rocm_smi_gone(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """rocm-smi ended with ROCm 10.1."""
    old, new = snapshot.tools.get("rocm-smi"), snapshot.tools.get("amd-smi")
    if not new or new.status is None or (old and old.status is not None):
        return None
    if snapshot.container is None:
        return None
    return Finding(
        code="ROCM_SMI_GONE",
        severity="info",
        summary="rocm-smi is not here, and amd-smi is: ROCm 10.1 no longer brings rocm-smi.",
        evidence=("amd-smi: found", "rocm-smi: not found"),
        fix="amd-smi list",
        source="AMD, ROCm 10.1.0 release notes",
    )


def tool_hangs(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A tool that does not come back waits in the driver."""
    stuck = [name for name, tool in snapshot.tools.items() if tool.status == TIMED_OUT]
    if not stuck:
        return None
    return Finding(
        code="TOOL_HANGS",
        severity="warning",
        summary=f"{', '.join(sorted(stuck))} did not end in time: such a program waits in the"
        " driver, often after a hang of the GPU.",
        evidence=tuple(f"{name}: ended by the time limit" for name in sorted(stuck)),
        fix="sudo dmesg | grep -iE 'amdgpu|kfd' | tail -n 40",
        source="Linux, drivers/gpu/drm/amd/amdgpu/amdgpu_device.c",
        explains=("GPU_HUNG",),
    )


def order_differs(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """HIP's order and the order of the monitoring tool are two."""
    smi = smi_order(snapshot)
    hip = tuple(gpu.pci.lower() for gpu in snapshot.gpus if gpu.pci)
    if len(hip) < 2 or len(hip) != len(snapshot.gpus) or set(smi) != set(hip) or smi == hip:
        return None
    return Finding(
        code="GPU_ORDER_DIFFERS",
        severity="warning",
        summary="The monitoring tool counts the GPUs in another order than HIP: compare by PCI"
        " address, never by index.",
        evidence=tuple(
            f"HIP {hip_index_of(n, hip, smi)}, smi {n}: {pci}" for n, pci in enumerate(smi)
        ),
        source="https://github.com/pytorch/pytorch/issues/131901",
    )


def smi_order(snapshot: HostSnapshot) -> tuple[str, ...]:
    """Return the PCI addresses in the order in which amd-smi (or rocm-smi) lists them."""
    for name in ("amd-smi", "rocm-smi"):
        found = dict.fromkeys(one.lower() for one in _BDF.findall(told(snapshot, name)))
        if found:
            return tuple(found)
    return ()


def hip_index_of(smi_index: int, hip: Sequence[str], smi: Sequence[str]) -> int | None:
    """Return HIP's index of the GPU that has this index in the monitoring tool.

    Args:
        smi_index: index there.
        hip: PCI addresses in HIP's order.
        smi: PCI addresses in the tool's order.
    """
    if not 0 <= smi_index < len(smi):
        return None
    wanted = smi[smi_index].lower()
    return next((n for n, address in enumerate(hip) if address.lower() == wanted), None)


def no_kernel_text(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """What the runtime says where a GPU has no kernels."""
    said = line_with(
        told(snapshot), r"invalid device function|no kernel image|device kernel image is invalid"
    )
    if not said:
        return None
    return Finding(
        code="NO_KERNEL_FOR_GPU",
        severity="error",
        summary="The image has no kernels for the GPU that was used, as the runtime says. Where"
        " several GPUs are visible, it may be the integrated one.",
        evidence=said,
        fix="rocminfo | grep -E 'Name: +gfx'",
        source="https://github.com/ROCm/TheRock/issues/3392",
    )
