"""Step plan: for each cell what has to be done and why; changes nothing."""

from __future__ import annotations

import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from builder.engines.process import Command
from builder.errors import BadCallError, Problem, RefusedError
from builder.matrix.tags import orphans
from builder.oci import SIGSTORE_BUNDLE, TEST_REPORT, Digest
from builder.pipeline.build import stale_reasons
from builder.pipeline.sbom import FILES
from builder.pipeline.signing import signed_with
from builder.pipeline.tagging import release_tags
from builder.pipeline.workspace import Workspace
from builder.plan.staleness import Built, Evidence, build_reasons, evidence_reasons
from builder.report.records import PublishRecord, SbomRecord, TestRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from builder.engines.registry import Registry
    from builder.matrix.cells import Cell
    from builder.pipeline.session import Job, Session
    from builder.report.records import BuildRecord

# What decides an image, and so has to be looked at in an earlier revision.
_DECIDING = ("matrix.yaml", "matrix.lock", "templates", "images", "builder/facts/data")
_ASKING = 8
_UNLOCKED = "rendered, not built: it is not locked"


@dataclass(frozen=True, slots=True)
class _There:
    """What a registry has: where release tags point, and what is attached to built images."""

    heads: Mapping[str, Digest | None]
    attached: Mapping[Digest, Counter[str]]


@dataclass(frozen=True, slots=True)
class Entry:
    """What the plan says of one cell: ``current`` where there is no reason to do anything."""

    cell: str
    state: str
    reasons: tuple[str, ...]


def plan(session: Session, cells: Sequence[Cell], registry: Registry | None) -> tuple[Entry, ...]:
    """Return the plan for ``cells``.

    Args:
        session: the run.
        cells: the cells to plan for.
        registry: asked where each release tag points, and what is attached to the images that
            have one; without a registry only the records are looked at.
    """
    there = None if registry is None else _there(session, cells, registry)
    return tuple(_entry(session, cell, there) for cell in cells)


def orphan_tags(session: Session, registry: Registry) -> tuple[str, ...]:
    """Return the tags of the registry that no cell moves any more, and that stay as they are."""
    return orphans(registry.list_tags(session.matrix.image), session.matrix.tags)


def plan_since(session: Session, cells: Sequence[Cell], revision: str) -> tuple[Entry, ...]:
    """Return which cells a build would make differently than at a revision of git, and why.

    Both sides are taken with the same lock where the revision has none for a cell.

    Raises:
        BadCallError: ``UNKNOWN_REVISION``.
    """
    with _checkout(session, revision) as earlier:
        before = {cell.id: cell for cell in earlier.matrix.cells}
        sides = (earlier, replace(earlier, lock_file=session.lock_file))
        return tuple(_changed(session, sides, cell, before.get(cell.id)) for cell in cells)


def _entry(session: Session, cell: Cell, there: _There | None) -> Entry:
    if session.locked(cell) is None:
        return Entry(cell.id, "unlocked", (_UNLOCKED,))
    job = session.job(cell)
    reasons = stale_reasons(session, job)
    built = session.built(cell)
    if reasons or built is None:
        return Entry(cell.id, "stale", reasons)
    found = evidence_reasons(_evidence(session, job, built, there))
    return Entry(cell.id, "unfinished" if found else "current", found)


def _evidence(session: Session, job: Job, built: BuildRecord, there: _There | None) -> Evidence:
    records, cell = session.workspace.records, job.cell
    tests = {
        level: records.read(TestRecord, cell.id, f"test-{level}") for level in cell.policy.levels
    }
    sbom = records.read(SbomRecord, cell.id, "sbom")
    published = records.read(PublishRecord, cell.id, "publish")
    digest = Digest(built.digest)
    tags = release_tags(session, job, digest) if there else ()
    attached = there.attached.get(digest) if there else None
    # A tag that was left to a newer image when this one was published is where it should be.
    held = published.held if published and published.digest == built.digest else {}
    return Evidence(
        digest=built.digest,
        tests={level: test.digest if test else None for level, test in tests.items()},
        verdicts={level: test.verdict for level, test in tests.items() if test},
        sbom=sbom.digest if sbom else None,
        published=published.digest if published else None,
        referrers_missing=() if attached is None else _missing(cell, attached),
        unsigned=cell.policy.signed
        and (
            (published is not None and published.signed_with != signed_with(session, cell))
            or (attached is not None and not attached[SIGSTORE_BUNDLE])
        ),
        tags_wrong=tuple(
            tag
            for tag in tags
            if tag not in held and (there is None or there.heads.get(tag) != digest)
        ),
    )


