"""Rules about engines and what they give a container: memory, space, specifications, sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.host.rules.ask import ENGINES_IN, is_lxc, line_with, lost_groups, told, version_of
from builder.host.rules.model import Finding

if TYPE_CHECKING:
    from builder.host.rules.facts import HostFacts
    from builder.host.snapshot.model import HostSnapshot

_GIB = 1 << 30
_LOW_DISK = 5 * _GIB
_LOW_INODES = 20_000


def shm_too_small(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The engine's default of 64 MiB is too small for workers of a DataLoader and for RCCL."""
    place = snapshot.places.get("shm")
    if place is None or place.total_bytes is None or place.total_bytes >= _GIB:
        return None
    if snapshot.container not in (*ENGINES_IN, "lxc", "lxc-unprivileged"):
        return None
    said = line_with(
        told(snapshot), r"unable to write to file </torch|bus error|extend.*shared memory"
    )
    mib = place.total_bytes >> 20
    fix = "--shm-size 16g (or --ipc=host)"
    if snapshot.container == "kubernetes":
        fix = "an emptyDir volume of medium Memory at /dev/shm (docker's word: --shm-size)"
    return Finding(
        code="SHM_TOO_SMALL",
        severity="error" if said else "warning",
        summary=f"/dev/shm has {mib} MiB: workers of a DataLoader and RCCL pass their data through"
        " it. Set --shm-size.",
        evidence=(f"/dev/shm: {mib} MiB in all", *said),
        fix=fix,
        source="PyTorch, torch.utils.data: shared memory; AMD's run lines of rocm/pytorch",
    )


