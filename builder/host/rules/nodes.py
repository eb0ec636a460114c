"""Rules about device nodes: who may open them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.host.rules.ask import (
    ENGINES_IN,
    NOBODY,
    access,
    accesses,
    allowed_by_mode,
    allowed_though_denied,
    denied,
    is_lxc,
    line_with,
    lost_groups,
    rootful_engine,
    told,
)
from builder.host.rules.model import Finding

if TYPE_CHECKING:
    from builder.host.rules.facts import HostFacts
    from builder.host.snapshot.model import DeviceNode, HostSnapshot

_AMD = "https://rocm.docs.amd.com/projects/install-on-linux: running ROCm in Docker; prerequisites"
_FOLLOWS_CLOSED = (
    "RENDER_PERMISSION", "ROCMINFO_NO_MODULE", "SMI_IS_NO_PROOF", "OUT_OF_RESOURCES",
    "NODE_GROUPS_DIFFER", "NODE_GROUP_UNNAMED",
)  # fmt: skip


def kfd_permission(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The number of the group decides, and it is the owner of the node on this host."""
    if not _plain_denial(snapshot) or _not_active(snapshot) or rootful_engine(snapshot):
        return None
    kfd = snapshot.kfd
    if kfd is None or access(snapshot, kfd).result != "denied" or kfd.gid == 0:
        return None
    if _barred(kfd):
        return None
    return Finding(
        code="KFD_PERMISSION",
        severity="error",
        summary=f"/dev/kfd is present but not openable by uid {snapshot.uid}: it belongs to group"
        f" {kfd.gid} (mode {kfd.mode:04o}), and the process has groups"
        f" {_listed(snapshot.process_groups)}.",
        evidence=tuple(one.line for one in accesses(snapshot)),
        fix=_group_fix(snapshot),
        source=_AMD,
        explains=_FOLLOWS_CLOSED,
    )


