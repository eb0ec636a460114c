"""What package archives say at this site, and whether they are where the lock left them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from builder.engines.archives import archive_state, fetch
from builder.errors import CouldNotError, Problem, RefusedError
from builder.matrix.site import setting
from builder.pipeline.once import Once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from builder.facts import Distribution
    from builder.matrix.cells import Cell
    from builder.matrix.lock import ArchiveState
    from builder.matrix.site import Site
    from builder.pipeline.session import Job, Session


class Archives:
    """Asks the archives of distributions, through a site's mirrors, each suite once a run.

    Args:
        site: what serves them here.
        ask: returns the body at a URL.
    """

    def __init__(self, site: Site, ask: Callable[[str], bytes] = fetch) -> None:
        self._site = site
        self._ask = ask
        self._found: Once[tuple[ArchiveState, ...]] = Once()

    def states(self, distribution: Distribution) -> tuple[ArchiveState, ...]:
        """Return the state of each suite, by the archive's canonical address; none for dnf.

        Raises:
            CouldNotError: an archive did not answer; an archive that did not is not asked again.
        """
        return self._found.get(distribution.name, lambda: self._states(distribution))

    def now(
        self, cell: Cell, distribution: Distribution, known: Sequence[ArchiveState] = ()
    ) -> tuple[ArchiveState, ...]:
        """Return the states that an image of ``cell`` depends on, or that its lock names.

        A build that installs no packages on an image of another publisher reads no archive.
        Errors as for :meth:`states`.
        """
        plain = cell.base.ref == distribution.base_ref
        reads = plain or cell.packages or cell.repositories or known
        return self.states(distribution) if reads else ()

    def _states(self, distribution: Distribution) -> tuple[ArchiveState, ...]:
        return tuple(
            self._state(archive.uri, suite)
            for archive in distribution.archives
            for suite in archive.suites
        )

    def _state(self, uri: str, suite: str) -> ArchiveState:
        served = self._site.package_url(uri)
        try:
            return archive_state(self._ask, uri, suite, served=served)
        except CouldNotError as error:
            fix = (
                setting("packages", uri)
                if served == uri
                else f'check `packages: {{"{uri}": "{served}"}}` in the settings of the site'
            )
            raise CouldNotError(
                replace(problem, fix=f"{problem.fix}; {fix}" if problem.fix else fix)
                for problem in error.problems
            ) from error


def moves(then: Sequence[ArchiveState], now: Sequence[ArchiveState]) -> tuple[str, ...]:
    """Return what moved: ``archive moved: trixie-security 2026-11-29 -> 2026-12-01``."""
    before = {(state.uri, state.suite): state for state in then}
    told = []
    for state in now:
        known = before.pop((state.uri, state.suite), None)
        if known is None:
            told.append(f"archive added: {state.suite} of {state.uri}")
        elif known.sha256 != state.sha256:
            first, second = _days(known.date, state.date)
            told.append(f"archive moved: {state.suite} {first} -> {second}")
    told += [f"archive no longer used: {suite} of {uri}" for uri, suite in before]
    return tuple(told)


def require_unmoved(session: Session, jobs: Sequence[Job], archives: Archives) -> None:
    """Raise where a build of ``jobs`` would not read the packages that its lock entry names.

    A build takes what the archive has today. Under a lock that describes another day the image
    would not be what its inputs digest says.

    Raises:
        CouldNotError: ``ARCHIVE_UNREACHABLE``.
        RefusedError: ``ARCHIVE_MOVED``, for all cells at once.
    """
    problems: list[Problem] = []
    unreachable: list[Problem] = []
    for job in jobs:
        try:
            distribution = session.facts.distributions[job.cell.distro]
            now = archives.now(job.cell, distribution, job.locked.archives)
        except CouldNotError as error:
            unreachable += error.problems
            continue
        problems += (
            Problem(
                code="ARCHIVE_MOVED",
                what=f"{told}: a build would take packages that the lock does not describe",
                where=job.cell.id,
                fix=f"run `{lock_command(session)} --update {job.cell.id}`",
            )
            for told in moves(job.locked.archives, now)
        )
    if unreachable:
        raise CouldNotError(dict.fromkeys(unreachable))
    if problems:
        raise RefusedError(problems)


def lock_command(session: Session) -> str:
    """Return the call that writes the lock of this run."""
    usual = session.workspace.root / "matrix.lock"
    option = "" if session.lock_file == usual else f"--lock {session.lock_file} "
    return f"rocm-torch {option}lock"


def _days(then: datetime, now: datetime) -> tuple[str, str]:
    """Return two times as days, or to the minute where the day is one and the same."""
    form = "%Y-%m-%d" if then.date() != now.date() else "%Y-%m-%dT%H:%M"
    return then.strftime(form), now.strftime(form)
