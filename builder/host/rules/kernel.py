"""Rules about the driver: loaded or not, its firmware, what the kernel log says, and its age."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from builder.host.rules.ask import (
    has_gpu_sign,
    kernel_lines,
    line_with,
    on_host,
    told,
    version_of,
)
from builder.host.rules.model import Finding

if TYPE_CHECKING:
    from builder.host.rules.facts import HostFacts
    from builder.host.snapshot.model import HostSnapshot

_LOG = "sudo dmesg | grep -iE 'amdgpu|kfd' | tail -n 40"
_NO_DRIVER = ("KFD_NOT_MADE", "TOPOLOGY_EMPTY", "ROCMINFO_NO_MODULE", "GPU_NOT_FOUND")
_REJECTED = r"required key not available|key was rejected by service|module verification failed"
_MOK = {"ubuntu": "/var/lib/shim-signed/mok/MOK.der"}


def module_not_loaded(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A card on the bus, or a saved state that says nothing of the bus, and no driver."""
    if not on_host(snapshot) or snapshot.modules is None or "amdgpu" in snapshot.modules:
        return None
    if snapshot.kfd or not (snapshot.pci_gpus or snapshot.gpus):
        return None
    return Finding(
        code="AMDGPU_NOT_LOADED",
        severity="error",
        summary="An AMD GPU is on the PCI bus and the amdgpu module is not loaded.",
        evidence=(*(snapshot.pci_gpus or ()), "amdgpu: not in /proc/modules"),
        fix="sudo modprobe amdgpu; lsmod | grep amdgpu; grep -r amdgpu /etc/modprobe.d",
        source="https://github.com/ROCm/legacy-rocm-build/issues/1850",
        explains=_NO_DRIVER,
    )


