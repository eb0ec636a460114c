"""Commands that do the work: build, test, sbom, publish, release."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from builder.cli.candidate_commands import publish_candidates, test_candidates
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
)
from builder.cli.sif_commands import SifOptions, test_sif
from builder.cli.slurm_commands import SlurmOptions, test_on_slurm
from builder.cli.steps import (
    built_of,
    each,
    locked_jobs,
    not_passed,
    tell_records,
    worst,
)
from builder.errors import Problem, RefusedError

if TYPE_CHECKING:
    from builder.pipeline.session import Job

Force = Annotated[bool, typer.Option("--force", help="Do it again, whatever the records say.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Repeat finished steps, build without cache.")]
Level = Annotated[str, typer.Option(help="Level of the self-test: smoke or gpu.")]
Executor = Annotated[
    Literal["local", "slurm"], typer.Option(help="Where tests run: here, or as jobs of Slurm.")
]
_LEVELS = ("smoke", "gpu", "bench")


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
    todo = locked_jobs(session, selectors)
    preflight(session, todo, force=force)

    def one(job: Job) -> dict[str, Any]:
        return step.build(session, job, force=force, builder=builder).model_dump(
            mode="json", by_alias=True
        )

    each(session, "build", BUILD, todo, one, workers=jobs, as_json=as_json)


def selftest(
    context: typer.Context,
    selectors: Selectors = None,
    level: Level = "smoke",
    force: Force = False,
    device_root: DeviceRoot = Path("/"),
    candidate: Annotated[
        Path | None,
        typer.Option(help="File of candidates of another machine: test these, by digest."),
    ] = None,
    registry: Registry = None,
    sif: Annotated[
        Path | None, typer.Option(help="Test this SIF under Apptainer, with and without --rocm.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="With --sif: what the host does; all by default. See docs/hpc.md."),
    ] = None,
    executor: Executor = "local",
    partition: Annotated[str | None, typer.Option(help="Slurm's partition.")] = None,
    account: Annotated[str | None, typer.Option(help="Slurm's account.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs of a job of Slurm.")] = None,
    time: Annotated[str | None, typer.Option(help="Time limit of a job, as Slurm has it.")] = None,
    gfx: Annotated[
        list[str] | None, typer.Option(help="A job on a node with this feature, such as gfx942.")
    ] = None,
    fabric: Annotated[
        str | None, typer.Option(help="The cluster's fabric, such as cxi: TCP there is a failure.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the self-test in a container of each selected image, with the host's GPU passed in.

    With --candidate the images come from a registry, and the reports are attached to them there.
    With --sif the self-test runs under Apptainer, as an ordinary user. With --executor slurm each
    image is converted, and a job a cell (and --gfx) tests it on a node of the cluster.
    """
    from builder.engines.slurm import Ask
    from builder.pipeline.release import test_needs
    from builder.pipeline.selftest import run_selftest

    if level not in _LEVELS:
        raise typer.BadParameter(f"{level!r} is not one of {', '.join(_LEVELS)}")
    if sif is not None:
        test_sif(context, sif, SifOptions(level, tuple(host or ()), device_root), as_json=as_json)
        return
    if executor == "slurm":
        ask = Ask(partition, gpus, time, account=account)
        options = SlurmOptions(level, ask, tuple(gfx or ()), fabric, force)
        test_on_slurm(context, selectors, options, as_json=as_json)
        return
    if candidate is not None:
        tested = test_candidates(context, candidate, level, registry, device_root)
        tell_records("test", tested, as_json=as_json, error=not_passed(level, tested))
        return
    session = open_session(context)
    hold(context, session, "test")

    def one(job: Job) -> dict[str, Any]:
        record = run_selftest(
            session, built_of(session, job), level, force=force, device_root=device_root
        )
        return record.model_dump(mode="json", by_alias=True)

    todo, needs = locked_jobs(session, selectors), test_needs(device_root)
    judge = partial(not_passed, level)
    each(session, f"test-{level}", needs, todo, one, workers=1, as_json=as_json, judge=judge)


def sbom(
    context: typer.Context, selectors: Selectors = None, force: Force = False, as_json: Json = False
) -> None:
    """List what is in each selected image, as SPDX and CycloneDX."""
    from builder.pipeline.sbom import sbom as step
    from builder.pipeline.scheduler import SBOM

    session = open_session(context)
    hold(context, session, "sbom")

    def one(job: Job) -> dict[str, Any]:
        return step(session, job, built_of(session, job), force=force).model_dump(
            mode="json", by_alias=True
        )

    each(session, "sbom", SBOM, locked_jobs(session, selectors), one, workers=1, as_json=as_json)


def publish(
    context: typer.Context,
    selectors: Selectors = None,
    registry: Registry = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Do it again, and let tags move to an older image, too."),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Let a dated tag move that names another image.")
    ] = False,
    sequence: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Number of this run, counted as runs start: no tag moves back to an older run's.",
            envvar="ROCM_TORCH_SEQUENCE",
        ),
    ] = None,
    candidates: Annotated[
        Path | None,
        typer.Option(help="File or folder of candidates that other machines built and tested."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Publish tested images: candidate, referrers, then tags; the gate decides."""
    from builder.pipeline.publish import publish as step
    from builder.pipeline.scheduler import PUBLISH
    from builder.pipeline.tagging import Terms

    session = open_session(context)
    hold(context, session, "publish")
    terms = Terms(sequence, overwrite=overwrite, backwards=force)
    if candidates is not None:
        done, errors = publish_candidates(session, candidates, registry, terms, force=force)
        tell_records("publish", done, as_json=as_json, error=worst(errors))
        return
    client = registry_for(session, registry)

    def one(job: Job) -> dict[str, Any]:
        built = built_of(session, job)
        record = step(session, job, built, registry=client, force=force, terms=terms)
        return record.model_dump(mode="json", by_alias=True)

    each(
        session,
        "publish",
        PUBLISH,
        locked_jobs(session, selectors),
        one,
        workers=1,
        as_json=as_json,
    )


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
    from builder.pipeline.signing import require_key
    from builder.report import table

    session = open_session(context)
    hold(context, session, "release")
    todo = locked_jobs(session, selectors)
    require_key(session, [job.cell for job in todo])
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
    answer(document, as_json=as_json, text=lambda: typer.echo(text), error=worst(errors))


def reproduce(context: typer.Context, selectors: Selectors = None, as_json: Json = False) -> None:
    """Build each cell twice without cache, in two folders, and compare image and SBOMs."""
    from builder.pipeline.preflight import preflight
    from builder.pipeline.reproduce import reproduce as step

    session = open_session(context)
    hold(context, session, "reproduce")
    todo = locked_jobs(session, selectors)
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
    error = None
    if different:
        error = RefusedError(
            Problem(
                code="NOT_REPRODUCIBLE",
                what=f"two builds gave {one.digests[0]} and {one.digests[1]}",
                where=one.cell,
                fix="compare the layers of both (`diffoci`, `diffoscope`)",
            )
            for one in different
        )
    answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(lines)), error=error)
