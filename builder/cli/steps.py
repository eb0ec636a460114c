"""What the commands that work on cells share: which cells, one step for each, how it ended."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from builder.cli.common import answer, selected
from builder.errors import CouldNotError, IncompleteError, Problem, RefusedError, RocmTorchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from builder.pipeline.scheduler import Needs
    from builder.pipeline.session import Job, Session
    from builder.report.records import BuildRecord


def locked_jobs(session: Session, selectors: Sequence[str] | None) -> tuple[Job, ...]:
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


def built_of(session: Session, job: Job) -> BuildRecord:
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


def each(
    session: Session,
    step: str,
    needs: Needs,
    jobs: Sequence[Job],
    one: Callable[[Job], dict[str, Any]],
    *,
    workers: int,
    as_json: bool,
    judge: Callable[[Sequence[dict[str, Any]]], RocmTorchError | None] = lambda _: None,
) -> None:
    """Run one step for each job, print its records, and raise what went wrong at the end.

    ``judge`` returns what is wrong with records of steps that did their part.
    """
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
    error = worst(errors) or judge(records)
    tell_records(step.partition("-")[0], records, as_json=as_json, error=error)


def tell_records(
    command: str,
    records: Sequence[dict[str, Any]],
    *,
    as_json: bool,
    error: RocmTorchError | None = None,
) -> None:
    """Print the records of one step, and raise ``error`` where there is one."""
    lines = [f"{record['cell']}  {record['digest']}" for record in records]
    document = {"schema": f"rocm-torch/{command}/v1", "records": list(records)}
    answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(lines)), error=error)


def not_passed(level: str, records: Sequence[dict[str, Any]]) -> RocmTorchError | None:
    """Return the error of verdicts that are no pass: exit codes 2 and 3."""
    for verdict, kind in (("fail", RefusedError), ("incomplete", IncompleteError)):
        cells = [record["cell"] for record in records if record["verdict"] == verdict]
        if cells:
            return kind(
                Problem(
                    code=f"TEST_{verdict.upper()}",
                    what=f"level {level} of the self-test is {verdict}",
                    where=", ".join(cells),
                    fix="the progress lines above name the checks",
                )
            )
    return None


def worst(errors: Sequence[RocmTorchError]) -> RocmTorchError | None:
    """Return all problems as the kind that counts most: could not, then refused, incomplete."""
    for kind in (CouldNotError, RefusedError, IncompleteError):
        if any(isinstance(error, kind) for error in errors):
            return kind(problem for error in errors for problem in error.problems)
    return None
