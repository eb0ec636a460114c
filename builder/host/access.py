"""From a snapshot of the host to the arguments that let a container use its GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from builder.host.snapshot import HostSnapshot


@dataclass(frozen=True, slots=True)
class DeviceAccess:
    """What a container needs: device mappings and the numeric groups that own the nodes.

    Attributes:
        devices: ``source:path:rwm`` mappings, one a node.
        groups: distinct GIDs over all nodes, ascending. Numbers, because a group name is looked
            up inside the image, where it is another number or none.
    """

    devices: tuple[str, ...]
    groups: tuple[int, ...]

    def docker_arguments(self) -> tuple[str, ...]:
        """Return the words for ``docker run``."""
        return (
            *(f"--device={_short(device)}" for device in self.devices),
            *(word for gid in self.groups for word in ("--group-add", str(gid))),
        )


def device_access(snapshot: HostSnapshot) -> DeviceAccess:
    """Return the access to every GPU node of ``snapshot``; empty where there is none."""
    return DeviceAccess(
        devices=tuple(f"{node.source}:{node.path}:rwm" for node in snapshot.compute_nodes),
        groups=tuple(sorted({node.gid for node in snapshot.compute_nodes})),
    )


def _short(mapping: str) -> str:
    source, path, _ = mapping.split(":")
    return source if source == path else mapping