def mode_closed(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A mode that keeps the group out makes every advice about groups wrong."""
    closed = [one for one in denied(snapshot) if _barred(one.node)]
    if not closed or not _plain_denial(snapshot) or rootful_engine(snapshot):
        return None
    names = _listed([one.node.path for one in closed])
    modes = _listed(sorted({f"{one.node.mode:04o}" for one in closed}))
    rule = 'KERNEL=="kfd", GROUP="render", MODE="0660"'
    more = 'SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="render", MODE="0660"'
    fix = (
        f"printf '%s\\n' '{rule}' '{more}' | sudo tee /etc/udev/rules.d/70-kfd.rules"
        " && sudo udevadm control --reload && sudo udevadm trigger"
    )
    if snapshot.container:
        fix = (
            "on the host: stat -c '%n %U:%G %a' /dev/kfd /dev/dri/renderD*; its udev rule must"
            ' say MODE="0660"'
        )
    return Finding(
        code="NODE_MODE_CLOSED",
        severity="error",
        summary=f"{names}: the mode ({modes}) gives the owning group no access, so no group lets"
        f" uid {snapshot.uid} open it.",
        evidence=tuple(one.line for one in accesses(snapshot)),
        fix=fix,
        source=_AMD,
        explains=_FOLLOWS_CLOSED,
    )


def kfd_permission_told(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Without a look at the node, rocminfo's message says as much."""
    said = line_with(told(snapshot), r"/dev/kfd.*permission denied")
    if not said or snapshot.kfd or lost_groups(snapshot):
        return None
    return Finding(
        code="KFD_PERMISSION",
        severity="error",
        summary=f"/dev/kfd is present but not openable by uid {snapshot.uid}. That a monitoring"
        " tool lists the card proves nothing: it reads sysfs and needs no /dev/kfd.",
        evidence=said,
        fix="on the host: id; ls -l /dev/kfd"
        if snapshot.container == "apptainer" or is_lxc(snapshot)
        else 'docker run --group-add "$(stat -c %g /dev/kfd)" ...',
        source="https://github.com/ROCm/ROCm-docker/issues/114",
        explains=_FOLLOWS_CLOSED,
    )


def kfd_owned_by_root(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A node of root:root is what is made without AMD's udev rule; joining group 0 is no fix."""
    kfd = snapshot.kfd
    if not _plain_denial(snapshot) or rootful_engine(snapshot) or kfd is None or kfd.gid:
        return None
    if access(snapshot, kfd).result != "denied":
        return None
    rule = 'KERNEL=="kfd", GROUP="render", MODE="0660"'
    fix = f"echo '{rule}' | sudo tee /etc/udev/rules.d/70-kfd.rules && sudo udevadm trigger"
    if snapshot.container:
        fix = "on the host: stat -c '%U:%G %a' /dev/kfd; give the node its render group there"
    return Finding(
        code="KFD_OWNED_BY_ROOT",
        severity="error",
        summary=f"/dev/kfd belongs to root:root (mode {kfd.mode:04o}): no group lets"
        f" uid {snapshot.uid} open it.",
        evidence=tuple(one.line for one in accesses(snapshot)),
        fix=fix,
        source=_AMD,
        explains=_FOLLOWS_CLOSED,
    )


def render_permission(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Each node is judged on its own: kfd may be open and a render node closed."""
    if not _plain_denial(snapshot) or _not_active(snapshot) or rootful_engine(snapshot):
        return None
    closed = [one for one in denied(snapshot) if not one.node.is_kfd and one.node.gid]
    closed = [one for one in closed if not _barred(one.node)]
    if not closed:
        return None
    return Finding(
        code="RENDER_PERMISSION",
        severity="error",
        summary=f"{_listed([one.node.path for one in closed])}: present but not openable by uid"
        f" {snapshot.uid}.",
        evidence=tuple(one.line for one in accesses(snapshot)),
        fix=_group_fix(snapshot),
        source=_AMD,
        explains=("SMI_IS_NO_PROOF",),
    )


def group_not_active(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The user database has the group and the process does not: it is older than the change."""
    gids = _not_active(snapshot)
    if not gids or not _plain_denial(snapshot):
        return None
    return Finding(
        code="GROUP_NOT_ACTIVE",
        severity="warning" if rootful_engine(snapshot) else "error",
        summary=f"The user database has uid {snapshot.uid} in group {_listed(gids)}, this process"
        " has not: the session is older than the change. log out and in again.",
        evidence=(
            f"user database: {_listed(snapshot.db_groups or ())}",
            f"this process: {_listed(snapshot.process_groups)}",
            *(one.line for one in denied(snapshot)),
        ),
        fix=f"newgrp {_name(snapshot, gids[0])}, or log out and in; restart a service",
        source="newgrp(1), initgroups(3)",
        explains=(*_FOLLOWS_CLOSED, "CALLER_CANNOT_OPEN"),
    )


def caller_cannot_open(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A rootful engine opens nodes as root: what the caller may do decides nothing."""
    if not rootful_engine(snapshot) or not _plain_denial(snapshot):
        return None
    user = facts.image.uid if facts.image else None
    gids = _gids(snapshot)
    summary = (
        f"The caller cannot open {_listed([one.node.path for one in denied(snapshot)])} (caller"
        f" cannot open, uid {snapshot.uid}; container root can, because the engine is rootful)."
    )
    fix = " ".join(f"--group-add {gid}" for gid in gids)
    if user == 0:
        summary += " The image runs as root: nothing to do."
        fix = ""
    elif gids:
        summary += f" A user of the image that is not root needs {fix}."
    return Finding(
        code="CALLER_CANNOT_OPEN",
        severity="warning",
        summary=summary,
        evidence=tuple(one.line for one in accesses(snapshot)),
        fix=fix,
        source="https://github.com/Hal0ai/hal0/pull/1954",
        explains=("SMI_IS_NO_PROOF", "ROCMINFO_NO_MODULE"),
    )


def node_groups_differ(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """One group is not enough where kfd and the render nodes have different ones."""
    gids = {node.gid for node in snapshot.compute_nodes if node.mode & 0o006 != 0o006}
    if len(gids) < 2 or snapshot.uid == 0 or lost_groups(snapshot):
        return None
    return Finding(
        code="NODE_GROUPS_DIFFER",
        severity="info",
        summary=f"The nodes belong to different groups ({_listed(sorted(gids))}): a process needs"
        " each of them.",
        evidence=tuple(one.line for one in accesses(snapshot)),
        source="https://github.com/community-scripts/ProxmoxVE/pull/15401",
    )


def node_group_unnamed(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Names are looked up inside the image: the number of the host has another name there."""
    kfd = snapshot.kfd
    if kfd is None or snapshot.container not in ENGINES_IN or kfd.gid in (0, NOBODY):
        return None
    render = snapshot.groups.get("render")
    if render is None or render == kfd.gid:
        return None
    return Finding(
        code="NODE_GROUP_UNNAMED",
        severity="info",
        summary=f'/dev/kfd belongs to group {kfd.gid}, and this image calls {render} "render": a'
        " group that is given by name would be the wrong one. Give the number.",
        evidence=(f"/dev/kfd: group {kfd.gid}", f"/etc/group: render is {render}"),
        source="https://github.com/docker/cli/issues/4714",
    )


def _plain_denial(snapshot: HostSnapshot) -> bool:
    """Tell whether owner and mode alone explain what is denied: no user namespace, no policy."""
    return bool(denied(snapshot)) and not (lost_groups(snapshot) or allowed_though_denied(snapshot))


def _not_active(snapshot: HostSnapshot) -> tuple[int, ...]:
    """Return groups that would open each denied node and that only the database knows of."""
    known = set(snapshot.db_groups or ())
    closed = [one.node for one in denied(snapshot)]
    if not closed or not all(allowed_by_mode(node, snapshot.uid, known) for node in closed):
        return ()
    return tuple(sorted({node.gid for node in closed} - set(snapshot.process_groups)))


def _barred(node: DeviceNode) -> bool:
    return bool(node.gid) and node.mode & 0o060 != 0o060


def _gids(snapshot: HostSnapshot) -> tuple[int, ...]:
    return tuple(
        sorted({one.node.gid for one in denied(snapshot) if one.node.gid and not _barred(one.node)})
    )


def _group_fix(snapshot: HostSnapshot) -> str:
    """Return what gives the caller the groups: by the number inside, by membership on a host."""
    gids = _gids(snapshot)
    flags = " ".join(f"--group-add {gid}" for gid in gids)
    if snapshot.container == "kubernetes":
        return f"securityContext: {{supplementalGroups: [{_listed(gids)}]}}"
    if snapshot.container == "apptainer" or is_lxc(snapshot):
        where = "on the host" if snapshot.container == "apptainer" else "in the container"
        names = ",".join(_name(snapshot, gid) for gid in gids)
        return f"{where}: sudo usermod -aG {names} USER, then log in again"
    if snapshot.container:
        return flags
    if snapshot.engine and snapshot.engine.rootless:
        flags = "--group-add keep-groups"
    names = ",".join(_name(snapshot, gid) for gid in gids)
    return f"sudo usermod -aG {names} USER, then log in again; for a container: {flags}"


def _name(snapshot: HostSnapshot, gid: int) -> str:
    named = {number: name for name, number in snapshot.groups.items()}
    return named.get(gid, f'"$(getent group {gid} | cut -d: -f1)"')


def _listed(values: object) -> str:
    return ", ".join(str(value) for value in values)  # type: ignore[attr-defined]
