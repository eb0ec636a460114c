"""What a site lends to a build: files that one RUN sees, and neither image nor cache key knows of.

The templates name each by its id; where the site has no such setting nothing is lent, and the
image's own lists and the canonical addresses are used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from builder.errors import CouldNotError, Problem
from builder.report.records import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.matrix.cells import Cell, Repository
    from builder.pipeline.session import Session


def lent(session: Session, cell: Cell) -> tuple[tuple[str, Path], ...]:
    """Return the files that a build of ``cell`` is lent here, by the ids of the templates.

    Raises:
        CouldNotError: ``KEY_NOT_THERE``, a key's file that the site's settings name is missing.
    """
    site = session.site
    found = list(_sources(session, cell))
    for repository in cell.repositories:
        text = site.repository_file(repository, cell.package_manager)
        if text is not None:
            name = f"repository-{repository.name}"
            found.append((name, _written(session, f"{cell.distro}-{name}", text)))
        found += _key(session, repository)
    if site.python is not None and cell.interpreter.provider == "uv":
        found.append(("python-mirror", _written(session, "python-mirror", site.python)))
    return tuple(found)


def apt_sources(session: Session, cell: Cell) -> tuple[tuple[str, Path], ...]:
    """Return the sources list alone: for builds from the distribution's packages and no others."""
    return tuple(_sources(session, cell))


def _sources(session: Session, cell: Cell) -> Iterator[tuple[str, Path]]:
    text = session.site.apt_sources(session.facts.distributions[cell.distro])
    if text is not None:
        yield "apt-sources", _written(session, f"{cell.distro}.sources", text)


def _key(session: Session, repository: Repository) -> Iterator[tuple[str, Path]]:
    """Lend the key itself, or a line with the address of the site's copy."""
    served = session.site.keys.get(repository.key_url)
    if served is None:
        return
    name = f"key-{repository.name}"
    if not served.startswith("/"):
        yield name, _written(session, name, served)
        return
    if not Path(served).is_file():
        raise CouldNotError(
            Problem(
                code="KEY_NOT_THERE",
                what=f"there is no file {served}, which the site's settings name as the key that "
                f"{repository.key_url} is elsewhere",
                where=f"keys: {repository.key_url}",
                fix="put the key there, or correct `keys:` in the site's settings",
            )
        )
    yield name, Path(served)


def _written(session: Session, name: str, text: str) -> Path:
    path = session.workspace.state / "site" / name
    atomic_write(path, text.encode())
    return path
