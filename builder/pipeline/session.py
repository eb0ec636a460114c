"""One run's view of a working copy: the matrix expanded, the lock read, each cell rendered once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from builder.engines.uv import uv_version
from builder.errors import Problem, RefusedError
from builder.facts import load_facts
from builder.matrix.load import read_matrix
from builder.matrix.lock import Lock
from builder.matrix.site import Site, read_site
from builder.pipeline.assets import read_assets
from builder.plan.inputs import Inputs, assets_digest
from builder.render.context import Renderer
from builder.report.records import BuildRecord

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from builder.engines.cosign import SigningKey
    from builder.facts import Facts
    from builder.matrix.cells import Cell
    from builder.matrix.load import Matrix
    from builder.matrix.lock import LockedCell
    from builder.oci import Digest
    from builder.pipeline.assets import Assets
    from builder.pipeline.workspace import Tools, Workspace


@dataclass(frozen=True, slots=True)
class Job:
    """A cell with all that its build depends on."""

    cell: Cell
    locked: LockedCell
    context: Mapping[str, bytes]
    inputs: Inputs


@dataclass(frozen=True)
class Session:
    """What one call of the program works with.

    Attributes:
        workspace: the working copy.
        tools: the outside world.
        lock_file: the lock that counts in this run.
        matrix_file: the matrix; ``matrix.yaml`` of the working copy by default.
        facts_folder: other facts than the shipped ones.
        site_file: settings of the site; none where it is None.
        wheelhouse: folder of wheels for the families that install torch by wheel.
        signing_key: the private key that images are signed with, in lanes that ask for it.
    """

    workspace: Workspace
    tools: Tools
    lock_file: Path
    matrix_file: Path
    facts_folder: Path | None = None
    site_file: Path | None = None
    wheelhouse: Path | None = None
    signing_key: SigningKey | None = None

    @cached_property
    def facts(self) -> Facts:
        """The facts, loaded once."""
        return load_facts(self.facts_folder)

    @cached_property
    def matrix(self) -> Matrix:
        """The matrix, expanded; ``RefusedError`` where it is not valid."""
        return read_matrix(self.matrix_file, _shown(self.matrix_file), self.facts)

    @cached_property
    def site(self) -> Site:
        """What serves registries and archives here; ``RefusedError`` where it is not valid."""
        return (
            Site() if self.site_file is None else read_site(self.site_file, _shown(self.site_file))
        )

    @cached_property
    def lock(self) -> Lock:
        """The lock as it was when it was first asked for; empty where there is no file."""
        if not self.lock_file.exists():
            return Lock()
        return Lock.from_text(self.lock_file.read_bytes(), _shown(self.lock_file))

    @cached_property
    def assets(self) -> Assets:
        """The files that go into every image."""
        return read_assets(self.workspace)

    @cached_property
    def folders(self) -> Mapping[str, Digest]:
        """The digest of each folder of files that goes into every image."""
        return {name: assets_digest(files) for name, files in self.assets.items()}

    @cached_property
    def renderer(self) -> Renderer:
        """The templates of the working copy."""
        root = self.workspace.templates
        paths = _templates(root)
        return Renderer(
            {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in paths}
        )

    @cached_property
    def _contexts(self) -> dict[str, Mapping[str, bytes]]:
        return {}

    def context(self, cell: Cell) -> Mapping[str, bytes]:
        """Render ``cell``, once."""
        if cell.id not in self._contexts:
            rendered = self.renderer.render(cell, image=self.matrix.image)
            self._contexts[cell.id] = MappingProxyType(rendered)
        return self._contexts[cell.id]

    def sources(self, cell: Cell) -> dict[str, str]:
        """Return the digest of each template that renders ``cell``, by name."""
        return dict(self.renderer.sources(cell))

    def job(self, cell: Cell) -> Job:
        """Put together what the build of ``cell`` depends on.

        Raises:
            RefusedError: ``UNLOCKED``, when the lock has no entry for the cell.
        """
        locked = self.locked(cell)
        if locked is None:
            other = " for the wheels that it asks for now" if cell.id in self.lock.cells else ""
            raise RefusedError(
                Problem(
                    code="UNLOCKED",
                    what=f"{cell.id} is not locked{other}, so what it would be built from is not"
                    " known",
                    where=_shown(self.lock_file),
                    fix=f"run `rocm-torch lock {cell.id}`",
                )
            )
        context = self.context(cell)
        inputs = Inputs.of_folders(
            context=context,
            folders=self.folders,
            locked=locked,
            programs={"uv": uv_version()} if cell.wheels is not None else None,
        )
        return Job(cell, locked, context, inputs)

    def locked(self, cell: Cell) -> LockedCell | None:
        """Return the lock entry of ``cell``; ``None`` where there is none for what it is now."""
        entry = self.lock.cells.get(cell.id)
        return entry if entry is not None and entry.answers(cell.base.ref, cell.wheels) else None

    def cell(self, name: str) -> Cell:
        """Return the cell with an id; ``RefusedError`` (``NO_SUCH_CELL``) where there is none."""
        for cell in self.matrix.cells:
            if cell.id == name:
                return cell
        raise RefusedError(
            Problem(
                code="NO_SUCH_CELL",
                what=f"the matrix has no cell {name}",
                where=_shown(self.matrix_file),
                fix="`rocm-torch matrix` lists the cells",
            )
        )

    def built(self, cell: Cell) -> BuildRecord | None:
        """Return the record of the last finished build of ``cell``."""
        return self.workspace.records.read(BuildRecord, cell.id, "build")


def _templates(root: Path) -> list[Path]:
    found = sorted(root.rglob("*.j2"))
    if not found:
        raise RefusedError(
            Problem(
                code="TEMPLATES_MISSING",
                what="there are no templates",
                where=str(root),
                fix="run in a checkout of rocm-torch, or name it with --project",
            )
        )
    return found


def _shown(path: Path) -> str:
    """Return a path as people name it: the file name where it stands in its usual place."""
    return path.name if path.name in {"matrix.yaml", "matrix.lock", "site.yaml"} else str(path)
