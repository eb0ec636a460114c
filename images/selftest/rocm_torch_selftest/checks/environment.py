"""Probes that are no checks: what torch, the kernel and the devices say of themselves."""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.context import Context, backend_of, load_torch
from rocm_torch_selftest.outcome import passed

if TYPE_CHECKING:
    from rocm_torch_selftest.outcome import Outcome


def python_version() -> str:
    """Return major and minor version of this Python, with ``t`` when it has no global lock."""
    free_threaded = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return f"{sys.version_info[0]}.{sys.version_info[1]}{free_threaded}"


def torch_facts(context: Context) -> Outcome:
    """Read version and backend of torch, without touching a device."""
    context.stage("import torch")
    torch = load_torch()
    return passed(
        "torch was asked for its versions.",
        torch=str(torch.__version__),
        hip=getattr(torch.version, "hip", None),
        cuda=getattr(torch.version, "cuda", None),
        backend=backend_of(torch),
    )


def devices(context: Context) -> Outcome:
    """List the devices that torch sees. The availability check itself can abort or hang."""
    context.stage("import torch")
    torch = load_torch()
    context.stage("torch.cuda.is_available")
    if not torch.cuda.is_available():
        return passed("torch sees no GPU.", devices=[])
    context.stage("read the properties of the devices")
    found = [device_facts(torch, index) for index in range(torch.cuda.device_count())]
    return passed(f"torch sees {len(found)} GPUs.", devices=found)


def device_facts(torch: Any, index: int) -> dict[str, Any]:
    """Return what is known about one device, as it stands in the document.

    ``gfx`` is the device's target: ``gfx942`` on ROCm, ``sm_90`` on CUDA. ``pci_id`` is
    ``vendor:device`` as the kernel has it, None where that cannot be read; ``memory_bytes`` is
    what torch calls the total memory.
    """
    properties = torch.cuda.get_device_properties(index)
    gfx = getattr(properties, "gcnArchName", "") if backend_of(torch) == "hip" else ""
    return {
        "name": str(properties.name),
        "gfx": gfx.split(":")[0] or f"sm_{properties.major}{properties.minor}",
        "pci_id": pci_id(pci_address(properties)),
        "compute_units": int(properties.multi_processor_count),
        "memory_bytes": int(properties.total_memory),
    }


def pci_address(properties: Any) -> str | None:
    """Return the PCI address as the kernel writes it; older versions of torch do not say it."""
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    numbers = [getattr(properties, name, None) for name in names]
    if any(not isinstance(number, int) for number in numbers):
        return None
    domain, bus, device = numbers
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def pci_id(address: str | None, root: Path = Path("/sys/bus/pci/devices")) -> str | None:
    """Return ``vendor:device`` of a PCI address, four hexadecimal digits each."""
    if address is None:
        return None
    try:
        words = [(root / address / name).read_text().strip() for name in ("vendor", "device")]
    except OSError:
        return None
    return ":".join(word[2:] if word.startswith("0x") else word for word in words)


def driver_version(root: Path = Path("/")) -> str | None:
    """Return the version of the GPU driver that is loaded: amdgpu's or else NVIDIA's."""
    amdgpu = root / "sys/module/amdgpu"
    if amdgpu.is_dir():
        try:
            return (amdgpu / "version").read_text().strip()
        except OSError:
            return "in-kernel"  # the kernel's own amdgpu states no version
    try:
        text = (root / "proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    match = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
    return match.group(1) if match else None
