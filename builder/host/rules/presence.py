"""Rules about nodes that are not here at all: what is passed in, and what the driver made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.host.rules.ask import has_gpu_sign, is_lxc, line_with, on_host, told
from builder.host.rules.model import Finding

if TYPE_CHECKING:
    from builder.host.rules.facts import HostFacts
    from builder.host.snapshot.model import HostSnapshot

_AMD = "https://rocm.docs.amd.com/projects/install-on-linux: running ROCm in Docker"
_FOLLOWS_NO_KFD = ("ROCMINFO_NO_MODULE", "RENDER_NODES_NONE", "GPU_NOT_FOUND", "SMI_IS_NO_PROOF")


def kfd_missing(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Inside a container, a node that is not here was not passed in: the host's fix is another."""
    if snapshot.kfd or snapshot.is_wsl or snapshot.container is None or snapshot.dxg:
        return None
    kind = snapshot.container
    fix = {
        "apptainer": "apptainer exec --rocm IMAGE.sif COMMAND, or"
        " apptainer exec --containall --bind /dev/kfd,/dev/dri IMAGE.sif COMMAND",
        "kubernetes": "resources: {limits: {amd.com/gpu: 1}} in the container, with AMD's device"
        " plugin on the node",
        "podman": "podman run --device=/dev/kfd --device=/dev/dri/renderD128 ...",
    }.get(kind, "docker run --device=/dev/kfd --device=/dev/dri --group-add GID_OF_THE_NODE ...")
    if is_lxc(snapshot):
        fix = "in the container's configuration on the host: dev0: /dev/kfd,gid=GID_IN_CONTAINER"
    return Finding(
        code="KFD_MISSING",
        severity="error",
        summary=f"/dev/kfd was not passed in to this {kind} container: nothing here can compute on"
        " a GPU, whatever its driver does.",
        evidence=("/dev/kfd: not there", *line_with(told(snapshot), "module is NOT loaded")),
        fix=fix,
        source=_AMD,
        explains=_FOLLOWS_NO_KFD,
    )


def kfd_missing_on_host(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The driver is loaded and made no compute device."""
    if snapshot.kfd or not on_host(snapshot) or "amdgpu" not in (snapshot.modules or ()):
        return None
    return Finding(
        code="KFD_NOT_MADE",
        severity="error",
        summary="The amdgpu module is loaded and /dev/kfd does not exist: the driver gave up on the"
        " GPU, or was built without compute (CONFIG_HSA_AMD).",
        evidence=("amdgpu: loaded", "/dev/kfd: not there", *snapshot.dmesg[-2:]),
        fix="sudo dmesg | grep -iE 'amdgpu|kfd'",
        source="Linux, drivers/gpu/drm/amd/amdkfd/Kconfig",
        explains=_FOLLOWS_NO_KFD,
    )


def render_nodes_none(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Compute needs a render node beside kfd: memory is allocated there."""
    if not snapshot.kfd or snapshot.render_nodes or snapshot.container is None:
        return None
    if snapshot.kfd_gpu_nodes is None and not snapshot.gpus:
        return None  # a saved state that speaks of kfd only says nothing of the others
    fix = "--device=/dev/dri"
    if snapshot.container == "apptainer":
        fix = "apptainer exec --bind /dev/kfd,/dev/dri IMAGE.sif COMMAND"
    return Finding(
        code="RENDER_NODES_NONE",
        severity="error",
        summary="/dev/kfd is here and no /dev/dri/renderD* is: only half of the GPU was passed in.",
        evidence=(f"GPUs in the topology: {snapshot.kfd_gpu_nodes}", "/dev/dri/renderD*: none"),
        fix=fix,
        source=_AMD,
        explains=("RENDER_NODE_MISSING",),
    )


def render_node_missing(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """KFD's topology lists every GPU of the machine, whichever nodes are passed in."""
    there = {node.render_minor for node in snapshot.render_nodes}
    missing = [gpu for gpu in snapshot.gpus if gpu.render_minor and gpu.render_minor not in there]
    if not snapshot.kfd or not there or not missing:
        return None
    names = ", ".join(f"/dev/dri/renderD{gpu.render_minor}" for gpu in missing)
    return Finding(
        code="RENDER_NODE_MISSING",
        severity="warning",
        summary=f"The topology has GPUs whose render node is not here: {names}. Some releases fail"
        " on such agents; the whole /dev/dri with ROCR_VISIBLE_DEVICES set does not.",
        evidence=tuple(f"node {gpu.node}: {gpu.gfx}, renderD{gpu.render_minor}" for gpu in missing),
        fix="--device=/dev/dri",
        source="Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c (drm_render_minor)",
    )


def nothing_here(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A host without any sign of an AMD GPU cannot be judged, and does not pass either."""
    if snapshot.container or snapshot.is_wsl or has_gpu_sign(snapshot):
        return None
    if snapshot.pci_gpus is None and not _speaks_of_host(snapshot):
        return None  # a saved state about something else
    return Finding(
        code="GPU_NOT_FOUND",
        severity="warning",
        summary="No AMD GPU is found on this host: none on the PCI bus, no amdgpu module, no"
        " /dev/kfd. There is nothing to judge; CPU images run here.",
        evidence=("/sys/bus/pci/devices: no display device of vendor 1002", "/dev/kfd: not there"),
        fix="lspci -d 1002:",
        source="Linux, drivers/gpu/drm/amd",
    )


def _speaks_of_host(snapshot: HostSnapshot) -> bool:
    return bool(snapshot.kernel) and not (snapshot.environment or snapshot.places)
