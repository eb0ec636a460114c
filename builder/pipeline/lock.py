"""Step lock: writes what each cell resolves to, and tells what has moved since."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from builder.errors import CouldNotError, Problem, RefusedError, RocmTorchError
from builder.matrix.lock import LockedCell
from builder.pipeline.archives import lock_command, moves
from builder.pipeline.once import Once
from builder.pipeline.resolve import Resolver
from builder.pipeline.wheel_contexts import absent, gone
from builder.report.progress import Event
from builder.report.records import atomic_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.matrix.cells import Cell
    from builder.matrix.lock import Lock, LockedWheel
    from builder.pipeline.session import Session

# Cells that are resolved at a time: most of it is waiting for answers.
_ASKING = 8
_NAMED = 3


def lock_cells(session: Session, cells: Sequence[Cell], *, update: bool = False) -> Lock:
    """Resolve ``cells``, write the lock file and return the lock.

    Entries that are there are kept unless ``update``; a base that was bootstrapped and is no
    longer in the local layout is made again.

    Raises:
        CouldNotError: something could not be reached or asked; with the reasons of all cells that
            are not resolved. Those that are stand in the file all the same.
        RefusedError: everything answered, and there is no such base.
    """
    resolver, progress = Resolver(session), session.tools.progress

    def one(cell: Cell) -> LockedCell | RocmTorchError:
        known = session.lock.cells.get(cell.id)
        progress.tell(Event(cell.id, "lock", "started", "asking"))
        try:
            valid = None if update else session.locked(cell)
            if valid is None:
                found = resolver.resolve(cell, known)
            else:
                found = resolver.refreshed(cell, valid)
        except RocmTorchError as error:
            kept = "as it was" if known is not None else "unlocked"
            progress.tell(Event(cell.id, "lock", "failed", f"{kept}: {error.problems[0].what}"))
            return error
        progress.tell(Event(cell.id, "lock", "done", "locked"))
        return found

    with ThreadPoolExecutor(max_workers=_ASKING) as pool:
        try:
            answers = dict(zip((cell.id for cell in cells), pool.map(one, cells), strict=True))
        except BaseException:  # stopped: uv and mmdebstrap have process groups of their own
            session.tools.stopping.set()
            session.tools.runner.end_all()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    found = {name: one for name, one in answers.items() if isinstance(one, LockedCell)}
    lock = session.lock.with_cells(found)
    atomic_write(session.lock_file, lock.to_text().encode())
    progress.say("", "lock", f"{len(found)} of {len(cells)} cells are locked")
    _raise([one for one in answers.values() if isinstance(one, RocmTorchError)])
    return lock


def _raise(errors: Sequence[RocmTorchError]) -> None:
    """Raise the problems of all cells, each once: several cells share a base or an index."""
    if not errors:
        return
    problems = dict.fromkeys(problem for error in errors for problem in error.problems)
    could_not = any(isinstance(error, CouldNotError) for error in errors)
    raise (CouldNotError if could_not else RefusedError)(problems)


def check_lock(session: Session, cells: Sequence[Cell]) -> Lock:
    """Ask the world whether the entries of ``cells`` still hold; change nothing.

    Raises:
        RefusedError: what moved, or is not locked at all: ``ARCHIVE_MOVED``, ``BASE_MOVED``,
            ``WHEEL_GONE``, ``UNLOCKED``.
            Or ``BASE_TAG_NOT_FOUND``, where a base is gone.
        CouldNotError: an archive or registry could not be asked.
    """
    resolver = Resolver(session)
    offered: Once[bool] = Once()
    moved: list[Problem] = []
    unknown: list[Problem] = []
    for cell in cells:
        known = session.locked(cell)
        if known is None:
            moved.append(_unlocked(session, cell))
            continue
        try:
            moved += _moved(session, resolver, cell, known)
            moved += gone(session, cell, known.wheels, offered)
        except CouldNotError as error:
            unknown += error.problems
        except RefusedError as error:
            moved += error.problems
    if unknown:
        raise CouldNotError(dict.fromkeys((*unknown, *moved)))
    if moved:
        raise RefusedError(moved)
    return session.lock


def offline_lock(session: Session, cells: Sequence[Cell]) -> Lock:
    """Return the lock where all of ``cells`` can be built from what is here, asking nobody.

    Raises:
        RefusedError: ``UNLOCKED``, ``BASE_NOT_HERE`` for a bootstrapped base that is gone, or
            ``WHEELS_NOT_HERE``.
    """
    resolver = Resolver(session)
    problems: list[Problem] = []
    for cell in cells:
        known = session.locked(cell)
        if known is None:
            problems.append(_unlocked(session, cell))
        elif known.origin == "bootstrap" and not resolver.has(known.base):
            problems.append(
                Problem(
                    code="BASE_NOT_HERE",
                    what=f"its base {known.base[:19]} was bootstrapped and is not in the local"
                    " layout, and making it needs the package archive",
                    where=cell.id,
                    fix=f"run `{lock_command(session)} {cell.id}` where the archive is reached",
                )
            )
        if known is not None and (missing := absent(session, known.wheels)):
            problems.append(_wheels_not_here(cell, missing))
    if problems:
        raise RefusedError(problems)
    return session.lock


def _wheels_not_here(cell: Cell, missing: Sequence[LockedWheel]) -> Problem:
    named = ", ".join(wheel.file for wheel in missing[:_NAMED])
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    return Problem(
        code="WHEELS_NOT_HERE",
        what=f"{len(missing)} of its wheels are not on this disk: {named}{more}",
        where=cell.id,
        fix=f"name a folder that has them with --wheelhouse, or run `rocm-torch build {cell.id}`"
        " once where the indexes are reached",
    )


def _moved(session: Session, resolver: Resolver, cell: Cell, known: LockedCell) -> list[Problem]:
    fix = f"run `{lock_command(session)} --update {cell.id}`"
    distribution = session.facts.distributions[cell.distro]
    now = resolver.archives.now(cell, distribution, known.archives)
    problems = [
        Problem(code="ARCHIVE_MOVED", what=told, where=cell.id, fix=fix)
        for told in moves(known.archives, now)
    ]
    if known.origin == "registry" and (head := resolver.head(cell)) != known.base:
        what = f"base moved: {cell.base.ref} {known.base[:19]} -> {head[:19]}"
        problems.append(Problem(code="BASE_MOVED", what=what, where=cell.id, fix=fix))
    return problems


def _unlocked(session: Session, cell: Cell) -> Problem:
    return Problem(
        code="UNLOCKED",
        what="it is not locked, so what it would be built from is not known",
        where=cell.id,
        fix=f"run `{lock_command(session)} {cell.id}` where archive and registry are reached",
    )
