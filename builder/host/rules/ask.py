"""Questions that several rules ask of a snapshot."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from builder.host.rules.facts import HostFacts
    from builder.host.snapshot.model import DeviceNode, HostSnapshot

NOBODY = 65534  # /proc/sys/kernel/overflowuid and overflowgid: what is not mapped shows as this
ASKED = "error"  # name among the tools' outputs of a message that somebody asks about
ENGINES_IN = ("docker", "podman", "kubernetes")


class Access(NamedTuple):
    """What opening a node gives: ``ok``, ``denied``, or the name of another error."""

    node: DeviceNode
    result: str

    @property
    def line(self) -> str:
        """Return the row of the per-node table."""
        node = self.node
        return f"{node.path} owner {node.uid}:{node.gid} mode {node.mode:04o}: {self.result}"


def in_user_namespace(snapshot: HostSnapshot) -> bool:
    """Tell whether user numbers here are not those of the machine."""
    if not snapshot.uid_map:
        return False
    return [line.split() for line in snapshot.uid_map] != [["0", "0", "4294967295"]]


def allowed_by_mode(
    node: DeviceNode, uid: int, groups: Iterable[int], mapped: bool = False
) -> bool:
    """Tell whether owner, groups and mode let a process read and write a node.

    Root passes every mode, except over what its user namespace (``mapped``) has no number for.
    """
    unmapped = mapped and NOBODY in (node.uid, node.gid)
    if uid == 0 and not unmapped:
        return True
    if node.uid == uid:
        return node.mode & 0o600 == 0o600
    if node.gid in set(groups) and not (mapped and node.gid == NOBODY):
        return node.mode & 0o060 == 0o060
    return node.mode & 0o006 == 0o006


def access(snapshot: HostSnapshot, node: DeviceNode) -> Access:
    """Return what the caller gets of a node: the probe where there was one, else by the mode."""
    error = node.open_errno
    if error is None:
        mapped = in_user_namespace(snapshot)
        by_mode = allowed_by_mode(node, snapshot.uid, snapshot.process_groups, mapped)
        return Access(node, "ok" if by_mode else "denied")
    return Access(node, {"": "ok", "EACCES": "denied"}.get(error, error))


def accesses(snapshot: HostSnapshot) -> tuple[Access, ...]:
    """Return the per-node table of kfd and the render nodes."""
    return tuple(access(snapshot, node) for node in snapshot.compute_nodes)


def denied(snapshot: HostSnapshot) -> tuple[Access, ...]:
    """Return the nodes that the mode keeps from the caller, whatever else may be wrong."""
    return tuple(one for one in accesses(snapshot) if one.result == "denied")


def allowed_though_denied(snapshot: HostSnapshot) -> tuple[Access, ...]:
    """Return nodes that owner and mode allow, and that the kernel still denied."""
    mapped = in_user_namespace(snapshot)
    return tuple(
        one
        for one in denied(snapshot)
        if allowed_by_mode(one.node, snapshot.uid, snapshot.process_groups, mapped)
    )


def lost_groups(snapshot: HostSnapshot) -> bool:
    """Tell whether nodes belong to numbers that this user namespace does not have."""
    owned = any(NOBODY in (node.uid, node.gid) for node in snapshot.compute_nodes)
    return in_user_namespace(snapshot) and owned


def is_lxc(snapshot: HostSnapshot) -> bool:
    """Tell whether this is a system container."""
    return (snapshot.container or "").startswith("lxc")


def on_host(snapshot: HostSnapshot) -> bool:
    """Tell whether this is the machine itself, and not Windows' Linux."""
    return snapshot.container is None and not snapshot.is_wsl


def rootful_engine(snapshot: HostSnapshot) -> bool:
    """Tell whether this is a host whose engine opens the nodes as root."""
    engine = snapshot.engine
    return (
        snapshot.container is None
        and engine is not None
        and not (engine.rootless or engine.kind == "apptainer")
    )


def told(snapshot: HostSnapshot, *names: str) -> str:
    """Return what programs said, both streams; of all programs where none is named."""
    tools = [snapshot.tools[name] for name in names or snapshot.tools if name in snapshot.tools]
    return "\n".join(text for tool in tools for text in (tool.stdout, tool.stderr) if text)


def line_with(text: str, pattern: str) -> tuple[str, ...]:
    """Return the first line that matches, shortened, as evidence; nothing where none does."""
    for line in text.splitlines():
        if re.search(pattern, line, re.IGNORECASE):
            return (line.strip()[:200],)
    return ()


def kernel_lines(snapshot: HostSnapshot, pattern: str) -> tuple[str, ...]:
    """Return up to three lines of the kernel log that match."""
    found = [line.strip()[:200] for line in snapshot.dmesg if re.search(pattern, line, re.I)]
    return tuple(found[-3:])


def targets(snapshot: HostSnapshot, facts: HostFacts) -> tuple[str, ...]:
    """Return the targets that torch has kernels for: asked of it, else by the image's label."""
    if snapshot.torch_targets:
        return snapshot.torch_targets
    return facts.image.gfx if facts.image else ()


def served(gfx: str | None, served_by: tuple[str, ...]) -> bool:
    """Tell whether a target has kernels: its own, or those of its generic family.

    Source: LLVM, "User Guide for AMDGPU Backend", generic processors.
    """
    if not gfx:
        return False
    plain = {target.partition(":")[0] for target in served_by}
    return gfx in plain or any(gfx in _GENERIC.get(name, ()) for name in plain)


_GENERIC = {
    "gfx9-generic": ("gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"),
    "gfx9-4-generic": ("gfx942", "gfx950"),
    "gfx10-1-generic": ("gfx1010", "gfx1011", "gfx1012", "gfx1013"),
    "gfx10-3-generic": tuple(f"gfx103{n}" for n in range(7)),
    "gfx11-generic": (
        *(f"gfx110{n}" for n in range(4)),
        *(f"gfx115{n}" for n in range(4)),
    ),
    "gfx12-generic": ("gfx1200", "gfx1201"),
}


def version_of(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, to compare; ``()`` where it has none."""
    numbers: list[int] = []
    for part in re.split(r"[.\-+_]", text):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def has_gpu_sign(snapshot: HostSnapshot) -> bool:
    """Tell whether anything here speaks of an AMD GPU."""
    return bool(
        snapshot.nodes
        or snapshot.gpus
        or snapshot.pci_gpus
        or snapshot.kfd_gpu_nodes
        or snapshot.environment.keys() & {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}
        or "amdgpu" in (snapshot.modules or ())
    )