def cdi_stale(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A specification that is older than the nodes names devices that may be others now."""
    if not snapshot.cdi_specs or not snapshot.cdi_stale or snapshot.container:
        return None
    return Finding(
        code="CDI_STALE",
        severity="warning",
        summary=f"{snapshot.cdi_specs[-1]} is older than the device nodes: the driver was loaded"
        " again since, and the numbers in it may be wrong.",
        evidence=snapshot.cdi_specs,
        fix="sudo amd-ctk cdi generate --output=/etc/cdi/amd.json",
        source="ROCm/container-toolkit, docs/container-runtime/cdi-guide",
    )


def docker_desktop(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Containers of Docker Desktop are in a virtual machine that has no GPU of the host."""
    engine = snapshot.engine
    if engine is None or not engine.desktop or snapshot.is_wsl:
        return None
    return Finding(
        code="DOCKER_DESKTOP",
        severity="error",
        summary="The engine is Docker Desktop: its containers run in a virtual machine, which has"
        " no /dev/kfd of this host.",
        evidence=("docker info: Docker Desktop",),
        fix="docker context use default (with the engine of docker-ce or docker.io installed)",
        source="ROCm/container-toolkit, requirements: Docker Desktop is not supported",
    )


def api_version(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A pinned version keeps the client from agreeing on one with the engine."""
    pinned = snapshot.environment.get("DOCKER_API_VERSION")
    engine = next((one for one in snapshot.engines if one.kind == "docker"), None)
    if not pinned:
        return None
    oldest = engine.min_api if engine else None
    refused = oldest is not None and version_of(pinned) < version_of(oldest)
    newest = engine.api if engine else None
    refused = refused or (newest is not None and version_of(pinned) > version_of(newest))
    spans = f" The engine speaks {oldest or '?'} to {newest or '?'}." if engine and newest else ""
    return Finding(
        code="API_VERSION_PINNED",
        severity="error" if refused else "warning",
        summary=f"DOCKER_API_VERSION={pinned} pins the version that clients speak with the engine."
        f"{spans}",
        evidence=(f"DOCKER_API_VERSION={pinned}",),
        fix="unset DOCKER_API_VERSION",
        source="https://docs.docker.com/reference/api/engine/: versioned API",
    )


def reaper_socket(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The reaper of testcontainers binds the usual socket, which is another one here."""
    host = snapshot.environment.get("DOCKER_HOST", "")
    override = snapshot.environment.get("TESTCONTAINERS_DOCKER_SOCKET_OVERRIDE")
    said = line_with(told(snapshot), r"mount source path.*docker\.sock|ryuk")
    if not host.startswith("unix://") or override or not said:
        return None
    return Finding(
        code="REAPER_SOCKET",
        severity="warning",
        summary=f"DOCKER_HOST is {host}, and the reaper of testcontainers binds"
        " /var/run/docker.sock: tell it with TESTCONTAINERS_DOCKER_SOCKET_OVERRIDE, or switch the"
        " reaper off with TESTCONTAINERS_RYUK_DISABLED=true.",
        evidence=(f"DOCKER_HOST={host}", *said),
        fix=f"export TESTCONTAINERS_DOCKER_SOCKET_OVERRIDE={host[len('unix://') :]}",
        source="https://java.testcontainers.org/features/configuration/",
    )


def group_by_name(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The engine looks names up inside the image."""
    said = line_with(told(snapshot), r"unable to find group \S+: no matching entries")
    if not said or lost_groups(snapshot):
        return None
    gids = sorted({node.gid for node in snapshot.compute_nodes if node.gid})
    flags = " ".join(f"--group-add {gid}" for gid in gids)
    return Finding(
        code="GROUP_BY_NAME",
        severity="error",
        summary="A group was given by name, and names are looked up inside the image: give the"
        " number that owns the node on this host.",
        evidence=said,
        fix=flags or '--group-add "$(stat -c %g /dev/kfd)"',
        source="https://github.com/docker/cli/issues/4714",
    )


def device_not_found(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The engine says that its host has no such node."""
    said = line_with(told(snapshot), r"error gathering device information.*/dev/(kfd|dri)")
    if not said or snapshot.is_wsl or snapshot.kfd:
        return None
    return Finding(
        code="DEVICE_NOT_ON_ENGINE_HOST",
        severity="error",
        summary="The engine's machine has no such node: it is another machine than this one, or"
        " its driver is not loaded.",
        evidence=said,
        fix="docker context ls; docker info --format '{{.Name}} {{.KernelVersion}}'",
        source="https://github.com/ROCm/AMDMIGraphX/issues/3834",
    )


def disk_low(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """These images are large; a full disk shows as anything."""
    place = snapshot.places.get("root")
    if place is None or place.free_bytes is None or place.free_bytes >= _LOW_DISK:
        return None
    if snapshot.container and place.free_bytes > _LOW_DISK // 10:
        return None
    return Finding(
        code="DISK_LOW",
        severity="warning",
        summary=f"{place.path} has {place.free_bytes / _GIB:.1f} GiB free; an image of ROCm unpacks"
        " to between 5 and 50 GiB.",
        evidence=(f"{place.path}: {place.free_bytes} bytes free",),
        fix="docker system df",
        source="sizes of docker.io/rocm/pytorch",
    )


def inodes_low(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Space that is left does not help where no file can be made."""
    for place in snapshot.places.values():
        if place.free_inodes is not None and 0 <= place.free_inodes < _LOW_INODES:
            return Finding(
                code="INODES_LOW",
                severity="warning",
                summary=f"{place.path} has {place.free_inodes} inodes left: files cannot be made"
                " although there is space.",
                evidence=(f"{place.path}: {place.free_inodes} inodes free",),
                fix=f"df -i {place.path}",
                source="df(1)",
            )
    return None


def lxc_unmapped(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """An unprivileged system container must map the group of the node."""
    if not is_lxc(snapshot) or not lost_groups(snapshot):
        return None
    closed = [node for node in snapshot.compute_nodes if node.mode & 0o006 != 0o006]
    if not closed:
        return None
    return Finding(
        code="LXC_GROUP_NOT_MAPPED",
        severity="error",
        summary="The nodes show as nobody's (65534): the container's id map has no number for their"
        " group on the host.",
        evidence=tuple(f"{node.path} {node.uid}:{node.gid} {node.mode:04o}" for node in closed),
        fix="in the container's configuration on the host: dev0: /dev/kfd,gid=RENDER_GID_INSIDE and"
        " dev1: /dev/dri/renderD128,gid=RENDER_GID_INSIDE",
        source="https://pve.proxmox.com/wiki/Linux_Container: device pass-through",
        explains=("KFD_PERMISSION", "RENDER_PERMISSION", "KFD_OPEN_EPERM"),
    )


def lxc_foreign_group(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Without an id map, the host's number arrives as it is, and is another group in the guest."""
    kfd, render = snapshot.kfd, snapshot.groups.get("render")
    if snapshot.container != "lxc" or kfd is None or render is None:
        return None
    if kfd.gid in (0, render) or kfd.mode & 0o006 == 0o006:
        return None
    return Finding(
        code="LXC_FOREIGN_GROUP",
        severity="warning",
        summary=f'/dev/kfd arrives with group {kfd.gid}; this container calls {render} "render".'
        " A privileged container has no id map, so the host's number is kept.",
        evidence=(f"/dev/kfd: group {kfd.gid}", f"/etc/group: render is {render}"),
        fix=f"in the container's configuration on the host: dev0: /dev/kfd,gid={render}",
        source="https://github.com/tteck/Proxmox/issues/2523",
    )


def memlock(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Registering memory for RDMA needs a limit that engines do not raise."""
    said = line_with(told(snapshot), r"ibv_reg_mr.*(cannot allocate|failed)|RLIMIT_MEMLOCK")
    if not said:
        return None
    return Finding(
        code="MEMLOCK_TOO_SMALL",
        severity="error",
        summary="Memory could not be registered for RDMA: the limit of locked memory is too small.",
        evidence=said,
        fix="--ulimit memlock=-1:-1",
        source="ibv_reg_mr(3), getrlimit(2)",
    )


def seccomp_numa(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The one call that seccomp's default keeps back is for binding memory to a NUMA node."""
    said = line_with(told(snapshot), r"(set_mempolicy|mbind|get_mempolicy).*not permitted")
    if not said:
        return None
    return Finding(
        code="SECCOMP_MEMPOLICY",
        severity="info",
        summary="Binding memory to a NUMA node is kept back by the engine's seccomp profile. The"
        " GPU works without it; --cap-add SYS_NICE allows just these calls.",
        evidence=said,
        fix="--cap-add SYS_NICE",
        source="moby, profiles/seccomp/default.json",
    )
