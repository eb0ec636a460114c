"""Rules about nodes that the mode lets through and the kernel refuses: one errno, one story.

Sources: open(2); Linux, drivers/gpu/drm/amd/amdkfd/kfd_chardev.c and kfd_process.c;
Documentation/admin-guide/cgroup-v1/devices.rst.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.host.rules.ask import (
    accesses,
    allowed_though_denied,
    is_lxc,
    kernel_lines,
    lost_groups,
)
from builder.host.rules.model import Finding

if TYPE_CHECKING:
    from builder.host.rules.facts import HostFacts
    from builder.host.snapshot.model import HostSnapshot

_LOG = r"amdgpu|kfd"
_READ_LOG = "sudo dmesg | grep -iE 'amdgpu|kfd' | tail -n 40"
_SOURCE = "Linux, drivers/gpu/drm/amd/amdkfd/kfd_chardev.c"
_FOLLOWS = (
    "TOPOLOGY_EMPTY", "ROCMINFO_NO_MODULE", "SMI_IS_NO_PROOF", "OUT_OF_RESOURCES",
    "RENDER_OPEN_FAILED",
)  # fmt: skip
_KNOWN = ("EACCES", "EPERM", "EINVAL", "ENOMEM", "ENXIO", "ENODEV", "ENOENT")


def _kfd_errno(snapshot: HostSnapshot) -> str | None:
    return snapshot.kfd.open_errno if snapshot.kfd else None


def kfd_einval(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The driver itself refuses: this is no matter of groups and modes."""
    if _kfd_errno(snapshot) != "EINVAL":
        return None
    return Finding(
        code="KFD_OPEN_EINVAL",
        severity="error",
        summary="Opening /dev/kfd gives EINVAL (Invalid argument): the driver refuses this process"
        " or has no usable GPU. Owner, groups and mode are not the cause.",
        evidence=(
            *(one.line for one in accesses(snapshot)),
            f"GPU nodes in the topology: {snapshot.kfd_gpu_nodes}",
            f"kernel {snapshot.kernel or '?'}, amdgpu {snapshot.amdgpu_version or 'in-tree'}",
            *(f"device rule: {rule}" for rule in (snapshot.cgroup_devices or ())[:4]),
            *kernel_lines(snapshot, _LOG),
        ),
        fix=f"on the machine itself: {_READ_LOG}",
        source="https://github.com/ROCm/legacy-rocm-build/issues/5379",
        explains=_FOLLOWS,
    )


