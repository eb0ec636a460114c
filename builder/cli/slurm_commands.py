"""Tests on the nodes of a cluster: ``rocm-torch test --executor slurm``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from builder.cli.common import answer, hold, open_session
from builder.cli.steps import built_of, locked_jobs, not_passed, worst
from builder.oci import Digest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from builder.engines.slurm import Ask
    from builder.errors import RocmTorchError
    from builder.pipeline.session import Session
    from builder.report.records import BuildRecord


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """How tests are submitted: the level, what jobs ask for, the GPUs (a job each), the fabric."""

    level: str
    ask: Ask
    gfx: tuple[str, ...]
    fabric: str | None
    force: bool


def test_on_slurm(
    context: typer.Context,
    selectors: Sequence[str] | None,
    options: SlurmOptions,
    *,
    as_json: bool,
) -> None:
    """Convert what is not converted, submit a job for each cell and GPU family, and wait."""
    from builder.pipeline.chains import Chain, Task, run_chains
    from builder.pipeline.executor import TestTask
    from builder.pipeline.release import told_failure
    from builder.pipeline.scheduler import Needs, Slots
    from builder.pipeline.selftest import run_task
    from builder.pipeline.slurm_executor import SlurmExecutor

    session = open_session(context)
    hold(context, session, "test")
    built = [built_of(session, job) for job in locked_jobs(session, selectors)]
    sifs = {one.cell: _sif(session, one) for one in built}
    executor = SlurmExecutor(sifs, options.ask, fabric=options.fabric)
    tasks = [TestTask(one, options.level, gfx) for one in built for gfx in options.gfx or (None,)]
    done: dict[tuple[str, str], dict[str, Any]] = {}
    errors: list[RocmTorchError] = []

    def act(task: TestTask) -> None:
        record = run_task(session, task, executor, force=options.force)
        done[record.cell, record.step] = record.model_dump(mode="json", by_alias=True)

    def failed(cell: str, step: str, error: RocmTorchError) -> None:
        errors.append(told_failure(session, cell, step, error))

    # The cluster decides what runs when: all jobs wait there, none of them here.
    chains = [
        Chain(task.built.cell, (Task(task.step, Needs(), partial(act, task)),)) for task in tasks
    ]
    run_chains(
        chains,
        Slots.of(1, 1),
        session.tools,
        failed=failed,
        sweep=partial(executor.stop, session),
    )
    keys = [(task.built.cell, task.step) for task in tasks]
    records = [done[key] for key in keys if key in done]
    lines = [f"{one['cell']}  {one['step']}  {one['verdict']}" for one in records]
    document = {"schema": "rocm-torch/test/v1", "records": records}
    error = worst(errors) or not_passed(options.level, records)
    answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(lines)), error=error)


def _sif(session: Session, built: BuildRecord) -> Path:
    from builder.pipeline.sif import Conversion, convert, default_output

    digest = Digest(built.digest)
    output = default_output(session, digest).absolute()
    convert(session, Conversion(digest, output, os.environ))
    return output
