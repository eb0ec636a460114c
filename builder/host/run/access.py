"""Who may open the devices: groups, user namespaces, SELinux."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.errors import BadCallError, Problem
from builder.host.run.model import Group, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from builder.host.run.model import RunRequest
    from builder.host.snapshot import DeviceNode, Engine, HostSnapshot

# What the kernel shows for a number that a user namespace does not map.
_UNMAPPED = 65534
_SETSEBOOL = "sudo setsebool -P container_use_devices=1"
_IN_ENGINE = ("docker", "podman", "compose", "devcontainer")


def planned_groups(
    snapshot: HostSnapshot,
    engine: Engine | None,
    request: RunRequest,
    nodes: Sequence[DeviceNode],
) -> tuple[tuple[Group, ...], Setting | None]:
    """Return the numbers to add, or the keeping of the caller's groups in their place.

    With CDI too: AMD's specifications add no groups.

    Raises:
        BadCallError: ``GROUP_UNKNOWN``.
    """
    asked = _asked(snapshot, request)
    if request.target in ("apptainer", "slurm"):
        return (), None  # the process keeps the groups of its caller
    if nodes and keeps_groups(engine, request):
        why = (
            "rootless: the owning group has no number in the container's user namespace, so the"
            " caller's groups are kept as they are (crun does)"
        )
        return (), Setting("group-add", "keep-groups", why)
    owners: dict[int, list[str]] = {}
    for node in nodes:
        if node.gid != _UNMAPPED or not in_user_namespace(snapshot):
            owners.setdefault(node.gid, []).append(node.path)
    groups = {gid: f"owns {_few(paths)} on this host" for gid, paths in owners.items()}
    return tuple(Group(gid, why) for gid, why in sorted({**asked, **groups}.items())), None


def keeps_groups(engine: Engine | None, request: RunRequest) -> bool:
    """Tell whether a rootless podman runs it, which cannot add a group of the host by number."""
    return request.target == "podman" and engine is not None and engine.rootless


def in_user_namespace(snapshot: HostSnapshot) -> bool:
    """Tell whether the snapshot was taken where numbers are mapped."""
    return any(line.split()[:2] != ["0", "0"] for line in snapshot.uid_map)


def _asked(snapshot: HostSnapshot, request: RunRequest) -> dict[int, str]:
    """Return the groups that were asked for: a name is looked up on the host, not in the image."""
    found: dict[int, str] = {}
    for name in request.groups:
        if name.isdecimal():
            found[int(name)] = "--group-add"
        elif name in snapshot.groups:
            found[snapshot.groups[name]] = f"--group-add: the number of {name} on this host"
        else:
            there = ", ".join(f"{key}={gid}" for key, gid in sorted(snapshot.groups.items()))
            raise BadCallError(
                Problem(
                    code="GROUP_UNKNOWN",
                    what=f"this host has no group {name!r} that concerns the GPU",
                    where="/etc/group",
                    why=f"found: {there or 'neither video nor render'}",
                    fix="give its number; engines look a name up in the image, not on the host",
                )
            )
    return found


def _few(paths: Sequence[str]) -> str:
    shown = sorted(paths, key=lambda path: (len(path), path))
    return ", ".join(shown[:2]) + (f" and {len(shown) - 2} more" if len(shown) > 2 else "")


def security_settings(
    snapshot: HostSnapshot, engine: Engine | None, request: RunRequest
) -> Iterator[Setting]:
    """Yield what user namespaces and SELinux need; nothing where they are not in the way."""
    if request.target not in _IN_ENGINE:
        return
    if engine is not None and engine.user_namespaces and not engine.rootless:
        why = "this engine maps numbers by default, and then no group of the host fits a node"
        yield Setting("userns", "host", why)
    if _selinux_refuses(snapshot):
        why = f"SELinux is enforcing and container_use_devices is off; better, once: {_SETSEBOOL}"
        yield Setting("security-opt", "label=disable", why)


def _selinux_refuses(snapshot: HostSnapshot) -> bool:
    return snapshot.selinux == "Enforcing" and snapshot.container_use_devices is False


def access_notes(
    snapshot: HostSnapshot,
    engine: Engine | None,
    request: RunRequest,
    nodes: Sequence[DeviceNode],
) -> Iterator[Problem]:
    """Yield what the caller should know about who may open the nodes."""
    if not nodes:
        return
    inside = request.target in _IN_ENGINE
    yield from _engine_notes(engine, request)
    if _selinux_refuses(snapshot) and request.target in (*_IN_ENGINE, "kubernetes"):
        yield Problem(
            code="SELINUX_DEVICES",
            what="SELinux keeps containers from device nodes: container_use_devices is off",
            why="label=disable lifts it for this one container" if inside else None,
            fix=f"{_SETSEBOOL}; then print it again",
        )
    closed = [node for node in nodes if node.gid not in (*snapshot.process_groups, _UNMAPPED)]
    closed = [node for node in closed if node.mode & 0o006 != 0o006 and node.uid != snapshot.uid]
    if not closed or snapshot.uid == 0:
        return
    if keeps_groups(engine, request) or request.target in ("apptainer", "slurm"):
        gids = ", ".join(str(gid) for gid in sorted({node.gid for node in closed}))
        yield Problem(
            code="CALLER_NOT_IN_GROUP",
            what=f"user {snapshot.uid} is not in group {gids}, which owns {_paths(closed)}, and"
            " the container has no groups but those of its caller",
            fix=f"an administrator adds you to the group with number {gids}; then log in again",
        )
    elif inside and any(node.open_errno == "EACCES" or node.gid == 0 for node in closed):
        yield Problem(
            code="CALLER_CANNOT_OPEN",
            what=f"user {snapshot.uid}, the caller, cannot open {_paths(closed)}; a container"
            " of this engine can: container root can, and other users by the groups in the line",
        )


def _engine_notes(engine: Engine | None, request: RunRequest) -> Iterator[Problem]:
    if engine is None:
        return
    if keeps_groups(engine, request) and engine.runtime not in (None, "crun"):
        yield Problem(
            code="KEEP_GROUPS_NEEDS_CRUN",
            what=f"podman runs containers with {engine.runtime}, and keep-groups needs crun",
            fix="install crun, and give podman --runtime=crun",
        )
    if keeps_groups(engine, request) and request.groups:
        yield Problem(
            code="GROUPS_NOT_ADDED",
            what=f"podman takes no group beside keep-groups: {', '.join(request.groups)} is not"
            " added",
            fix="run as a user of the host that is in it",
        )
    if engine.kind == "docker" and engine.rootless:
        yield Problem(
            code="USERNS_GROUP_DROPPED",
            what="rootless Docker maps groups away and cannot keep them: a node of the group"
            " render does not open in the container",
            fix="use rootless podman with crun (keep-groups), or the rootful engine",
        )
    if engine.desktop:
        yield Problem(
            code="DOCKER_DESKTOP",
            what="Docker Desktop runs containers in a virtual machine, which has no /dev/kfd",
            fix="use the engine of the host: docker context use default",
        )


def _paths(nodes: Sequence[DeviceNode]) -> str:
    return _few([node.path for node in nodes])
