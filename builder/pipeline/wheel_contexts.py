"""What a build that installs wheels is lent: the locked files with their hashes, and uv."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from builder.engines.fetching import Fetcher, netrc_login
from builder.engines.uv import program, uv_version
from builder.engines.wheel_index import Pages
from builder.engines.wheel_store import WheelStore, link_or_copy
from builder.errors import CouldNotError, Problem, RefusedError
from builder.oci import Digest
from builder.pipeline.archives import lock_command
from builder.report.progress import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from builder.matrix.cells import Cell, Wheels
    from builder.matrix.lock import LockedWheel
    from builder.pipeline.once import Once
    from builder.pipeline.session import Job, Session

REQUIREMENTS = "requirements.txt"


def wheel_contexts(session: Session, job: Job) -> tuple[tuple[str, Path], ...]:
    """Return the named contexts ``wheels`` and ``tools``, after bringing here what is missing.

    Raises:
        RefusedError: ``WHEELS_NOT_LOCKED``.
        CouldNotError: a wheel is gone, damaged, or could not be fetched.
    """
    if job.cell.wheels is None:
        return ()
    if not job.locked.wheels:
        raise RefusedError(
            Problem(
                code="WHEELS_NOT_LOCKED",
                what="the lock has no wheels for it, and its image is made of wheels",
                where=job.cell.id,
                fix=f"run `{lock_command(session)} --update {job.cell.id}`",
            )
        )
    bringer = _Bringer(session, job.cell.id, job.cell.wheels)
    files = [(wheel, bringer.bring(wheel)) for wheel in job.locked.wheels]
    return ("wheels", _staged_wheels(session, files)), ("tools", _staged_tools(session))


def absent(session: Session, wheels: Iterable[LockedWheel]) -> list[LockedWheel]:
    """Return those of ``wheels`` that a build would have to fetch."""
    store, house = WheelStore(session.workspace.state / "wheels"), session.wheelhouse
    return [
        wheel
        for wheel in wheels
        if not store.path(wheel.sha256, wheel.file).is_file()
        and not (house is not None and (house / wheel.file).is_file())
    ]


def gone(
    session: Session, cell: Cell, wheels: Iterable[LockedWheel], offered: Once[bool]
) -> list[Problem]:
    """Return a problem for each of ``wheels`` that is offered nowhere any more.

    Args:
        session: the run.
        cell: what they are for.
        wheels: as they are locked.
        offered: remembers which are there, by hash: cells share most of theirs.

    Raises:
        CouldNotError: an index could not be asked.
    """
    if cell.wheels is None:
        return []
    bringer = _Bringer(session, cell.id, cell.wheels)
    found = (
        (wheel, offered.get(wheel.sha256, partial(bringer.is_offered, wheel))) for wheel in wheels
    )
    return [bringer.gone(wheel, []) for wheel, there in found if not there]


def requirements(wheels: Iterable[LockedWheel]) -> str:
    """Return the list that uv installs from: nothing is left to choose, and each file is hashed."""
    return "".join(f"{wheel.name}=={wheel.version} --hash={wheel.sha256}\n" for wheel in wheels)


class _Bringer:
    """Gets locked wheels: from the store, a wheelhouse, a mirror, or where they were published."""

    def __init__(self, session: Session, cell: str, wheels: Wheels) -> None:
        self._session = session
        self._cell = cell
        self._wheels = wheels
        self._store = WheelStore(session.workspace.state / "wheels")
        self._fetcher = Fetcher(go_on=session.tools.go_on, login=netrc_login(os.environ))

    def bring(self, wheel: LockedWheel) -> Path:
        """Return where ``wheel`` lies on this machine."""
        path = self._store.path(wheel.sha256, wheel.file)
        with _turn(path.parent):
            if path.is_file() or self._from_house(wheel):
                return path
            asked: list[str] = []
            for url in self._addresses(wheel):
                asked.append(url)
                if self._fetched(wheel, url):
                    return path
        raise CouldNotError(self.gone(wheel, asked))

    def is_offered(self, wheel: LockedWheel) -> bool:
        """Tell whether ``wheel`` could be brought; nothing of it is read."""
        house = self._session.wheelhouse
        if house is not None and (house / wheel.file).is_file():
            return True
        for url in self._addresses(wheel):
            with self._fetcher.open(url) as answer:
                if answer.is_success:
                    return True
        return False

    def _from_house(self, wheel: LockedWheel) -> bool:
        house = self._session.wheelhouse
        source = house / wheel.file if house is not None else None
        return source is not None and source.is_file() and self._store.take(source, wheel.sha256)

    def _addresses(self, wheel: LockedWheel) -> Iterator[str]:
        """Yield where the file may be; once a site has a mirror, nothing beside it is asked."""
        site = self._session.site
        if wheel.url is not None and (served := site.index_url(wheel.url)) != wheel.url:
            yield served
            return
        indexes = [url for url in (self._wheels.index, self._wheels.others) if url is not None]
        mirrored = any(site.index_url(url) != url for url in indexes)
        if wheel.url is not None and not mirrored:
            yield wheel.url
            return
        pages = Pages(self._fetcher)
        for url in dict.fromkeys(site.index_url(url) for url in indexes):
            flat = self._wheels.style == "flat" and url == site.index_url(self._wheels.index)
            page = pages.page(f"{url}/") if flat else pages.project(url, wheel.name)
            yield from (link.url for link in page or () if link.file == wheel.file)

    def _fetched(self, wheel: LockedWheel, url: str) -> bool:
        progress = self._session.tools.progress

        def told(current: int, total: int | None) -> None:
            doing = f"fetching {wheel.file}"
            progress.tell(Event(self._cell, "build", "doing", doing, current, total))

        return self._store.fetch(self._fetcher, url, wheel.file, wheel.sha256, told)

    def gone(self, wheel: LockedWheel, asked: list[str]) -> Problem:
        """Say that ``wheel`` is at none of the addresses that were asked."""
        indexes = " and ".join(filter(None, (self._wheels.index, self._wheels.others)))
        return Problem(
            code="WHEEL_GONE",
            what=f"{wheel.file} is locked and no longer there; its indexes are {indexes}",
            where=", ".join(asked) or self._cell,
            why="a file can be taken away after it was locked; some indexes keep the newest only",
            fix="name a folder that has it with --wheelhouse, or lock what is there today: "
            f"`{lock_command(self._session)} --update {self._cell}`",
        )


def _staged_wheels(session: Session, files: list[tuple[LockedWheel, Path]]) -> Path:
    text = requirements(wheel for wheel, _ in files)
    folder = session.workspace.state / "stage" / f"wheels-{Digest.of(text.encode()).hex[:16]}"
    if folder.is_dir():
        return folder
    with _appearing(folder) as building:
        for wheel, path in files:
            link_or_copy(path, building / wheel.file)
        (building / REQUIREMENTS).write_text(text, "ascii")
    return folder


def _staged_tools(session: Session) -> Path:
    folder = session.workspace.state / "stage" / f"tools-uv-{uv_version()}"
    if folder.is_dir():
        return folder
    with _appearing(folder) as building:
        target = building / "uv"
        link_or_copy(program(), target)
        target.chmod(0o755)
    return folder


@contextmanager
def _appearing(folder: Path) -> Iterator[Path]:
    """Give a folder to fill that gets its name in one step, unless another run was faster."""
    building = folder.with_name(f"{folder.name}.{os.getpid()}.{threading.get_ident()}")
    building.mkdir(parents=True, exist_ok=True)
    try:
        yield building
        building.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Let one build at a time bring a file; the others find it there."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
