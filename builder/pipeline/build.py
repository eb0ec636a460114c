"""Step build: a locked cell to an image in the shared OCI layout, with its digest known."""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from builder.engines.buildx import Buildx
from builder.engines.layout import Layout
from builder.errors import CouldNotError, RocmTorchError
from builder.matrix.site import setting
from builder.oci import Digest, Reference
from builder.pipeline.assets import stage
from builder.pipeline.causes import explained
from builder.pipeline.lent import lent
from builder.pipeline.wheel_contexts import wheel_contexts
from builder.plan.bake import Places, bake_file, target, target_name
from builder.plan.inputs import AssetFile, Inputs
from builder.plan.staleness import Built, build_reasons
from builder.report.progress import Event, timed
from builder.report.records import BuildRecord, atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from builder.pipeline.session import Job, Session
    from builder.pipeline.workspace import Workspace


# BuildKit's words when the registry of a base gave no manifest.
_BASE_NOT_FETCHED = "failed to resolve source metadata"


def stale_reasons(session: Session, job: Job) -> tuple[str, ...]:
    """Return why the image of ``job`` has to be built; empty when it is current."""
    record = session.built(job.cell)
    built = None
    if record is not None:
        inputs = Inputs(tuple(sorted(record.inputs.items())))
        built = Built(inputs, record.sources, present=_present(session, record))
    return build_reasons(job.inputs, built, sources=session.sources(job.cell))


def build(
    session: Session, job: Job, *, force: bool = False, builder: str | None = None
) -> BuildRecord:
    """Build ``job`` unless its image is current, and return the record of its build.

    Args:
        session: the run.
        job: what to build.
        force: build without any cache, even when nothing changed.
        builder: name of a buildx builder.

    Raises:
        CouldNotError: ``BUILD_FAILED`` with the end of the log, after the causes that the log
            shows; or a tool is missing.
    """
    cell, tools, workspace = job.cell, session.tools, session.workspace
    record = session.built(cell)
    reasons = ("asked for",) if force else stale_reasons(session, job)
    if record is not None and not reasons:
        tools.progress.tell(Event(cell.id, "build", "done", "current"))
        return record
    why = f"building: {', '.join(reasons)}"
    with (
        timed(tools.progress, cell.id, "build", tools.clock, why) as seconds,
        _export(workspace, cell.id) as export,
    ):
        bake = bake_document(session, (job,), export)
        path = workspace.state / "bake" / f"{cell.id}.json"
        atomic_write(path, json.dumps(bake, indent=1, sort_keys=True).encode())
        log = workspace.log(cell.id, "build")
        try:
            digest = Buildx(tools.runner, builder).bake(
                path,
                target_name(cell),
                log=log,
                no_cache=force,
                on_doing=lambda doing: tools.progress.tell(
                    Event(cell.id, "build", "doing", doing.name, doing.current, doing.total)
                ),
            )
        except CouldNotError as error:
            failure = explained(_with_setting(session, job, error), log)
            raise failure from error
        reference = f"{session.matrix.image}:{cell.id}"
        Layout(workspace.layout).adopt(Layout(export), digest, reference=reference)
        record = BuildRecord(
            cell=cell.id,
            step="build",
            finished=tools.now(),
            seconds=seconds(),
            digest=digest,
            inputs=dict(job.inputs.parts),
            sources=session.sources(cell),
            size=Layout(workspace.layout).size(digest),
        )
        workspace.records.write(record)
    return record


def _with_setting(session: Session, job: Job, error: CouldNotError) -> CouldNotError:
    """Name the setting that would help where the builder could not fetch the base."""
    problem, canonical = error.problems[0], Reference.parse(job.cell.base.ref)
    if job.locked.origin != "registry" or _BASE_NOT_FETCHED not in problem.what:
        return error
    served = session.site.base(job.cell.base.ref)
    fix = (
        setting("mirrors", canonical.registry)
        if served == canonical
        else f"check that the builder reaches {served.registry} (`mirrors:` in the site's settings)"
    )
    return CouldNotError(replace(problem, fix=f"{fix}; {problem.fix}"))


def bake_document(session: Session, jobs: Iterable[Job], export: Path) -> dict[str, Any]:
    """Return the bake file for ``jobs``, after staging what it names; images go to ``export``."""
    return bake_file(
        (
            target_name(job.cell),
            target(
                job.cell,
                job.locked,
                job.inputs.digest,
                _places(session, job, export),
                image=session.matrix.image,
            ),
        )
        for job in jobs
    )


def _places(session: Session, job: Job, export: Path) -> Places:
    workspace = session.workspace
    return Places(
        context=stage(workspace, "context", _plain(job.context)),
        assets=(
            *((name, stage(workspace, name, files)) for name, files in session.assets.items()),
            *wheel_contexts(session, job),
        ),
        bases=workspace.layout,
        export=export,
        base_ref=session.site.base(job.cell.base.ref),
        secrets=lent(session, job.cell),
    )


@contextmanager
def _export(workspace: Workspace, cell: str) -> Iterator[Path]:
    """Give a build a layout of its own to export to, gone when its image was taken over.

    Two exports into one layout write the same blob at once and fail; one that a killed run left
    behind may still be written. The new one starts with links to the blobs that are there, so a
    base is neither written nor stored again.
    """
    workspace.exports.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{cell}-", dir=workspace.exports) as name:
        folder = Path(name)
        Layout(folder).link_blobs(Layout(workspace.layout))
        yield folder


def _plain(context: Mapping[str, bytes]) -> dict[str, AssetFile]:
    return {name: AssetFile(content, executable=False) for name, content in context.items()}


def _present(session: Session, record: BuildRecord) -> bool:
    layout = Layout(session.workspace.layout)
    try:
        manifest = layout.manifest(Digest(record.digest))
        return all(layout.has(blob) for blob in manifest.blobs)
    except RocmTorchError:
        return False
