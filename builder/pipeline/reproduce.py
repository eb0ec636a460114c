"""Builds a cell twice, without any cache and in two places, and compares what came out."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from builder.engines.layout import Layout
from builder.engines.wheel_store import link_or_copy
from builder.pipeline.build import build
from builder.pipeline.sbom import sbom
from builder.pipeline.wheel_contexts import wheel_contexts
from builder.pipeline.workspace import Workspace

if TYPE_CHECKING:
    from builder.matrix.cells import Cell
    from builder.pipeline.session import Session

# What a working copy needs for a build; the state of earlier runs stays behind.
_PARTS = ("templates", "images")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two builds of one cell gave: image digests, and digests of the SBOMs by media type."""

    cell: str
    digests: tuple[str, str]
    documents: tuple[dict[str, str], dict[str, str]]

    @property
    def equal(self) -> bool:
        """Tell whether everything is the same, byte for byte."""
        return len(set(self.digests)) == 1 and self.documents[0] == self.documents[1]


def reproduce(session: Session, cell: Cell) -> Comparison:
    """Build ``cell`` in two new folders of different depth and name, and compare.

    Raises:
        RefusedError: the cell is not locked.
        CouldNotError: a build or scan failed.
    """
    state = session.workspace.state
    state.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="reproduce-", dir=state) as name:
        folder = Path(name)
        first = _once(session, cell, folder / "one")
        second = _once(session, cell, folder / "elsewhere" / "two")
    return Comparison(cell.id, (first[0], second[0]), (first[1], second[1]))


def _once(session: Session, cell: Cell, root: Path) -> tuple[str, dict[str, str]]:
    for part in _PARTS:
        shutil.copytree(session.workspace.root / part, root / part)
    there = replace(session, workspace=Workspace(root))
    job = there.job(cell)
    if job.locked.origin == "bootstrap":
        Layout(there.workspace.layout).adopt(Layout(session.workspace.layout), job.locked.base)
    if job.locked.wheels:  # they are fetched once
        wheel_contexts(session, session.job(cell))
        wheels = session.workspace.state / "wheels"
        shutil.copytree(wheels, there.workspace.state / "wheels", copy_function=link_or_copy)
    built = build(there, job, force=True)
    return built.digest, sbom(there, job, built).documents
