"""Step prune: what lies in the working copy and the engine and nothing refers to any more.

Looks first and removes after, so that a dry run and a real one see the same things.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from builder.engines.docker_engine import DockerEngine
from builder.engines.layout import Layout
from builder.errors import CouldNotError, Problem, RocmTorchError
from builder.matrix.lock import Lock
from builder.oci import Digest
from builder.pipeline.candidate import expired

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.engines.registry import Registry
    from builder.pipeline.session import Session

Kind = Literal[
    "blob",
    "layout entry",
    "evidence",
    "stage",
    "wheel",
    "logs",
    "records",
    "leftover",
    "image",
    "tag",
]


@dataclass(frozen=True, slots=True)
class Garbage:
    """One thing to remove: a path of the working copy, or a name in the engine."""

    kind: Kind
    name: str
    size: int
    path: Path | None = None


def find_garbage(session: Session) -> tuple[Garbage, ...]:
    """Return what nothing refers to: no cell of the matrix, no lock entry, no record.

    An image is kept while the record of its cell's last build names it; a base while the lock does.
    """
    built = _built(session)
    keep = set(built.values()) | _bases(session)
    return (
        *_blobs(session, keep),
        *_evidence(session, set(built.values())),
        *_folders(session),
        *_wheels(session),
        *_leftovers(session),
        *_images(session, set(built.values())),
    )


def remove(session: Session, garbage: tuple[Garbage, ...]) -> None:
    """Remove what :func:`find_garbage` found."""
    engine, layout = DockerEngine(), Layout(session.workspace.layout)
    for item in garbage:
        if item.kind == "image":
            engine.remove_tag(item.name)
        elif item.kind == "layout entry":
            layout.remove_entry(Digest(item.name))
        elif item.path is not None and item.path.is_dir():
            shutil.rmtree(item.path, ignore_errors=True)
        elif item.path is not None:
            item.path.unlink(missing_ok=True)


def ended_leases(session: Session, registry: Registry) -> tuple[Garbage, ...]:
    """Return the tags of candidates in a registry whose lease has ended; nobody waits for them."""
    tags = expired(registry.list_tags(session.matrix.image), session.tools.now().date())
    return tuple(Garbage("tag", tag, 0) for tag in tags)


def remove_leases(session: Session, registry: Registry, garbage: tuple[Garbage, ...]) -> None:
    """Take the tags away, and never an image.

    Raises:
        CouldNotError: ``TAG_STAYS``, where the registry does not delete tags.
    """
    stay = [tag.name for tag in garbage if not registry.delete_tag(session.matrix.image, tag.name)]
    if stay:
        raise CouldNotError(
            Problem(
                "TAG_STAYS",
                f"the registry did not delete {', '.join(stay)}",
                where=f"{registry.host}/{session.matrix.image}",
                fix="let the registry's own retention rules remove tags that begin with candidate-",
            )
        )


def _built(session: Session) -> dict[str, Digest]:
    """Return the digest of the last build of each cell of the matrix."""
    found = {}
    for cell in session.matrix.cells:
        record = session.built(cell)
        if record is not None:
            found[cell.id] = Digest(record.digest)
    return found


def locks_here(session: Session) -> list[Lock]:
    """Return every lock here: the run's own, the committed one, and those of demos."""
    locks, workspace = [session.lock], session.workspace
    for path in (workspace.root / "matrix.lock", *workspace.state.glob("*.lock")):
        with suppress(RocmTorchError, OSError):
            locks.append(Lock.from_text(path.read_text("utf-8"), path.name))
    return locks


def _bases(session: Session) -> set[Digest]:
    """Return the bootstrapped bases that a lock names."""
    return {
        cell.base
        for lock in locks_here(session)
        for cell in lock.cells.values()
        if cell.origin == "bootstrap"
    }


def _wheels(session: Session) -> Iterator[Garbage]:
    """Yield the files of wheels that no lock names any more."""
    locked = {
        wheel.sha256.hex
        for lock in locks_here(session)
        for cell in lock.cells.values()
        for wheel in cell.wheels
    }
    for path in _children(session.workspace.state / "wheels"):
        if path.name not in locked:
            yield Garbage("wheel", f"sha256:{path.name}", _size(path), path)


def _blobs(session: Session, keep: set[Digest]) -> Iterator[Garbage]:
    layout = Layout(session.workspace.layout)
    used: set[str] = set()
    for digest in keep:
        try:
            manifest = layout.manifest(digest)
        except RocmTorchError:
            continue
        used |= {digest.hex, manifest.digest.hex}
        used |= {blob.digest.hex for blob in manifest.blobs}
    for entry in layout.entries():
        if entry.digest.hex not in used:
            yield Garbage("layout entry", entry.digest, 0)
    folder = session.workspace.layout / "blobs" / "sha256"
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name not in used:
            yield Garbage("blob", f"sha256:{path.name}", path.stat().st_size, path)


def _evidence(session: Session, keep: set[Digest]) -> Iterator[Garbage]:
    names = {digest.hex for digest in keep}
    for path in _children(session.workspace.state / "evidence"):
        if path.name not in names:
            yield Garbage("evidence", f"sha256:{path.name}", _size(path), path)


def _folders(session: Session) -> Iterator[Garbage]:
    """Yield records and logs of cells that the matrix does not have any more."""
    cells = {cell.id for cell in session.matrix.cells} | {"registry"}
    kinds: tuple[Kind, ...] = ("records", "logs")
    for kind in kinds:
        for path in _children(session.workspace.state / kind):
            if path.name not in cells:
                yield Garbage(kind, path.name, _size(path), path)


def _leftovers(session: Session) -> Iterator[Garbage]:
    """Yield staged folders, which are made again when needed, and what killed runs left behind."""
    state = session.workspace.state
    for path in _children(state / "stage"):
        yield Garbage("stage", path.name, _size(path), path)
    patterns = ("exports/*", "sbom-*", "base-*", "reproduce-*", "layout/ingest/*")
    for pattern in (*patterns, "layout/.partial/*"):
        for path in sorted(state.glob(pattern)):
            yield Garbage("leftover", str(path.relative_to(state)), _size(path), path)


def _images(session: Session, keep: set[Digest]) -> Iterator[Garbage]:
    """Yield tags in the engine of images that this working copy made and does not name any more.

    Another working copy may use the same engine: what it made is not ours to judge.
    """
    made = {f"sha256:{path.name}" for path in _children(session.workspace.state / "evidence")}
    for name, digest in sorted(DockerEngine().tags(session.matrix.image).items()):
        if digest in made and digest not in keep:
            yield Garbage("image", name, 0)


def _children(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
