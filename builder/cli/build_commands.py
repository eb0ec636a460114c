"""Commands that do the work: build, test, sbom, publish, release."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from builder.cli.common import (
    DEFAULT_JOBS,
    Builder,
    DeviceRoot,
    Json,
    Registry,
    Selectors,
    Workers,
    answer,
    hold,
    open_session,
    registry_for,
    selected,
)
from builder.errors import CouldNotError, IncompleteError, Problem, RefusedError, RocmTorchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from builder.pipeline.scheduler import Needs
    from builder.pipeline.session import Job, Session
    from builder.report.records import BuildRecord

Force = Annotated[bool, typer.Option("--force", help="Do it again, whatever the records say.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Repeat finished steps, build without cache.")]
Level = Annotated[str, typer.Option(help="Level of the self-test: smoke or gpu.")]
_LEVELS = ("smoke", "gpu")


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(epilog="Example: rocm-torch build cpu-py313")(build)
    app.command("test", epilog="Example: rocm-torch test --level smoke cpu-py313")(selftest)
    app.command(epilog="Example: rocm-torch sbom cpu-py313")(sbom)
    app.command(epilog="Example: rocm-torch publish --registry localhost:5000 cpu-py313")(publish)
    app.command(epilog="Example: rocm-torch release --registry localhost:5000")(release)
    app.command(epilog="Example: rocm-torch reproduce cpu-py313")(reproduce)


def build(
    context: typer.Context,
    selectors: Selectors = None,
    force: Force = False,
    jobs: Workers = DEFAULT_JOBS,
    builder: Builder = None,
    as_json: Json = False,
) -> None:
    """Build the images of the selected cells that are stale, into the shared OCI layout."""
    from builder.pipeline import build as step
    from builder.pipeline.preflight import preflight
    from builder.pipeline.scheduler import BUILD

    session = open_session(context)
    hold(context, session, "build")
    todo = _jobs(session, selectors)
    preflight(session, todo, force=force)

    def one(job: Job) -> dict[str, Any]:
        return step.build(session, job, force=force, builder=builder).model_dump(
            mode="json", by_alias=True
        )

    _each(session, "build", BUILD, todo, one, workers=jobs, as_json=as_json)


def selftest(
    context: typer.Context,
    selectors: Selectors = None,
    level: Level = "smoke",
    force: Force = False,
    device_root: DeviceRoot = Path("/"),
    as_json: Json = False,
) -> None:
    """Run the self-test in a container of each selected image, with the host's GPU passed in."""
    from builder.pipeline.release import test_needs
    from builder.pipeline.selftest import run_selftest

    if level not in _LEVELS:
        raise typer.BadParameter(f"{level!r} is not one of {', '.join(_LEVELS)}")
    session = open_session(context)
    hold(context, session, "test")

    def one(job: Job) -> dict[str, Any]:
        record = run_selftest(
            session, _built(session, job), level, force=force, device_root=device_root
        )
        return record.model_dump(mode="json", by_alias=True)

    todo, needs = _jobs(session, selectors), test_needs(device_root)
    found = _each(session, f"test-{level}", needs, todo, one, workers=1, as_json=as_json)
    _require(found, level)


def sbom(
    context: typer.Context, selectors: Selectors = None, force: Force = False, as_json: Json = False
) -> None:
    """List what is in each selected image, as SPDX and CycloneDX."""
    from builder.pipeline.sbom import sbom as step
    from builder.pipeline.scheduler import SBOM

    session = open_session(context)
    hold(context, session, "sbom")

    def one(job: Job) -> dict[str, Any]:
        return step(session, job, _built(session, job), force=force).model_dump(
            mode="json", by_alias=True
        )

    _each(session, "sbom", SBOM, _jobs(session, selectors), one, workers=1, as_json=as_json)


