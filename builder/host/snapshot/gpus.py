"""GPUs from KFD's topology, joined with DRM and PCI by the render node's number.

Source of names and units: Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.host.snapshot.model import Gpu
from builder.host.snapshot.text import first_line, number, read_text

if TYPE_CHECKING:
    from pathlib import Path

TOPOLOGY = "sys/class/kfd/kfd/topology/nodes"
_MIB = 1 << 20
_LOCAL_HEAPS = ("1", "2")  # frame buffer, public and private
# Targets that only processors with graphics have, and the one that both kinds have (MI300A, X).
# From Linux 6.6 on such a GPU is a node of its own without cores, so cores alone do not tell.
# Source: LLVM, "User Guide for AMDGPU Backend", table of processors.
_APU = frozenset(
    {"gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036"}
    | {"gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"}
)
_EITHER = frozenset({"gfx942"})


def read_gpus(root: Path) -> tuple[tuple[Gpu, ...], int | None]:
    """Return the GPUs in the order of the topology, and how many GPU nodes it has.

    The number is ``None`` where there is no topology. It counts nodes that may not be read, too:
    the kernel refuses that for GPUs alone, where the devices cgroup keeps their render node away.
    """
    folder = root / TOPOLOGY
    try:
        nodes = sorted((one for one in folder.iterdir() if one.name.isdecimal()), key=_by_number)
    except OSError:
        return (), None
    gpus: list[Gpu] = []
    hidden = 0
    for node in nodes:
        text = read_text(node / "properties")
        hidden += text is None and (node / "properties").exists()
        properties = _parsed(text)
        if properties.get("simd_count", 0) > 0:
            gpus.append(_gpu(root, node, properties, len(gpus)))
    return tuple(gpus), len(gpus) + hidden


def read_pci_gpus(root: Path) -> tuple[str, ...] | None:
    """Return AMD's GPUs on the PCI bus with the driver that each is bound to.

    A card that is here and not in the topology has a driver problem; one that is not even here
    has not. Classes: 03xxxx display, 12xxxx processing accelerators (PCI code and id assignment).
    """
    try:
        devices = sorted((root / "sys/bus/pci/devices").iterdir())
    except FileNotFoundError:
        return ()  # a machine without such a bus has none of these GPUs
    except OSError:
        return None
    found = []
    for device in devices:
        kind = first_line(device / "class") or ""
        if first_line(device / "vendor") == "0x1002" and kind[:4] in {"0x03", "0x12"}:
            product = (first_line(device / "device") or "0x0000")[2:]
            driver = (device / "driver").resolve().name if (device / "driver").exists() else "-"
            found.append(f"{device.name} 1002:{product} {driver}")
    return tuple(found)


def _by_number(path: Path) -> int:
    return int(path.name)


def _parsed(text: str | None) -> dict[str, int]:
    found = {}
    for line in (text or "").splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdecimal():
            found[name] = int(value)
    return found


def gfx_of(version: int) -> str | None:
    """Return the target of KFD's ``gfx_target_version``: 110000 is gfx1100, 90010 is gfx90a."""
    if version <= 0:
        return None
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}"


def _gpu(root: Path, node: Path, properties: dict[str, int], index: int) -> Gpu:
    minor = properties.get("drm_render_minor") or None
    device = root / f"sys/class/drm/renderD{minor}/device"
    location, domain = properties.get("location_id"), properties.get("domain", 0)
    unique = properties.get("unique_id", 0)
    vendor, product = properties.get("vendor_id"), properties.get("device_id")
    gfx = gfx_of(properties.get("gfx_target_version", 0))
    return Gpu(
        index=index,
        node=int(node.name),
        gfx=gfx,
        render_minor=minor,
        uuid=f"GPU-{unique:016x}" if unique else None,
        pci=None if location is None else _address(domain, location),
        pci_id=f"{vendor:04x}:{product:04x}" if vendor and product else None,
        vram_mib=_local_memory(node),
        integrated=_integrated(gfx, properties.get("cpu_cores_count", 0)),
        link_width=number(device / "current_link_width"),
        link_width_max=number(device / "max_link_width"),
        performance_level=first_line(device / "power_dpm_force_performance_level"),
        name=first_line(device / "product_name") or None,
    )


def _integrated(gfx: str | None, cores: int) -> bool | None:
    if cores > 0 or gfx in _APU:
        return True
    return None if gfx is None or gfx in _EITHER else False


def _address(domain: int, location: int) -> str:
    return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"


def _local_memory(node: Path) -> int | None:
    total = 0
    for bank in (node / "mem_banks").glob("*/properties"):
        values = _parsed(read_text(bank))
        if str(values.get("heap_type")) in _LOCAL_HEAPS:
            total += values.get("size_in_bytes", 0)
    return total // _MIB or None