def secure_boot(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Only a module that DKMS built is rejected, and not silently."""
    if not on_host(snapshot) or snapshot.secure_boot is not True:
        return None
    if snapshot.modules is None or "amdgpu" in snapshot.modules:
        return None
    text = "\n".join((*snapshot.dmesg, told(snapshot)))
    said = line_with(text, _REJECTED)
    if not said and not snapshot.pci_gpus:
        return None
    key = _MOK.get(snapshot.os_id or "", "/var/lib/dkms/mok.pub")
    return Finding(
        code="SECURE_BOOT_REJECTED" if said else "SECURE_BOOT_POSSIBLE",
        severity="error" if said else "warning",
        summary="Secure Boot is on and amdgpu is not loaded: a module that DKMS built must be"
        " signed by a key that the firmware knows. The distribution's own amdgpu is signed"
        " already. Firmware files (/lib/firmware/amdgpu) are no certificates.",
        evidence=("Secure Boot: on", *said, "amdgpu: not loaded"),
        fix=f"sudo mokutil --import {key}, reboot, and enrol the key on the blue screen",
        source="https://github.com/ROCm/legacy-rocm-build/issues/4328",
        explains=("AMDGPU_NOT_LOADED", *_NO_DRIVER) if said else (),
    )


def bound_to_vfio(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A card that was given to a virtual machine is not the host's."""
    bound = [line for line in snapshot.pci_gpus or () if line.endswith("vfio-pci")]
    if not bound:
        return None
    all_bound = len(bound) == len(snapshot.pci_gpus or ())
    return Finding(
        code="GPU_BOUND_TO_VFIO",
        severity="error" if all_bound and not snapshot.gpus else "info",
        summary=f"Bound to vfio-pci for a virtual machine, and so not usable here: {bound[0]}.",
        evidence=tuple(bound),
        fix=f"lspci -nnk -s {bound[0].split()[0]}; remove its id from vfio-pci.ids and reboot",
        source="Linux, Documentation/driver-api/vfio.rst",
        explains=("AMDGPU_NOT_LOADED", *_NO_DRIVER),
    )


def firmware_missing(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Without its firmware, the driver does not start the GPU."""
    said = kernel_lines(
        snapshot, r"amdgpu.*(failed to load firmware|firmware.*failed with error -2)"
    )
    if not said:
        return None
    return Finding(
        code="FIRMWARE_MISSING",
        severity="warning" if snapshot.gpus else "error",
        summary="The kernel did not find firmware of the GPU.",
        evidence=said,
        fix="update the firmware package (linux-firmware, or firmware-amd-graphics on Debian) and"
        " reboot",
        source="Linux, drivers/gpu/drm/amd/amdgpu/amdgpu_ucode.c",
        explains=("GPU_INIT_FAILED", *_NO_DRIVER),
    )


def init_failed(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The driver says itself that it gave up."""
    said = kernel_lines(
        snapshot, r"fatal error during GPU init|amdgpu.*probe.*failed with error|kfd.*skipped"
    )
    if not said:
        return None
    return Finding(
        code="GPU_INIT_FAILED",
        severity="warning" if snapshot.gpus else "error",
        summary="The driver gave up on a GPU while starting it.",
        evidence=said,
        fix=_LOG,
        source="Linux, drivers/gpu/drm/amd/amdgpu/amdgpu_drv.c",
        explains=_NO_DRIVER,
    )


def topology_empty(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Kfd without a GPU behind it: the node is made even when no GPU came up."""
    if not snapshot.kfd or snapshot.kfd_gpu_nodes != 0 or snapshot.gpus:
        return None
    return Finding(
        code="TOPOLOGY_EMPTY",
        severity="error",
        summary="/dev/kfd exists and its topology has no GPU: the driver started none, or does not"
        " support the card for compute.",
        evidence=("/sys/class/kfd/kfd/topology/nodes: 0 GPUs", *kernel_lines(snapshot, "kfd")),
        fix=f"on the machine itself: {_LOG}",
        source="Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c",
        explains=("ROCMINFO_NO_MODULE", "RENDER_NODES_NONE"),
    )


def gpu_reset(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """After a hang, what ran before fails in odd ways."""
    said = kernel_lines(snapshot, r"amdgpu.*(ring .* timeout|GPU reset|HW hang|hang detected)")
    if not said:
        return None
    return Finding(
        code="GPU_HUNG",
        severity="warning",
        summary="The kernel log tells of a hang or reset of a GPU since the start.",
        evidence=said,
        fix=f"{_LOG}; reboot where the GPU does not come back",
        source="Linux, drivers/gpu/drm/amd/amdgpu/amdgpu_device.c",
    )


def page_fault(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A fault in the GPU's memory is a program's mistake far more often than the driver's."""
    said = kernel_lines(snapshot, r"amdgpu.*page fault")
    if not said:
        return None
    return Finding(
        code="GPU_PAGE_FAULT",
        severity="warning",
        summary="A program touched GPU memory that it does not have. A wrong override of the target"
        " is one cause, a kernel that reads past its array another.",
        evidence=said,
        fix="env | grep HSA_OVERRIDE; AMD_LOG_LEVEL=3 PROGRAM names the kernel",
        source="Linux, drivers/gpu/drm/amd/amdgpu/gmc_v9_0.c",
    )


def memory_errors(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """What RAS counts as not correctable is hardware."""
    said = kernel_lines(snapshot, r"amdgpu.*[1-9][0-9]* uncorrectable")
    if not said:
        return None
    return Finding(
        code="GPU_MEMORY_ERRORS",
        severity="warning",
        summary="The GPU reports memory errors that could not be corrected: results may be wrong.",
        evidence=said,
        fix="amd-smi metric --ecc",
        source="Linux, Documentation/gpu/amdgpu/ras.rst",
    )


def kernel_too_old(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """ROCm itself says that the kernel's interface is too old."""
    said = line_with(told(snapshot), r"incompatible kernel and userspace|upgrade amdgpu")
    if not said:
        return None
    image = facts.image.rocm if facts.image else None
    window = facts.window(image) if image else None
    tested = f" AMD tested it with drivers {window.oldest} to {window.newest}." if window else ""
    return Finding(
        code="KERNEL_TOO_OLD",
        severity="error",
        summary=f"The host's driver (amdgpu {snapshot.amdgpu_version or 'in-tree'}, kernel"
        f" {snapshot.kernel or 'not known'}, KFD {snapshot.kfd_ioctl or 'not known'}) is too old"
        f" for ROCm {image or 'of this image'}.{tested}",
        evidence=said,
        fix="install a newer amdgpu driver (amdgpu-dkms) or kernel on the host, or take an image"
        " with an older ROCm",
        source="https://github.com/ROCm/legacy-rocm-build/issues/1583",
        explains=("DRIVER_OUTSIDE_WINDOW", "ROCMINFO_NO_MODULE"),
    )


def driver_outside_window(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Outside of the tested window is untested, not broken; the window warns and never rejects."""
    image, module = facts.image, version_of(snapshot.amdgpu_version or "")
    window = facts.window(image.rocm) if image and image.rocm else None
    if window is None or not module or not window.oldest_module or image is None:
        return None
    if module[:2] >= version_of(window.oldest_module)[:2]:
        return None
    return Finding(
        code="DRIVER_OUTSIDE_WINDOW",
        severity="warning",
        summary=f"amdgpu {snapshot.amdgpu_version} is older than what AMD tested with ROCm"
        f" {image.rocm} (drivers {window.oldest} to {window.newest}; the oldest reports module"
        f" {window.oldest_module}). It may work: the GPU self-test says so.",
        evidence=(f"/sys/module/amdgpu/version: {snapshot.amdgpu_version}",),
        fix="rocm-torch-selftest --level gpu",
        source=window.source,
    )


def in_tree_driver(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The kernel's own driver has no release number to compare with AMD's table."""
    image = facts.image
    if snapshot.amdgpu_version or not image or not image.rocm or not snapshot.kfd:
        return None
    window = facts.window(image.rocm)
    if window is None or snapshot.is_wsl or not snapshot.kernel:
        return None
    return Finding(
        code="DRIVER_IN_TREE",
        severity="info",
        summary=f"The driver is the kernel's own ({snapshot.kernel}): it has no release number to"
        f" compare with what AMD tested ROCm {image.rocm} with ({window.oldest} to"
        f" {window.newest}).",
        evidence=("/sys/module/amdgpu/version: not there",),
        source=window.source,
    )


def wrong_machine(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """ROCm's user space exists for one architecture."""
    if snapshot.machine in ("", "x86_64", "AMD64"):
        return None
    return Finding(
        code="NOT_X86_64",
        severity="warning",
        summary=f"This machine is {snapshot.machine}: ROCm and its images are for x86_64.",
        evidence=(f"machine: {snapshot.machine}",),
        source="https://rocm.docs.amd.com: system requirements",
    )


def other_vendor(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """An NVIDIA driver beside it does no harm, and taking it away breaks a working card."""
    modules = snapshot.modules or ()
    if "nvidia" not in modules or not has_gpu_sign(snapshot):
        return None
    return Finding(
        code="NVIDIA_DRIVER_BESIDE",
        severity="info",
        summary="An NVIDIA driver is loaded as well. Both work side by side: leave it installed. A"
        " torch build has one backend, so it sees the GPUs of one vendor.",
        evidence=("nvidia: loaded",),
        source="PyTorch, docs/source/notes/hip.rst",
    )


def old_radeon(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Cards of the older driver have no compute."""
    bound = [line for line in snapshot.pci_gpus or () if re.search(r"\bradeon$", line)]
    if not bound:
        return None
    return Finding(
        code="OLD_RADEON_DRIVER",
        severity="warning",
        summary="A card is bound to the radeon driver, which has no compute device: GCN 1 and 2"
        " cards are not served by any ROCm of these images.",
        evidence=tuple(bound),
        fix=f"lspci -nnk -s {bound[0].split()[0]}",
        source="Linux, drivers/gpu/drm/radeon",
    )
