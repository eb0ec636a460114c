"""What a cell resolves to today: its base, the state of its archives, its wheels, its epoch."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from builder.engines.bootstrap import bootstrap_base, debian
from builder.engines.layout import Layout
from builder.errors import CouldNotError, Problem, RocmTorchError
from builder.matrix.lock import LockedCell
from builder.oci import Reference
from builder.pipeline.archives import Archives
from builder.pipeline.once import Once
from builder.pipeline.registries import Bases
from builder.pipeline.wheels import WheelResolver
from builder.report.progress import timed

if TYPE_CHECKING:
    from datetime import datetime

    from builder.facts import Distribution, Facts
    from builder.matrix.cells import Cell
    from builder.matrix.lock import ArchiveState, BaseOrigin
    from builder.oci import Digest
    from builder.pipeline.session import Session

# Without these a registry cannot be asked properly, and something else in its place would be a
# silent change of the base.
_NO_WAY_AROUND = ("CREDENTIAL", "DOCKER_CONFIG")
# What a registry answers to one question and would to the next: it is not asked for each base.
_FOR_ALL = frozenset(
    {"REGISTRY_UNKNOWN_HOST", "REGISTRY_REFUSED_CONNECTION", "REGISTRY_TLS", "RATE_LIMIT"}
)
_AMD_PYTORCH = "docker.io/rocm/pytorch"


class Resolver:
    """Asks the world, each question once a run, from any thread; remembers failures as well."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._layout = Layout(session.workspace.layout)
        self._bases = Bases(
            session.site, session.tools.runner, os.environ, _known_tags(session.facts)
        )
        self._heads: Once[Digest] = Once()
        self._shut: dict[str, CouldNotError] = {}
        self._created: Once[datetime | None] = Once()
        self._made: Once[Digest] = Once()
        self._wheels = WheelResolver(session)
        self.archives = Archives(session.site)

    def resolve(self, cell: Cell, known: LockedCell | None = None) -> LockedCell:
        """Return what ``cell`` resolves to now.

        A base that was bootstrapped from the same archives is not made again where it lies here.

        Raises:
            CouldNotError: what could not be reached, archives and registry in one.
            RefusedError: ``BASE_TAG_NOT_FOUND``.
        """
        self._session.tools.go_on()
        distribution = self._session.facts.distributions[cell.distro]
        try:
            archives = self.archives.now(cell, distribution)
        except CouldNotError as error:
            raise self._with_registry(cell, error) from error
        released = max((archive.date for archive in archives), default=None)
        base, origin = self._base(cell, distribution, released, self._same(known, archives))
        found = self._wheels.resolve(cell)
        epoch = released or self._newest(cell, base, found.uploaded)
        self._say(cell, f"{origin} {base[:19]}, epoch {epoch:%Y-%m-%d %H:%M} UTC")
        return LockedCell(
            base=base,
            origin=origin,
            archives=archives,
            epoch=int(epoch.timestamp()),
            wheels=found.wheels,
            requirements=cell.wheels.requirements if cell.wheels else (),
            ref=cell.base.ref,
        )

    def refreshed(self, cell: Cell, known: LockedCell) -> LockedCell:
        """Return ``known``, made usable here: a bootstrapped base has to lie in the layout."""
        whole = (cell.wheels is None) == (not known.wheels)
        if whole and (known.origin == "registry" or self.has(known.base)):
            self._say(cell, "kept")
            return known
        again = self.resolve(cell, known)
        if again.base != known.base:
            self._say(cell, f"base moved: {known.base[:19]} cannot be made any more")
        return again

    def head(self, cell: Cell) -> Digest:
        """Return the digest that the base's tag has in its registry, through the site's mirror.

        Raises:
            RefusedError: ``BASE_TAG_NOT_FOUND``.
            CouldNotError: the registry could not be reached or asked.
        """
        ref = cell.base.ref
        return self._heads.get(ref, lambda: self._asked(ref))

    def _asked(self, ref: str) -> Digest:
        """Ask for a base, unless its registry has said something that holds for every base."""
        host = self._session.site.base(ref).registry
        known = self._shut.get(host)
        if known is not None:
            raise known
        try:
            return self._bases.digest(ref)
        except CouldNotError as error:
            if error.problems[0].code in _FOR_ALL:
                self._shut[host] = error
            raise

    def _newest(self, cell: Cell, base: Digest, uploaded: datetime | None) -> datetime:
        """Return the epoch where no archive has a date: what the image is made of is as old.

        Raises:
            CouldNotError: ``EPOCH_UNKNOWN``.
        """
        ref = cell.base.ref
        created = self._created.get(ref, lambda: self._bases.created(ref, base))
        times = [time for time in (created, uploaded) if time is not None]
        if times:
            return max(times)
        raise CouldNotError(
            Problem(
                code="EPOCH_UNKNOWN",
                what=f"neither {ref} nor its wheels say when they were made, so there is no day "
                "that the image could carry",
                where=cell.id,
                fix="take a base that says when it was made: `docker inspect` shows it as Created",
            )
        )

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
        except RocmTorchError as other:
            return CouldNotError((*error.problems, *other.problems))
        return error

    def _say(self, cell: Cell, message: str) -> None:
        self._session.tools.progress.say(cell.id, "lock", message)

    def _base(
        self, cell: Cell, distribution: Distribution, epoch: datetime | None, same: Digest | None
    ) -> tuple[Digest, BaseOrigin]:
        try:
            return self.head(cell), "registry"
        except RocmTorchError as error:
            code = error.problems[0].code
            plain = distribution.os_id == "debian" and cell.base.ref == distribution.base_ref
            if not plain or epoch is None or code.startswith(_NO_WAY_AROUND):
                raise
            self._say(cell, f"no registry has {cell.base.ref}: {error.problems[0].what}")
        if same is not None:
            return same, "bootstrap"
        made = self._made.get(cell.base.ref, lambda: self._bootstrap(cell, distribution, epoch))
        return made, "bootstrap"

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


def _known_tags(facts: Facts) -> dict[str, tuple[str, ...]]:
    """Return the tags that were seen of AMD's images, by repository."""
    known = {_AMD_PYTORCH: tuple(facts.upstream_tags)}
    for image in facts.dev_images.values():
        name = Reference.parse(image.repository).name
        known[name] = (*known.get(name, ()), image.tag)
    return known
