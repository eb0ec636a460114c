"""Step lock: what each cell resolves to today: its base, the state of its archives, its epoch."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from builder.engines.archives import archive_state
from builder.engines.bootstrap import bootstrap_base, debian
from builder.engines.layout import Layout
from builder.errors import CouldNotError, Problem, RocmTorchError
from builder.matrix.lock import Lock, LockedCell
from builder.oci import Digest, Reference
from builder.pipeline.registries import open_registry
from builder.report.progress import timed
from builder.report.records import atomic_write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from builder.engines.process import Runner
    from builder.facts import Distribution
    from builder.matrix.cells import Cell
    from builder.matrix.lock import ArchiveState, BaseOrigin
    from builder.pipeline.session import Session

_FETCH_SECONDS = 30.0


def lock_cells(session: Session, cells: Sequence[Cell], *, update: bool = False) -> Lock:
    """Resolve ``cells``, write the lock file and return the lock.

    Entries that are there are kept unless ``update``; a base that was bootstrapped and is no
    longer in the local layout is made again.

    Raises:
        CouldNotError: cells that could not be resolved, each with its reason; those that could
            are in the file all the same.
    """
    resolver = _Resolver(session)
    found: dict[str, LockedCell] = {}
    problems: list[Problem] = []
    for cell in cells:
        known = session.lock.cells.get(cell.id)
        try:
            if known is None or update:
                found[cell.id] = resolver.resolve(cell)
            else:
                found[cell.id] = resolver.refreshed(cell, known)
        except CouldNotError as error:
            problems += error.problems
    lock = session.lock.with_cells(found)
    atomic_write(session.lock_file, lock.to_text().encode())
    if problems:
        raise CouldNotError(problems)
    return lock


class _Resolver:
    """Asks the world, each question once a run."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._layout = Layout(session.workspace.layout)
        self._states: dict[str, tuple[ArchiveState, ...]] = {}
        self._bases: dict[str, tuple[Digest, BaseOrigin]] = {}

    def resolve(self, cell: Cell) -> LockedCell:
        distribution = self._session.facts.distributions[cell.distro]
        archives = self._archives(distribution)
        epoch = max(archive.date for archive in archives)
        base, origin = self._base(cell, distribution, epoch)
        self._say(cell, f"{origin} {base[:19]}, archives of {epoch:%Y-%m-%d %H:%M} UTC")
        return LockedCell(base, origin, archives, int(epoch.timestamp()))

    def refreshed(self, cell: Cell, known: LockedCell) -> LockedCell:
        """Return ``known``, made usable here: a bootstrapped base has to lie in the layout."""
        if known.origin == "registry" or self._has(known.base):
            self._say(cell, "kept")
            return known
        again = self.resolve(cell)
        if again.base != known.base:
            self._say(cell, f"base moved: {known.base[:19]} cannot be made any more")
        return again

    def _say(self, cell: Cell, message: str) -> None:
        self._session.tools.progress.say(cell.id, "lock", message)

    def _has(self, digest: Digest) -> bool:
        try:
            return all(self._layout.has(blob) for blob in self._layout.manifest(digest).blobs)
        except RocmTorchError:
            return False

    def _archives(self, distribution: Distribution) -> tuple[ArchiveState, ...]:
        if distribution.name not in self._states:
            self._states[distribution.name] = tuple(
                archive_state(_fetch, archive.uri, suite)
                for archive in distribution.archives
                for suite in archive.suites
            )
        return self._states[distribution.name]

    def _base(
        self, cell: Cell, distribution: Distribution, epoch: datetime
    ) -> tuple[Digest, BaseOrigin]:
        ref, runner = cell.base.ref, self._session.tools.runner
        if ref not in self._bases:
            try:
                self._bases[ref] = (_registry_digest(Reference.parse(ref), runner), "registry")
            except CouldNotError as error:
                self._say(cell, f"no registry has {ref}: {error.problems[0].what}")
                if distribution.os_id != "debian":
                    raise
                self._bases[ref] = (self._bootstrap(cell, distribution, epoch), "bootstrap")
        return self._bases[ref]

    def _bootstrap(self, cell: Cell, distribution: Distribution, epoch: datetime) -> Digest:
        tools, state = self._session.tools, self._session.workspace.state
        state.mkdir(parents=True, exist_ok=True)
        main, *others = distribution.archives
        doing = f"bootstrapping {distribution.title} from its archive"
        with (
            timed(tools.progress, cell.id, "lock", tools.clock, doing),
            tempfile.TemporaryDirectory(prefix="base-", dir=state) as name,
        ):
            root = bootstrap_base(
                tools.runner,
                debian(
                    distribution.codename or main.suites[0],
                    archive=main.uri,
                    security=others[0].uri if others else None,
                    keyring=Path(main.keyring),
                ),
                epoch=epoch,
                target=Path(name) / "root.tar",
                is_root=os.geteuid() == 0,
                environ=os.environ,
            )
            return self._layout.write_base_image(
                root.tar, created=epoch, reference=cell.base.ref
            ).digest


def _registry_digest(reference: Reference, runner: Runner) -> Digest:
    registry = open_registry(reference.registry, runner=runner, environ=os.environ)
    found = registry.head(reference.repository, reference.tag or "latest")
    if found is None:
        raise CouldNotError(
            Problem(
                code="BASE_NOT_PUBLISHED",
                what=f"{reference.registry} has no {reference.repository}:{reference.tag}",
                where=str(reference),
            )
        )
    return found.digest


def _fetch(url: str) -> bytes:
    try:
        answer = httpx.get(url, timeout=_FETCH_SECONDS, follow_redirects=True)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise CouldNotError(
            Problem(
                code="ARCHIVE_UNREACHABLE",
                what=f"the package archive did not answer: {str(error) or type(error).__name__}",
                where=url,
                fix="check the network and its proxy settings",
            )
        ) from error
    return answer.content