def publish(
    context: typer.Context,
    selectors: Selectors = None,
    registry: Registry = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Publish tested images: candidate, referrers, then tags; the gate decides."""
    from builder.pipeline.publish import publish as step
    from builder.pipeline.scheduler import PUBLISH

    session = open_session(context)
    hold(context, session, "publish")
    client = registry_for(session, registry)

    def one(job: Job) -> dict[str, Any]:
        record = step(session, job, _built(session, job), registry=client, force=force)
        return record.model_dump(mode="json", by_alias=True)

    _each(session, "publish", PUBLISH, _jobs(session, selectors), one, workers=1, as_json=as_json)


def release(
    context: typer.Context,
    selectors: Selectors = None,
    registry: Registry = None,
    fresh: Fresh = False,
    jobs: Workers = DEFAULT_JOBS,
    builder: Builder = None,
    device_root: DeviceRoot = Path("/"),
    as_json: Json = False,
) -> None:
    """Build, test, describe and publish the selected cells; finished steps are not repeated."""
    from builder.pipeline import release as steps
    from builder.pipeline.preflight import preflight
    from builder.pipeline.render import render
    from builder.report import table

    session = open_session(context)
    hold(context, session, "release")
    todo = _jobs(session, selectors)
    client = registry_for(session, registry)
    client.ping()
    preflight(session, todo, force=fresh)
    render(session, [job.cell for job in todo])
    options = steps.Options(client, jobs, fresh, device_root, builder)
    outcomes = steps.release(session, todo, options)
    rows = [table.row_of(outcome) for outcome in outcomes]
    run_line = table.run_line(session.matrix.image, rows, device_root)
    document = {
        "schema": "rocm-torch/release/v1",
        "cells": [row.to_json() for row in rows],
        "run": run_line,
    }
    errors = [outcome.error for outcome in outcomes if outcome.error]
    text = "\n".join(table.lines_of(rows, run_line))
    answer(document, as_json=as_json, text=lambda: typer.echo(text))
    _raise_worst(errors)


def reproduce(context: typer.Context, selectors: Selectors = None, as_json: Json = False) -> None:
    """Build each cell twice without cache, in two folders, and compare image and SBOMs."""
    from builder.pipeline.preflight import preflight
    from builder.pipeline.reproduce import reproduce as step

    session = open_session(context)
    hold(context, session, "reproduce")
    todo = _jobs(session, selectors)
    preflight(session, todo, force=True)
    found = [step(session, job.cell) for job in todo]
    document = {
        "schema": "rocm-torch/reproduce/v1",
        "cells": [
            {
                "cell": one.cell,
                "equal": one.equal,
                "digests": list(one.digests),
                "documents": list(one.documents),
            }
            for one in found
        ],
    }
    lines = [f"{one.cell}  {'same' if one.equal else 'DIFFERS'}  {one.digests[0]}" for one in found]
    different = [one for one in found if not one.equal]
    if not (as_json and different):
        answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(lines)))
    if different:
        raise RefusedError(
            Problem(
                code="NOT_REPRODUCIBLE",
                what=f"two builds gave {one.digests[0]} and {one.digests[1]}",
                where=one.cell,
                fix="compare the layers of both (`diffoci`, `diffoscope`)",
            )
            for one in different
        )


def _jobs(session: Session, selectors: Sequence[str] | None) -> tuple[Job, ...]:
    """Return the jobs of the selected cells; all that are not locked are told at once."""
    jobs: list[Job] = []
    problems: list[Problem] = []
    for cell in selected(session, selectors):
        try:
            jobs.append(session.job(cell))
        except RefusedError as error:
            problems += error.problems
    if problems:
        raise RefusedError(problems)
    return tuple(jobs)


def _built(session: Session, job: Job) -> BuildRecord:
    """Return the record of the current build of ``job``; a stale image is not worth a step."""
    from builder.pipeline.build import stale_reasons

    reasons = stale_reasons(session, job)
    record = session.built(job.cell)
    if record is None or reasons:
        raise RefusedError(
            Problem(
                code="NOT_BUILT",
                what=f"there is no current image: {', '.join(reasons)}",
                where=job.cell.id,
                fix=f"run `rocm-torch build {job.cell.id}`",
            )
        )
    return record


def _each(
    session: Session,
    step: str,
    needs: Needs,
    jobs: Sequence[Job],
    one: Callable[[Job], dict[str, Any]],
    *,
    workers: int,
    as_json: bool,
) -> list[dict[str, Any]]:
    """Run one step for each job, print its records, and raise what went wrong at the end."""
    from builder.pipeline.chains import Chain, Task
    from builder.pipeline.release import run, told_failure

    errors: list[RocmTorchError] = []
    done: dict[str, dict[str, Any]] = {}

    def act(job: Job) -> None:
        done[job.cell.id] = one(job)

    def failed(cell: str, step: str, error: RocmTorchError) -> None:
        errors.append(told_failure(session, cell, step, error))

    chains = [Chain(job.cell.id, (Task(step, needs, partial(act, job)),)) for job in jobs]
    run(session, chains, workers, failed)
    records = [done[job.cell.id] for job in jobs if job.cell.id in done]
    lines = [f"{record['cell']}  {record['digest']}" for record in records]
    document = {"schema": f"rocm-torch/{step.partition('-')[0]}/v1", "records": records}
    if not (as_json and errors):
        answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(lines)))
    _raise_worst(errors)
    return records


def _require(records: Sequence[dict[str, Any]], level: str) -> None:
    """Turn verdicts that are no pass into exit codes 2 and 3."""
    for verdict, kind in (("fail", RefusedError), ("incomplete", IncompleteError)):
        cells = [record["cell"] for record in records if record["verdict"] == verdict]
        if cells:
            raise kind(
                Problem(
                    code=f"TEST_{verdict.upper()}",
                    what=f"level {level} of the self-test is {verdict}",
                    where=", ".join(cells),
                    fix="the progress lines above name the checks",
                )
            )


def _raise_worst(errors: Sequence[RocmTorchError]) -> None:
    """Raise all problems as the kind that counts most: could not, then refused, then incomplete."""
    for kind in (CouldNotError, RefusedError, IncompleteError):
        if any(isinstance(error, kind) for error in errors):
            raise kind(problem for error in errors for problem in error.problems)
