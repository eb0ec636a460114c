"""Before anything is built: whether the engine is fit, and whether there is room."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from builder.engines.buildx import Buildx
from builder.engines.docker_engine import DockerEngine
from builder.errors import CouldNotError, Problem, RefusedError
from builder.matrix.site import WHEEL_FAMILIES
from builder.pipeline.archives import Archives, require_unmoved
from builder.pipeline.build import stale_reasons

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.matrix.cells import Cell
    from builder.pipeline.session import Job, Session

_GIB = 1 << 30
# Where the facts do not know an image's size: that of AMD's larger ones.
_UNPACKED_BYTES = 30 * _GIB
# A build needs its image's file system in BuildKit and in the engine, and the compressed layers, a
# third of it each, in both and in the layout. Measured on the distro family.
_TIMES = 3
_CELL_INODES = 120_000


@dataclass(frozen=True, slots=True)
class Room:
    """What a file system has free."""

    path: Path
    bytes: int
    inodes: int | None


def preflight(session: Session, jobs: Sequence[Job], *, force: bool) -> None:
    """Raise unless the stale cells among ``jobs`` can be built here.

    Raises:
        CouldNotError: engine or buildx missing, not answering or unfit; disk or inodes too few; an
            archive that cannot be reached.
        RefusedError: an archive moved since the cell was locked; a wheelhouse that is of no use.
    """
    require_wheel_cells(session, [job.cell for job in jobs])
    info = DockerEngine().check()
    Buildx(session.tools.runner).check()
    stale = [job for job in jobs if force or stale_reasons(session, job)]
    require_unmoved(session, stale, Archives(session.site))
    problems = [
        problem
        for path in (session.workspace.state, Path(info.root))
        if (room := room_at(path)) is not None
        and (problem := too_small(room, [job.cell for job in stale])) is not None
    ]
    if problems:
        raise CouldNotError(dict.fromkeys(problems))


def require_wheel_cells(session: Session, cells: Sequence[Cell]) -> None:
    """Raise where a wheelhouse was named and none of ``cells`` installs wheels."""
    families = sorted({cell.base.family for cell in cells})
    if session.wheelhouse is None or WHEEL_FAMILIES & set(families):
        return
    raise RefusedError(
        Problem(
            code="WHEELHOUSE_NOT_USED",
            what="none of the selected cells installs torch from a wheel: they are of the family"
            f" {', '.join(families)}",
            where=str(session.wheelhouse),
            fix="leave --wheelhouse out, or select cells of another family",
        )
    )


def room_at(path: Path) -> Room | None:
    """Return the room at ``path``, or None where it cannot be seen (a remote engine's folder)."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    # A file system without a fixed number of inodes reports none at all.
    inodes = status.f_favail if status.f_files else None
    return Room(path, status.f_bavail * status.f_frsize, inodes)


def too_small(room: Room, cells: Sequence[Cell]) -> Problem | None:
    """Return the problem where the builds of ``cells`` do not fit, else None."""
    wanted = sum(_TIMES * (cell.unpacked_bytes or _UNPACKED_BYTES) for cell in cells)
    inodes = _CELL_INODES * len(cells)
    if room.bytes < wanted:
        return Problem(
            code="DISK_TOO_SMALL",
            what=f"{room.bytes / _GIB:.1f} GiB are free and {wanted / _GIB:.1f} GiB are needed for"
            f" {len(cells)} cells",
            where=str(room.path),
            why=f"a build takes {_TIMES} times an unpacked image, and these have"
            f" {wanted / _TIMES / _GIB:.1f} GiB: in the builder, in the engine and in the layout",
            fix="free room (`docker buildx prune`), or build fewer cells at a time",
        )
    if room.inodes is not None and room.inodes < inodes:
        return Problem(
            code="INODES_TOO_FEW",
            what=f"{room.inodes} inodes are free and {inodes} are needed for {len(cells)} cells",
            where=str(room.path),
            fix="remove what has many small files, or use a file system with more inodes",
        )
    return None
