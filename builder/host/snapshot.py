"""What this host has: the GPU's device nodes with their owners. Read once, then only looked at."""

from __future__ import annotations

import os
import platform
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A character device of the GPU.

    Attributes:
        path: the path that programs know, such as ``/dev/kfd``.
        source: where it was found; differs from ``path`` under another root.
        uid: owner of the node.
        gid: owning group; the number that ``--group-add`` needs.
        mode: permission bits.
    """

    path: str
    source: str
    uid: int
    gid: int
    mode: int


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """One frozen look at a host."""

    kernel: str
    machine: str
    kfd: DeviceNode | None
    render_nodes: tuple[DeviceNode, ...]

    @property
    def nodes(self) -> tuple[DeviceNode, ...]:
        """Return every node of the GPU path: kfd first, then the render nodes."""
        return ((self.kfd,) if self.kfd else ()) + self.render_nodes


def read_snapshot(root: Path) -> HostSnapshot:
    """Look at the host whose file system starts at ``root``: ``/``, or a stand-in tree."""
    dri = root / "dev/dri"
    numbered = (path for path in dri.glob("renderD*") if _number(path).isdecimal())
    renders = sorted(numbered, key=lambda path: int(_number(path)))
    return HostSnapshot(
        kernel=platform.release(),
        machine=platform.machine(),
        kfd=_node(root, root / "dev/kfd"),
        render_nodes=tuple(node for path in renders if (node := _node(root, path)) is not None),
    )


def _number(path: Path) -> str:
    return path.name.removeprefix("renderD")


def _node(root: Path, path: Path) -> DeviceNode | None:
    try:
        status = path.stat()
    except OSError:
        return None
    if not stat.S_ISCHR(status.st_mode):
        return None
    return DeviceNode(
        path=f"/{path.relative_to(root)}",
        source=os.fspath(path),
        uid=status.st_uid,
        gid=status.st_gid,
        mode=stat.S_IMODE(status.st_mode),
    )
