"""Rules about user namespaces: groups that are lost on the way in. No change of modes helps here.

Sources: user_namespaces(7); podman-run(1), --group-add keep-groups; dockerd(8), --userns-remap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.host.rules.ask import accesses, is_lxc, lost_groups
from builder.host.rules.model import Finding

if TYPE_CHECKING:
    from builder.host.rules.facts import HostFacts
    from builder.host.snapshot.model import HostSnapshot

_FOLLOWS = (
    "KFD_PERMISSION", "RENDER_PERMISSION", "KFD_OPEN_EPERM", "ROCMINFO_NO_MODULE",
    "SMI_IS_NO_PROOF", "OUT_OF_RESOURCES",
)  # fmt: skip


def group_dropped(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Nodes of nobody, and numbers that are mapped: the group of the host was dropped."""
    if not lost_groups(snapshot) or is_lxc(snapshot):
        return None
    closed = [one for one in accesses(snapshot) if one.result != "ok"]
    if not closed:
        return None
    fix = "podman run --group-add keep-groups --runtime crun ..."
    if snapshot.container == "docker" and not _podman(snapshot):
        fix = "--userns=host on a rootful engine; rootless: podman run --group-add keep-groups ..."
    if snapshot.container == "kubernetes":
        fix = "hostUsers: true in the pod; podman's word for the same is keep-groups"
    return Finding(
        code="USERNS_GROUP_DROPPED",
        severity="error",
        summary="The nodes show as nobody's (65534), because this user namespace has no number for"
        " their owners: the host's group was dropped on the way in. It is kept with keep-groups"
        " (runtime crun); numbers in --group-add are those of the namespace and do not help.",
        evidence=(*(f"uid_map: {line}" for line in snapshot.uid_map), *(c.line for c in closed)),
        fix=fix,
        source="podman-run(1); https://github.com/kyuz0/amd-strix-halo-toolboxes/issues/53",
        explains=_FOLLOWS,
    )


def rootless_needs_crun(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """keep-groups is an annotation that crun knows and runc does not."""
    engine = snapshot.engine
    if engine is None or engine.kind != "podman" or not engine.rootless:
        return None
    if engine.runtime in (None, "crun") or snapshot.container:
        return None
    return Finding(
        code="ROOTLESS_NEEDS_CRUN",
        severity="warning",
        summary=f"Rootless podman runs with {engine.runtime}, which drops the caller's groups:"
        " --group-add keep-groups works with crun only.",
        evidence=(f"podman {engine.version or ''} rootless, runtime {engine.runtime}",),
        fix="podman run --runtime crun --group-add keep-groups ...",
        source="podman-run(1)",
    )


def rootless_docker(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Rootless Docker has no keep-groups: only nodes that all may open work there."""
    engine = snapshot.engine
    if engine is None or engine.kind != "docker" or not engine.rootless or snapshot.container:
        return None
    closed = [node for node in snapshot.compute_nodes if node.mode & 0o006 != 0o006]
    if not closed:
        return None
    return Finding(
        code="ROOTLESS_DOCKER_GROUPS",
        severity="warning",
        summary="Docker runs rootless: its user namespace drops the groups that own the nodes, and"
        " it has no option that keeps them. Rootless podman has.",
        evidence=tuple(f"{node.path} group {node.gid} mode {node.mode:04o}" for node in closed),
        fix="podman run --group-add keep-groups --runtime crun ...",
        source="https://docs.docker.com/engine/security/rootless/",
    )


def userns_remap(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """With remapping on, the groups that are added are other groups on the host."""
    engine = snapshot.engine
    if engine is None or engine.kind != "docker" or engine.rootless or snapshot.container:
        return None
    if not engine.user_namespaces or not snapshot.compute_nodes:
        return None
    return Finding(
        code="DOCKER_USERNS_REMAP",
        severity="warning",
        summary="Docker maps users of containers (userns-remap): a group number that is added is"
        " another one on the host, so that the nodes stay closed.",
        evidence=("docker info: name=userns",),
        fix="docker run --userns=host --device=/dev/kfd --device=/dev/dri ...",
        source="https://docs.docker.com/engine/security/userns-remap/",
    )


def _podman(snapshot: HostSnapshot) -> bool:
    return bool(snapshot.engine and snapshot.engine.kind == "podman")
