"""What this process may use of the host: cores, and memory by its control group."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LIMITS = ("memory.max", "memory.high")
_V1 = "memory.limit_in_bytes"


def allowed_cores() -> int:
    """Return how many cores the scheduler lets this process use."""
    return len(os.sched_getaffinity(0))


def allowed_memory(root: Path) -> int:
    """Return the bytes of memory that this process may use.

    That is the host's memory, or the lowest limit of the control groups that this process is in:
    a batch system bounds a job by one, and what looks at the host's memory alone is killed there.

    Args:
        root: the file system's root, or a stand-in tree.
    """
    limits = [_host_memory(root), *_group_limits(root)]
    return min(limits)


def _host_memory(root: Path) -> int:
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return int(value.split()[0]) * 1024
    return 1 << 30  # a host that does not say: little enough for any


def _group_limits(root: Path) -> list[int]:
    found: list[int] = []
    names: tuple[str, ...]
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers == "":
            top, names = root / "sys/fs/cgroup", _LIMITS
        elif "memory" in controllers.split(","):
            top, names = root / "sys/fs/cgroup/memory", (_V1,)
        else:
            continue
        folder = top / place.strip("/")
        # Every group above bounds it too; a name space may hide the lower ones.
        for group in (folder, *folder.parents):
            found += [
                int(text) for name in names if (text := _read(group / name).strip()).isdecimal()
            ]
            if group == top:
                break
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""