def _missing(cell: Cell, attached: Counter[str]) -> tuple[str, ...]:
    """Return the titles of the documents that should be attached to an image and are not."""
    titles = [title for kind, title in FILES.items() if not attached[kind]]
    waiver = cell.policy.waiver
    waived = waiver.levels if waiver else ()
    levels = [level for level in cell.policy.levels if level not in waived]
    if attached[TEST_REPORT] < len(levels):
        titles += [f"test-{level}.json" for level in levels]
    return tuple(titles)


def _there(session: Session, cells: Sequence[Cell], registry: Registry) -> _There:
    """Ask the registry once which tags it has, then of those that count what they name."""
    wanted: set[str] = set()
    images: set[Digest] = set()
    for cell in cells:
        built = session.built(cell)
        if built is not None and session.locked(cell) is not None:
            images.add(Digest(built.digest))
            wanted |= set(release_tags(session, session.job(cell), Digest(built.digest)))
    repository = session.matrix.image
    there = sorted(wanted & set(registry.list_tags(repository)))

    def head(tag: str) -> Digest | None:
        found = registry.head(repository, tag)
        return found.digest if found else None

    def kinds(digest: Digest) -> Counter[str]:
        listed = registry.referrers(repository, digest)
        return Counter(referrer.artifact_type or "" for referrer in listed)

    with ThreadPoolExecutor(max_workers=_ASKING) as pool:
        heads = dict(zip(there, pool.map(head, there), strict=True))
        released = sorted({digest for digest in heads.values() if digest in images})
        attached = dict(zip(released, pool.map(kinds, released), strict=True))
    return _There({tag: heads.get(tag) for tag in wanted}, attached)


def _changed(
    session: Session, earlier: tuple[Session, Session], cell: Cell, before: Cell | None
) -> Entry:
    """Compare a cell with what it was, by the lock of then, else by that of now."""
    locked = session.locked(cell)
    if locked is None:
        return Entry(cell.id, "unlocked", (_UNLOCKED,))
    if before is None:
        return Entry(cell.id, "stale", ("new in the matrix",))
    then = next((one for one in earlier if one.locked(before) is not None), None)
    if then is None:  # it was to be made of something that neither lock has
        moved = before.base.ref != cell.base.ref
        reason = "base moved" if moved else "other wheels are asked for"
        return Entry(cell.id, "stale", (reason,))
    built = Built(then.job(before).inputs, then.sources(before), present=True)
    job = session.job(cell)
    reasons = build_reasons(job.inputs, built, sources=session.sources(cell))
    return Entry(cell.id, "stale" if reasons else "current", reasons)


@contextmanager
def _checkout(session: Session, revision: str) -> Iterator[Session]:
    """Give a session on the deciding files as they were at ``revision``."""
    root = session.workspace.root
    git = ("git", "-C", str(root))
    ask = (*git, "ls-tree", "--name-only", "--full-tree", revision, "--", *_DECIDING)
    listed = session.tools.runner.run(Command(ask, timeout=60))
    if listed.returncode:
        raise BadCallError(
            Problem(
                code="UNKNOWN_REVISION",
                what=f"git knows no revision {revision!r}",
                why=listed.tail(1),
                fix="name a commit, tag or branch: `git log --oneline`",
            )
        )
    names = listed.stdout.split("\n")
    with tempfile.TemporaryDirectory(prefix="since-", dir=session.workspace.state) as name:
        folder = Path(name)
        archive = folder / "tree.tar"
        paths = [path for path in names if path]
        pack = (*git, "archive", f"--output={archive}", revision, "--", *paths)
        session.tools.runner.run(Command(pack, timeout=60))
        tree = folder / "tree"
        tree.mkdir()
        unpack = ("tar", "-xf", str(archive), "-C", str(tree))
        session.tools.runner.run(Command(unpack, timeout=60))
        if not (tree / "matrix.yaml").is_file():
            raise RefusedError(
                Problem("NO_MATRIX", "there was no matrix.yaml yet", where=f"git {revision}")
            )
        facts = tree / "builder/facts/data"
        yield replace(
            session,
            workspace=Workspace(tree),
            matrix_file=tree / "matrix.yaml",
            lock_file=tree / "matrix.lock",
            facts_folder=facts if facts.is_dir() else session.facts_folder,
        )
