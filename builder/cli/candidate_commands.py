"""Commands about candidates and releases in a registry: candidate, rollback, yank."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path  # noqa: TC003 - typer reads annotations at run time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from builder.cli.common import (
    DEFAULT_JOBS,
    Builder,
    Json,
    Registry,
    Selectors,
    Workers,
    answer,
    hold,
    open_session,
    registry_for,
)
from builder.cli.steps import locked_jobs, worst
from builder.errors import CouldNotError, RocmTorchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.pipeline.session import Session
    from builder.pipeline.tagging import Terms
    from builder.pipeline.withdrawal import Change


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(epilog="Example: rocm-torch candidate --run 101-1 --file c.json cpu-py313")(
        candidate
    )
    app.command(
        epilog="Example: rocm-torch rollback cpu --to "
        "cpu-torch2.6.0-py313-debian13-20261129-67f8ee41"
    )(rollback)
    app.command(
        epilog="Example: rocm-torch yank cpu-torch2.6.0-py313-debian13-20261129-67f8ee41 "
        "--reason 'wrong numbers on gfx942'"
    )(yank)


def candidate(
    context: typer.Context,
    selectors: Selectors = None,
    registry: Registry = None,
    run: Annotated[str, typer.Option(help="Id of the run and its attempt.")] = "local",
    file: Annotated[
        Path | None, typer.Option(help="Write where the candidates lie, for the next machine.")
    ] = None,
    jobs: Workers = DEFAULT_JOBS,
    builder: Builder = None,
    as_json: Json = False,
) -> None:
    """Build, test without a GPU, describe, and push under a leased tag, for other machines."""
    from builder.pipeline.candidate import to_text
    from builder.pipeline.preflight import preflight
    from builder.pipeline.release import CandidateOptions, candidates
    from builder.report.records import atomic_write

    session = open_session(context)
    hold(context, session, "candidate")
    todo = locked_jobs(session, selectors)
    client = registry_for(session, registry)
    client.ping()
    preflight(session, todo, force=False)
    done, errors = candidates(session, todo, CandidateOptions(client, run, jobs, builder))
    if file is not None and done:
        atomic_write(file, to_text(done).encode())
    document = {
        "schema": "rocm-torch/candidates/v1",
        "candidates": [one.to_json() for one in done],
    }
    lines = [f"{one.cell}  {one.digest}  {one.tag}" for one in done]
    text = "\n".join(lines)
    answer(document, as_json=as_json, text=lambda: typer.echo(text), error=worst(errors))


def rollback(
    context: typer.Context,
    tags: Annotated[list[str], typer.Argument(metavar="TAG...", help="Moving tags.")],
    to: Annotated[str, typer.Option(help="Dated tag or digest of a released image.")],
    registry: Registry = None,
    as_json: Json = False,
) -> None:
    """Let moving tags name an earlier image that was released."""
    from builder.pipeline.withdrawal import rollback as step

    session = open_session(context)
    hold(context, session, "rollback")
    changes = step(session, registry_for(session, registry), tags, to)
    _tell_changes("rollback", changes, as_json=as_json)


def yank(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="Dated tag or digest of a released image.")],
    reason: Annotated[str, typer.Option(help="Why, for those who find the mark.")],
    to: Annotated[
        str | None, typer.Option(help="Released image that its moving tags name from now on.")
    ] = None,
    registry: Registry = None,
    as_json: Json = False,
) -> None:
    """Mark a released image as withdrawn: it is never published again."""
    from builder.pipeline.withdrawal import yank as step

    session = open_session(context)
    hold(context, session, "yank")
    changes = step(session, registry_for(session, registry), target, reason=reason, to=to)
    _tell_changes("yank", changes, as_json=as_json)


def test_candidates(
    context: typer.Context, path: Path, level: str, registry: str | None, device_root: Path
) -> list[dict[str, Any]]:
    """Test candidates by their digest and attach the reports; return the records of the tests."""
    from builder.pipeline.adopt import adopt
    from builder.pipeline.candidate import attach_report, read_candidates
    from builder.pipeline.selftest import fetch, run_selftest

    session = open_session(context)
    hold(context, session, "test")
    records = []
    for one in read_candidates(path):
        client = registry_for(session, registry or one.registry)
        built = adopt(session, client, one)
        fetch(session, one)
        record = run_selftest(session, built, level, device_root=device_root)
        attach_report(session, client, one, level)
        records.append(record.model_dump(mode="json", by_alias=True))
    return records


def publish_candidates(
    session: Session, path: Path, registry: str | None, terms: Terms, *, force: bool
) -> tuple[list[dict[str, Any]], list[RocmTorchError]]:
    """Publish candidates that other machines built and tested, and give their leased tags back.

    A candidate whose gate is not open is told and leaves the others going.
    """
    from builder.pipeline.adopt import adopt, require_current
    from builder.pipeline.candidate import read_candidates
    from builder.pipeline.publish import publish as step
    from builder.pipeline.release import told_failure

    records, errors = [], []
    for one in read_candidates(path):
        client = registry_for(session, registry or one.registry)
        try:
            job = session.job(session.cell(one.cell))
            built = adopt(session, client, one)
            require_current(session, job, built)
            record = step(session, job, built, registry=client, force=force, terms=terms)
        except RocmTorchError as error:
            errors.append(told_failure(session, one.cell, "publish", error))
            continue
        with suppress(CouldNotError):  # who may not delete leaves it to the end of the lease
            client.delete_tag(one.repository, one.tag)
        records.append(record.model_dump(mode="json", by_alias=True))
    return records, errors


def _tell_changes(command: str, changes: Sequence[Change], *, as_json: bool) -> None:
    document = {
        "schema": f"rocm-torch/{command}/v1",
        "changes": [{"tag": one.tag, "before": one.before, "after": one.after} for one in changes],
    }
    lines = [f"{one.tag}: {one.before or 'nothing'} -> {one.after or 'nothing'}" for one in changes]
    lines = lines or ["no tag moved"]
    answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(lines)))
