"""What the wheels of a cell resolve to: from its indexes as served here, or from a wheelhouse."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import httpx
from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from builder.engines.fetching import Fetcher, netrc_login, plain
from builder.engines.uv import Sources, UnresolvableError, Uv
from builder.engines.wheel_index import Pages, flat_wheels
from builder.errors import CouldNotError, Problem
from builder.matrix.lock import LockedWheel
from builder.matrix.site import setting
from builder.matrix.wheel_versions import wheel_version_key
from builder.pipeline.once import Once

if TYPE_CHECKING:
    from datetime import datetime

    from builder.engines.uv import ResolvedWheel
    from builder.engines.wheel_index import Link
    from builder.matrix.cells import Cell, Wheels
    from builder.matrix.site import Site
    from builder.pipeline.session import Session

# Users of an image expect it to be there.
ALWAYS = ("pip",)
# What belongs to one build of torch has to come from the index of that build: elsewhere the same
# names are builds for CUDA.
_OF_TORCH = ("torch", "torchvision", "torchaudio")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Resolution:
    """The wheels of a cell, and when the newest of them was uploaded, where that is known."""

    wheels: tuple[LockedWheel, ...] = ()
    uploaded: datetime | None = None


class WheelResolver:
    """Resolves each set of requirements once a run; safe to be asked from several threads."""

    def __init__(self, session: Session, fetcher: Fetcher | None = None) -> None:
        self._session = session
        self._pages = Pages(
            fetcher or Fetcher(go_on=session.tools.go_on, login=netrc_login(os.environ))
        )
        self._uv = Uv(session.tools.runner, session.workspace.state / "uv", os.environ)
        self._resolved: Once[Resolution] = Once()
        self._listed: Once[tuple[Link, ...] | None] = Once()

    def resolve(self, cell: Cell) -> Resolution:
        """Return the wheels of ``cell``; none for families that install none.

        Raises:
            CouldNotError: what is not there, or could not be asked.
        """
        wheels = cell.wheels
        if wheels is None:
            return Resolution()
        return self._resolved.get(
            (wheels, cell.python), lambda: self._resolve(wheels, cell.python, cell.id)
        )

    def _resolve(self, wheels: Wheels, python: str, cell: str) -> Resolution:
        _require_plain_python(python, cell)
        requirements = (*wheels.requirements, *ALWAYS)
        folder = self._session.wheelhouse
        if folder is not None:
            found = self._asked(requirements, python, Sources(folder=folder), wheels)
        else:
            files = self._files_of_torch(wheels)
            site = self._session.site
            sources = Sources(
                index=site.index_url(wheels.index),
                flat=wheels.style == "flat",
                others=site.index_url(wheels.others) if wheels.others else None,
            )
            found = self._asked(requirements, python, sources, wheels)
            _require_from_index(found, files, wheels)
            if others := _of_another_rocm(found):
                pins = _with_local_of_torch(requirements, others, found)
                found = self._asked(pins, python, sources, wheels)
        times = [one.uploaded for one in found if one.uploaded is not None]
        locked = tuple(_locked(one, wheels, self._session.site) for one in found)
        return Resolution(locked, max(times, default=None))

    def _asked(
        self, requirements: tuple[str, ...], python: str, sources: Sources, wheels: Wheels
    ) -> tuple[ResolvedWheel, ...]:
        try:
            return self._uv.resolve(requirements, python, sources)
        except UnresolvableError as error:
            (problem,) = error.problems
            if sources.folder is not None:
                fix = "put what is missing into the folder, what torch needs and pip included"
            else:
                fix = self._there_is(wheels)
            raise CouldNotError(replace(problem, fix=fix)) from error

    def _there_is(self, wheels: Wheels) -> str:
        """Say which builds of torch the index has, the newest first."""
        versions: set[str] = set()
        for link in self._torch_links(wheels, "torch") or ():
            try:
                name, version, _, _ = parse_wheel_filename(link.file)
            except InvalidWheelFilename:
                continue
            if name == "torch":
                versions.add(str(version))
        shown = sorted(versions, key=wheel_version_key, reverse=True)[:_SHOWN]
        return f"it has torch {', '.join(shown)}" if shown else "check the address of the index"

    def _torch_links(self, wheels: Wheels, name: str) -> tuple[Link, ...] | None:
        served = self._session.site.index_url(wheels.index)
        if wheels.style == "flat":
            return self._listed.get(served, lambda: self._pages.page(_folder(served)))
        return self._listed.get((served, name), lambda: self._pages.project(served, name))

    def _files_of_torch(self, wheels: Wheels) -> frozenset[str]:
        """Return the files that the index has of torch and its companions.

        Raises:
            CouldNotError: ``INDEX_STYLE_MISMATCH``, ``PROJECT_NOT_ON_INDEX``, or the index did not
                answer.
        """
        files: set[str] = set()
        for requirement in wheels.requirements:
            name = canonicalize_name(Requirement(requirement).name)
            if name not in _OF_TORCH:
                continue
            try:
                links = self._torch_links(wheels, name)
                if links is None or (wheels.style == "flat" and not flat_wheels(links)):
                    raise CouldNotError(self._missing(wheels, name))
            except CouldNotError as error:
                raise _with_setting(error, wheels.index, self._session.site) from error
            files.update(link.file for link in links)
        return frozenset(files)

    def _missing(self, wheels: Wheels, name: str) -> Problem:
        served = self._session.site.index_url(wheels.index)
        root = self._listed.get(served, lambda: self._pages.page(_folder(served)))
        if wheels.style == "simple" and flat_wheels(root):
            return Problem(
                code="INDEX_STYLE_MISMATCH",
                what="the matrix says that this is a simple index, and it is one page of links to "
                f'wheels: it has no page for "{name}", so a resolver finds no version at all',
                where=served,
                why="such a page is for --find-links; --index-url finds nothing there",
                fix="write `style: flat` for this index in builder/facts/data/wheel_indexes.yaml",
            )
        if wheels.style == "flat" and root is not None:
            return Problem(
                code="INDEX_STYLE_MISMATCH",
                what="the matrix says that this is a flat page for --find-links, and no link on it "
                "leads to a wheel",
                where=served,
                why="a simple index has a page for each project",
                fix="write `style: simple` for this index in builder/facts/data/wheel_indexes.yaml",
            )
        return Problem(
            code="PROJECT_NOT_ON_INDEX",
            what=f"the index has no {name}" if wheels.style == "simple" else "there is no page",
            where=served,
            fix="check the address; what a publisher took away needs a --wheelhouse",
        )


def _require_plain_python(python: str, cell: str) -> None:
    if python.endswith("t"):
        raise CouldNotError(
            Problem(
                code="FREE_THREADED_NOT_RESOLVED",
                what=f"wheels for Python {python} cannot be resolved: uv is told a version, and "
                "that has no word for a build without the global lock",
                where=cell,
                fix="take the ordinary Python; a cell like this stays unlocked",
            )
        )


def _of_another_rocm(found: tuple[ResolvedWheel, ...]) -> frozenset[str]:
    """Return what is of another ROCm than the torch beside it.

    An index with several ROCm has several builds of one torchvision; a pin without a local version
    leaves the choice to uv, for which ``+rocm7.15`` is newer than ``+rocm10.1``.
    """
    rocm = {one.name: wheel_version_key(one.version)[1] for one in found if one.name in _OF_TORCH}
    return frozenset(name for name, number in rocm.items() if number != rocm.get("torch", number))


def _with_local_of_torch(
    requirements: tuple[str, ...], names: frozenset[str], found: tuple[ResolvedWheel, ...]
) -> tuple[str, ...]:
    """Return the requirements with exact pins of ``names`` to the builds beside this torch."""
    chosen = {one.name: Version(one.version) for one in found}
    kept = (text for text in requirements if canonicalize_name(Requirement(text).name) not in names)
    local = chosen["torch"].local
    return (*kept, *(f"{name}=={chosen[name].public}+{local}" for name in sorted(names)))


def _require_from_index(
    found: tuple[ResolvedWheel, ...], files: frozenset[str], wheels: Wheels
) -> None:
    for one in found:
        if one.name in _OF_TORCH and one.file not in files:
            raise CouldNotError(
                Problem(
                    code="WHEEL_OF_ANOTHER_INDEX",
                    what=f"{one.file} was chosen, and it is not on the index of this torch",
                    where=wheels.index,
                    why="elsewhere these names are builds for another backend",
                    fix="pin it with its local version, such as `torchvision==0.22.1+rocm6.2.4`",
                )
            )


def _locked(wheel: ResolvedWheel, wheels: Wheels, site: Site) -> LockedWheel:
    return LockedWheel(
        wheel.name, wheel.version, wheel.file, wheel.sha256, _canonical(wheel.url, wheels, site)
    )


def _canonical(url: str, wheels: Wheels, site: Site) -> str | None:
    """Return the address that the lock keeps: none of this site's own, and none with a login."""
    if not url.startswith(("http://", "https://")):
        return None
    canonical = site.canonical_index_url(plain(url))
    if canonical is not None:
        return canonical
    mirrors = {
        httpx.URL(served).netloc
        for index in (wheels.index, wheels.others)
        if index is not None and (served := site.index_url(index)) != index
    }
    return None if httpx.URL(plain(url)).netloc in mirrors else plain(url)


def _with_setting(error: CouldNotError, index: str, site: Site) -> CouldNotError:
    """Name the setting of a site that would help where an index did not answer."""
    served = site.index_url(index)
    fix = (
        setting("indexes", index)
        if served == index
        else f"check `indexes:` in the settings of the site: {index} is {served}"
    )
    return CouldNotError(
        replace(problem, fix=f"{problem.fix}; {fix}")
        if problem.code == "INDEX_UNREACHABLE"
        else problem
        for problem in error.problems
    )


def _folder(url: str) -> str:
    """Return the address with the slash that links on a page are relative to."""
    return url if url.endswith(("/", ".html")) else f"{url}/"
