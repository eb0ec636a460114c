"""What a cell resolves to today: the digest of its base, the state of its archives, its epoch."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from builder.engines.bootstrap import bootstrap_base, debian
from builder.engines.layout import Layout
from builder.errors import CouldNotError, RocmTorchError
from builder.matrix.lock import LockedCell
from builder.pipeline.archives import Archives
from builder.pipeline.registries import base_digest
from builder.report.progress import timed

if TYPE_CHECKING:
    from datetime import datetime

    from builder.facts import Distribution
    from builder.matrix.cells import Cell
    from builder.matrix.lock import ArchiveState, BaseOrigin
    from builder.oci import Digest
    from builder.pipeline.session import Session

# Without these a registry cannot be asked properly, and something else in its place would be a
# silent change of the base.
_NO_WAY_AROUND = ("CREDENTIAL", "DOCKER_CONFIG")


class Resolver:
    """Asks the world, each question once a run, and remembers failures as well."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._layout = Layout(session.workspace.layout)
        self._heads: dict[str, Digest | CouldNotError] = {}
        self._made: dict[str, Digest] = {}
        self.archives = Archives(session.site)

    def resolve(self, cell: Cell, known: LockedCell | None = None) -> LockedCell:
        """Return what ``cell`` resolves to now.

        A base that was bootstrapped from the same archives is not made again where it lies here.

        Raises:
            CouldNotError: what could not be reached, archives and registry in one.
        """
        distribution = self._session.facts.distributions[cell.distro]
        try:
            archives = self.archives.states(distribution)
        except CouldNotError as error:
            raise self._with_registry(cell, error) from error
        epoch = max(archive.date for archive in archives)
        base, origin = self._base(cell, distribution, epoch, self._same(known, archives))
        self._say(cell, f"{origin} {base[:19]}, archives of {epoch:%Y-%m-%d %H:%M} UTC")
        return LockedCell(base, origin, archives, int(epoch.timestamp()))

    def refreshed(self, cell: Cell, known: LockedCell) -> LockedCell:
        """Return ``known``, made usable here: a bootstrapped base has to lie in the layout."""
        if known.origin == "registry" or self.has(known.base):
            self._say(cell, "kept")
            return known
        again = self.resolve(cell)
        if again.base != known.base:
            self._say(cell, f"base moved: {known.base[:19]} cannot be made any more")
        return again

    def head(self, cell: Cell) -> Digest:
        """Return the digest that the base's tag has in its registry, through the site's mirror.

        Raises:
            CouldNotError: no registry has it, or none could be reached or asked.
        """
        ref = cell.base.ref
        if ref not in self._heads:
            try:
                self._heads[ref] = base_digest(
                    ref, self._session.site, runner=self._session.tools.runner, environ=os.environ
                )
            except CouldNotError as error:
                self._heads[ref] = error
        found = self._heads[ref]
        if isinstance(found, CouldNotError):
            raise found
        return found

    def has(self, digest: Digest) -> bool:
        """Tell whether the whole image lies in the local layout."""
        try:
            return all(self._layout.has(blob) for blob in self._layout.manifest(digest).blobs)
        except RocmTorchError:
            return False

    def _same(self, known: LockedCell | None, archives: tuple[ArchiveState, ...]) -> Digest | None:
        same = known is not None and known.origin == "bootstrap" and known.archives == archives
        return known.base if known is not None and same and self.has(known.base) else None

    def _with_registry(self, cell: Cell, error: CouldNotError) -> CouldNotError:
        """Add what is wrong with the registry: who cannot reach one often cannot reach both."""
        try:
            self.head(cell)
        except CouldNotError as other:
            return CouldNotError((*error.problems, *other.problems))
        return error

    def _say(self, cell: Cell, message: str) -> None:
        self._session.tools.progress.say(cell.id, "lock", message)

    def _base(
        self, cell: Cell, distribution: Distribution, epoch: datetime, same: Digest | None
    ) -> tuple[Digest, BaseOrigin]:
        try:
            return self.head(cell), "registry"
        except CouldNotError as error:
            code = error.problems[0].code
            if distribution.os_id != "debian" or code.startswith(_NO_WAY_AROUND):
                raise
            self._say(cell, f"no registry has {cell.base.ref}: {error.problems[0].what}")
        if same is not None:
            return same, "bootstrap"
        if cell.base.ref not in self._made:
            self._made[cell.base.ref] = self._bootstrap(cell, distribution, epoch)
        return self._made[cell.base.ref], "bootstrap"

    def _bootstrap(self, cell: Cell, distribution: Distribution, epoch: datetime) -> Digest:
        tools, state, site = self._session.tools, self._session.workspace.state, self._session.site
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
                    archive=site.package_url(main.uri),
                    security=site.package_url(others[0].uri) if others else None,
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
