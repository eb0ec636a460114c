"""What a folder of this host is good for: room, kind of file system, whether programs may run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# Held in memory: what is written there counts against the memory of the job.
MEMORY_KINDS = frozenset({"tmpfs", "ramfs"})


@dataclass(frozen=True, slots=True)
class Folder:
    """One folder as a place to work in.

    Attributes:
        path: where it is.
        kind: of its file system, such as ``ext4`` or ``tmpfs``; empty where it is not known.
        free: bytes that this user may write.
        inodes: files that may be made; None where the file system has no fixed number.
        runs: whether programs may be run from it.
        writable: whether this user may write to it.
        named: the variable that names it, where it was chosen by one.
    """

    path: Path
    kind: str
    free: int
    inodes: int | None = None
    runs: bool = True
    writable: bool = True
    named: str | None = None


def look_at(path: Path, mounts: str, *, named: str | None = None) -> Folder | None:
    """Return what a folder is good for, or None where it is not there.

    Args:
        path: the folder.
        mounts: the text of ``/proc/self/mounts``.
        named: the variable that names it.
    """
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return Folder(
        path=path,
        kind=kind_of(path, mounts),
        free=status.f_bavail * status.f_frsize,
        inodes=status.f_favail if status.f_files else None,
        runs=not status.f_flag & os.ST_NOEXEC,
        writable=os.access(path, os.W_OK | os.X_OK),
        named=named,
    )


def kind_of(path: Path, mounts: str) -> str:
    """Return the kind of the file system that holds ``path``; the last and deepest mount counts."""
    found, depth = "", -1
    place = path.resolve()
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        point = words[1].replace("\\040", " ")
        parts = len([part for part in point.split("/") if part])
        if parts >= depth and place.is_relative_to(point):
            found, depth = words[2], parts
    return found
