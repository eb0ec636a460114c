"""Step render: contexts into ``images/``, or the differences between them and what is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from builder.report.records import atomic_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.matrix.cells import Cell
    from builder.pipeline.session import Session

# Folders of images/ that no cell is rendered into.
_OURS = frozenset({"rootfs", "selftest", "registry", "tools"})


@dataclass(frozen=True, slots=True)
class Drift:
    """A file of ``images/`` that is not what the matrix and the templates say."""

    path: str
    state: Literal["missing", "differs", "left over"]


def drift(session: Session, cells: Sequence[Cell], *, whole: bool) -> tuple[Drift, ...]:
    """Return what would change; ``whole`` also finds contexts of cells that are no more."""
    images = session.workspace.images
    found: list[Drift] = []
    for cell in cells:
        for name, content in session.context(cell).items():
            path = images / cell.id / name
            if not path.is_file():
                found.append(Drift(f"images/{cell.id}/{name}", "missing"))
            elif path.read_bytes() != content:
                found.append(Drift(f"images/{cell.id}/{name}", "differs"))
    if whole:
        known = {cell.id for cell in cells} | _OURS
        found += [
            Drift(f"images/{folder.name}", "left over")
            for folder in sorted(images.glob("*"))
            if folder.is_dir() and folder.name not in known
        ]
    return tuple(found)


def render(session: Session, cells: Sequence[Cell]) -> tuple[str, ...]:
    """Write the contexts of ``cells`` and return the paths that changed."""
    changed = []
    for cell in cells:
        for name, content in session.context(cell).items():
            path = session.workspace.context(cell.id) / name
            if not path.is_file() or path.read_bytes() != content:
                atomic_write(path, content)
                changed.append(f"images/{cell.id}/{name}")
    return tuple(changed)
