"""Rules for "it works and is slow". None of them is an error.

Sources: AMD, "System optimization" guides; Linux, Documentation/gpu/amdgpu/thermal.rst and
Documentation/admin-guide/sysctl/kernel.rst (numa_balancing).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.host.rules.ask import line_with, told
from builder.host.rules.model import Finding

if TYPE_CHECKING:
    from builder.host.rules.facts import HostFacts
    from builder.host.snapshot.model import HostSnapshot

_TUNING = "AMD, system optimization guides"
_NETWORK = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "ceph", "fuse.sshfs")
_CACHES = {
    "miopen-db": "MIOPEN_USER_DB_PATH",
    "miopen-kernels": "MIOPEN_CUSTOM_CACHE_DIR",
}


def power_level(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A level that somebody set once holds the clocks down."""
    low = [g for g in snapshot.gpus if g.performance_level in ("low", "profile_min_sclk")]
    if not low:
        return None
    return Finding(
        code="POWER_LEVEL_LOW",
        severity="warning",
        summary=f"The power level of GPU {', '.join(str(g.index) for g in low)} is held low.",
        evidence=tuple(f"GPU {g.index}: performance level {g.performance_level}" for g in low),
        fix="sudo amd-smi set --perf-level AUTO",
        source="Linux, Documentation/gpu/amdgpu/thermal.rst",
    )


def power_manual(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Other fixed levels make measurements unlike those of others."""
    fixed = [
        gpu
        for gpu in snapshot.gpus
        if gpu.performance_level not in (None, "", "auto", "low", "profile_min_sclk")
    ]
    if not fixed:
        return None
    return Finding(
        code="POWER_LEVEL_FIXED",
        severity="info",
        summary="The power level is not automatic: figures of a benchmark hold for this level.",
        evidence=tuple(f"GPU {g.index}: performance level {g.performance_level}" for g in fixed),
        source="Linux, Documentation/gpu/amdgpu/thermal.rst",
    )


def link_narrow(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Half the lanes is half the rate of copies; a riser or slot does that."""
    narrow = [
        gpu
        for gpu in snapshot.gpus
        if gpu.link_width and gpu.link_width_max and gpu.link_width < gpu.link_width_max
    ]
    if not narrow:
        return None
    return Finding(
        code="LINK_NARROW",
        severity="warning",
        summary="A GPU uses fewer PCI lanes than it has: copies from and to the host are slower.",
        evidence=tuple(
            f"GPU {g.index} ({g.pci or '?'}): x{g.link_width} of x{g.link_width_max}"
            for g in narrow
        ),
        fix=f"sudo lspci -vv -s {narrow[0].pci or 'ADDRESS'} | grep -i lnksta",
        source="Linux, Documentation/ABI/testing/sysfs-bus-pci",
    )


def numa_balancing(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The kernel moves pages that the GPU has mapped; AMD says to switch it off for Instinct."""
    if not snapshot.numa_balancing or snapshot.container:
        return None
    if len([gpu for gpu in snapshot.gpus if not gpu.integrated]) < 2:
        return None
    return Finding(
        code="NUMA_BALANCING_ON",
        severity="warning",
        summary="Automatic NUMA balancing is on, on a machine with several GPUs: the kernel moves"
        " pages that GPUs have mapped.",
        evidence=(f"kernel.numa_balancing = {snapshot.numa_balancing}",),
        fix="sudo sysctl kernel.numa_balancing=0",
        source=_TUNING,
    )


def iommu(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Without pass-through, copies between GPUs go through the IOMMU's tables."""
    words = snapshot.iommu
    if snapshot.container or not words or "iommu=pt" in words or "iommu=off" in words:
        return None
    if len([gpu for gpu in snapshot.gpus if not gpu.integrated]) < 2:
        return None
    return Finding(
        code="IOMMU_TRANSLATES",
        severity="info",
        summary="Several GPUs, and the IOMMU is not in pass-through mode: copies between GPUs may"
        " be slow or hang.",
        evidence=(f"kernel command line: {words}",),
        fix="add iommu=pt to the kernel's command line and reboot",
        source=_TUNING,
    )


def other_processes(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Several processes share a GPU, its memory and its time."""
    if not snapshot.kfd_processes:
        return None
    return Finding(
        code="OTHER_PROCESSES",
        severity="info",
        summary=f"{snapshot.kfd_processes} processes use the GPUs now: they share memory and time.",
        evidence=(f"/sys/class/kfd/kfd/proc: {snapshot.kfd_processes} entries",),
        fix="amd-smi process",
        source="Linux, drivers/gpu/drm/amd/amdkfd/kfd_process.c",
    )


def caches_closed(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A cache that cannot be written makes each start a first start."""
    closed = {
        name: snapshot.places[name]
        for name in _CACHES
        if name in snapshot.places and snapshot.places[name].writable is False
    }
    if not closed:
        return None
    return Finding(
        code="CACHE_NOT_WRITABLE",
        severity="warning",
        summary="MIOpen's caches cannot be written: kernels are compiled and searched for again in"
        " each run.",
        evidence=tuple(f"{place.path}: not writable" for place in closed.values()),
        fix=" ".join(
            ["export", *(f"{_CACHES[name]}=/tmp/rocm-torch-cache/{name}" for name in closed)]
        ),
        source="MIOpen, docs/conceptual/cache.rst",
    )


def caches_remote(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Databases with locks on a network file system are slow, and break with many ranks."""
    remote = {
        name: snapshot.places[name]
        for name in _CACHES
        if name in snapshot.places
        and snapshot.places[name].filesystem in _NETWORK
        and snapshot.places[name].writable is not False
    }
    if not remote:
        return None
    return Finding(
        code="CACHE_ON_NETWORK",
        severity="warning",
        summary="MIOpen's caches are on a network file system: its databases lock files there.",
        evidence=tuple(f"{place.path}: {place.filesystem}" for place in remote.values()),
        fix=" ".join(
            ["export", *(f"{_CACHES[name]}=/tmp/rocm-torch-cache/{name}" for name in remote)]
        ),
        source="LUMI user documentation: MIOpen caches",
    )


def untuned(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The library says itself that it has no tuned kernels for this GPU."""
    said = line_with(
        told(snapshot),
        r"missing system database file|no.*tuned|hipBLASLt.*unsupported architecture",
    )
    if not said:
        return None
    return Finding(
        code="KERNELS_NOT_TUNED",
        severity="warning",
        summary="A library has no tuned kernels for this GPU and falls back or searches: the first"
        " run is long, later ones are slower than they could be.",
        evidence=said,
        fix="keep MIOpen's caches in a volume; PYTORCH_TUNABLEOP_ENABLED=1 tunes matrix products",
        source="ROCm, docs/how-to/rocm-for-ai: workload optimization",
    )


def little_shared_memory(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """An integrated GPU with a small carve-out works out of shared memory."""
    small = [g for g in snapshot.gpus if g.integrated and g.vram_mib and g.vram_mib < 1024]
    if not small or len(small) < len(snapshot.gpus):
        return None
    return Finding(
        code="INTEGRATED_GPU_SMALL",
        severity="info",
        summary="The only GPU is an integrated one with little memory of its own: work is bound by"
        " the speed of the machine's memory.",
        evidence=tuple(f"GPU {g.index}: {g.gfx}, {g.vram_mib} MiB" for g in small),
        source="Linux, Documentation/gpu/amdgpu/driver-misc.rst",
    )