def kfd_enomem(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The kernel could not set up its side of the process; the errno alone gives no cause."""
    if _kfd_errno(snapshot) != "ENOMEM":
        return None
    return Finding(
        code="KFD_OPEN_ENOMEM",
        severity="error",
        summary="Opening /dev/kfd gives ENOMEM: the kernel could not set up the process. It is not"
        " the memory of the GPU, and HSA_STATUS_ERROR_OUT_OF_RESOURCES follows from it. The kernel"
        " log says which step failed; reports also blame /dev mounted noexec.",
        evidence=(
            *(one.line for one in accesses(snapshot)),
            *kernel_lines(snapshot, _LOG),
        ),
        fix=f"on the machine itself: {_READ_LOG}; findmnt -no OPTIONS /dev",
        source="https://github.com/ROCm/legacy-rocm-build/issues/1088",
        explains=_FOLLOWS,
    )


def kfd_eperm(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """EPERM on a node whose mode allows is the devices cgroup: the device was not added."""
    if _kfd_errno(snapshot) != "EPERM" or lost_groups(snapshot):
        return None
    fix = "--device=/dev/kfd --device=/dev/dri (a bind mount of /dev adds no device rule)"
    if is_lxc(snapshot):
        fix = "in the container's configuration: lxc.cgroup2.devices.allow: c MAJOR:MINOR rwm"
    elif snapshot.container == "kubernetes":
        fix = "resources: {limits: {amd.com/gpu: 1}}: a hostPath volume adds no device rule"
    elif snapshot.container in (None, "apptainer"):
        fix = "systemctl show --property=DevicePolicy,DeviceAllow UNIT_OF_THIS_PROCESS"
    return Finding(
        code="KFD_OPEN_EPERM",
        severity="error",
        summary="Opening /dev/kfd gives EPERM (Operation not permitted): the device rules of the"
        " control group deny it. Groups and mode do not matter here.",
        evidence=(
            *(one.line for one in accesses(snapshot)),
            *(f"device rule: {rule}" for rule in (snapshot.cgroup_devices or ())[:4]),
        ),
        fix=fix,
        source="Linux, Documentation/admin-guide/cgroup-v1/devices.rst",
        explains=_FOLLOWS,
    )


def kfd_enxio(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A node without a driver behind its number: left over, or made by hand."""
    if _kfd_errno(snapshot) not in ("ENXIO", "ENODEV"):
        return None
    return Finding(
        code="KFD_OPEN_ENXIO",
        severity="error",
        summary=f"Opening /dev/kfd gives {_kfd_errno(snapshot)}: no driver answers behind the node."
        " Its device number is assigned when the driver is loaded, so a node that was made by hand"
        " or before a reload is a dead one.",
        evidence=tuple(one.line for one in accesses(snapshot)),
        fix="on the machine itself: grep kfd /proc/devices && ls -l /dev/kfd; then start the"
        " container again",
        source=_SOURCE,
        explains=_FOLLOWS,
    )


def kfd_enoent(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """It was there when it was looked at and not when it was opened."""
    if _kfd_errno(snapshot) != "ENOENT":
        return None
    return Finding(
        code="KFD_OPEN_ENOENT",
        severity="error",
        summary="/dev/kfd was there and could not be found on opening (ENOENT): the driver is being"
        " unloaded, or resets the GPU.",
        evidence=(*(one.line for one in accesses(snapshot)), *kernel_lines(snapshot, _LOG)),
        fix=f"on the machine itself: {_READ_LOG}",
        source="open(2)",
        explains=_FOLLOWS,
    )


def kfd_other(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """An errno without a story is reported as it is."""
    error = _kfd_errno(snapshot)
    if not error or error in _KNOWN:
        return None
    return Finding(
        code="KFD_OPEN_FAILED",
        severity="error",
        summary=f"/dev/kfd is openable by its mode and was refused by the driver with {error}.",
        evidence=(*(one.line for one in accesses(snapshot)), *kernel_lines(snapshot, _LOG)),
        fix=f"on the machine itself: {_READ_LOG}",
        source=_SOURCE,
        explains=_FOLLOWS,
    )


def render_refused(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A render node that the driver refuses, with kfd open, is one GPU in trouble."""
    refused = [
        one
        for one in accesses(snapshot)
        if not one.node.is_kfd and one.result not in ("ok", "denied")
    ]
    if not refused:
        return None
    names = ", ".join(f"{one.node.path} ({one.result})" for one in refused)
    return Finding(
        code="RENDER_OPEN_FAILED",
        severity="error",
        summary=f"Openable by mode and refused by the driver: {names}.",
        evidence=(*(one.line for one in accesses(snapshot)), *kernel_lines(snapshot, _LOG)),
        fix=f"on the machine itself: {_READ_LOG}",
        source="Linux, drivers/gpu/drm/drm_file.c",
    )


def selinux_denied(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Owner and mode allow and the kernel denies: with SELinux enforcing, that is its policy."""
    closed = allowed_though_denied(snapshot)
    if not closed or snapshot.selinux != "Enforcing" or lost_groups(snapshot):
        return None
    return Finding(
        code="SELINUX_DENIED",
        severity="error",
        summary="SELinux denies the container the device nodes: owner and mode would allow it, and"
        " opening gives EACCES. Leave SELinux on and let containers use devices.",
        evidence=(
            "SELinux: Enforcing",
            f"container_use_devices: {_boolean(snapshot.container_use_devices)}",
            *(one.line for one in closed),
        ),
        fix="getsebool container_use_devices; sudo setsebool -P container_use_devices 1"
        " (or for one container: --security-opt label=type:container_runtime_t)",
        source="https://github.com/containers/container-selinux/issues/269",
        explains=_FOLLOWS,
    )


def policy_denied(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The same without SELinux: another policy, most often AppArmor's."""
    closed = allowed_though_denied(snapshot)
    if not closed or snapshot.selinux == "Enforcing" or lost_groups(snapshot):
        return None
    policy = "AppArmor is on" if snapshot.apparmor else "AppArmor is not seen from here"
    return Finding(
        code="POLICY_DENIED",
        severity="error",
        summary="Owner and mode of the nodes allow this process, and opening gives EACCES: a"
        f" security policy denies it ({policy}).",
        evidence=tuple(one.line for one in closed),
        fix="on the machine itself: sudo dmesg | grep -iE 'apparmor=.DENIED|avc: *denied'",
        source="open(2); Linux, Documentation/admin-guide/LSM/apparmor.rst",
        explains=_FOLLOWS,
    )


def selinux_boolean(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """On a host with SELinux, the boolean is worth knowing before the first container."""
    if snapshot.container or snapshot.selinux != "Enforcing" or not snapshot.kfd:
        return None
    if snapshot.container_use_devices is not False:
        return None
    return Finding(
        code="SELINUX_BOOLEAN_OFF",
        severity="info",
        summary="SELinux is enforcing and container_use_devices is off: where the policy has no"
        " rule of its own for the GPU's nodes, containers are denied them.",
        evidence=("SELinux: Enforcing", "container_use_devices: off"),
        fix="sudo setsebool -P container_use_devices 1",
        source="ollama docs/gpu.mdx; https://github.com/containers/container-selinux/issues/269",
    )


def _boolean(value: bool | None) -> str:
    return {True: "on", False: "off"}.get(value, "not readable from here")  # type: ignore[arg-type]
