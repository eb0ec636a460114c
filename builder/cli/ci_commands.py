"""Commands about CI pipelines: their plan, their chunks, and their text for GitHub and GitLab."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from builder.cli.common import (
    Json,
    Registry,
    Selectors,
    answer,
    open_session,
    registry_for,
    selected,
)
from builder.errors import Problem, RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.pipeline.session import Session

ci = typer.Typer(
    name="ci",
    help="CI pipelines made from the matrix.",
    epilog="Example: rocm-torch ci github --write",
    no_args_is_help=True,
)
PlanFile = Annotated[Path, typer.Option("--plan-file", help="The plan, handed over as a file.")]
Write = Annotated[bool, typer.Option("--write", help="Write the files into the working copy.")]
Check = Annotated[bool, typer.Option("--check", help="Exit 2 where a committed file differs.")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    ci.command(epilog="Example: rocm-torch ci plan --plan-file plan.json 'rocm>=7.2'")(plan)
    ci.command(epilog="Example: rocm-torch ci chunk --plan-file plan.json 0")(chunk)
    ci.command(epilog="Example: rocm-torch ci github --check")(github)
    ci.command(epilog="Example: rocm-torch ci gitlab --write")(gitlab)
    app.add_typer(ci)


def plan(
    context: typer.Context,
    selectors: Selectors = None,
    plan_file: PlanFile = Path("ci-plan.json"),
    size: Annotated[
        int | None, typer.Option("--chunk", help="Cells a chunk, 256 at most.", show_default=False)
    ] = None,
    changed: Annotated[
        bool,
        typer.Option("--changed", help="Leave out what the registry has from the same inputs."),
    ] = False,
    registry: Registry = None,
    outputs: Annotated[
        bool, typer.Option("--outputs", help="Print name=value lines for $GITHUB_OUTPUT.")
    ] = False,
    env: Annotated[
        str | None,
        typer.Option(help="Print NAME=PLAN for the environment, where it is small enough."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Plan a pipeline: write the cells in chunks to a file, which goes from job to job."""
    from builder.pipeline.ci import plan_pipeline, unpublished
    from builder.plan.ci.chunks import as_variable, chunk_numbers
    from builder.report.records import atomic_write

    session = open_session(context)
    cells = selected(session, selectors)
    if changed:
        cells = unpublished(session, cells, registry_for(session, registry))
    made = plan_pipeline(session, cells, chunk=size)
    atomic_write(plan_file, made.to_text().encode())
    if env is not None:
        typer.echo(as_variable(env, made))
        return
    if outputs:
        _echo_outputs(chunk_numbers(made))
        return
    untested = [cell.id for cell in made.cells if cell.untested]
    document = {
        "schema": "rocm-torch/ci/v1",
        "plan_file": str(plan_file),
        "cells": len(made.cells),
        "chunks": [len(chunk) for chunk in made.chunks],
        "unlocked": list(made.unlocked),
        "untested": untested,
    }
    lines = [f"{len(made.cells)} cells in {len(made.chunks)} chunks: {plan_file}"]
    lines += [f"{cell}: not locked, left out" for cell in made.unlocked]
    lines += [f"{cell}: no machine with its GPU (`ci: runners:`), no GPU test" for cell in untested]
    answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(lines)))


def chunk(
    context: typer.Context,  # noqa: ARG001 - a plan file needs no working copy
    number: Annotated[int, typer.Argument(help="Number of the chunk, from 0.")],
    plan_file: PlanFile = Path("ci-plan.json"),
) -> None:
    """Print the rows of one chunk as name=value lines for $GITHUB_OUTPUT: ids, nothing more."""
    from builder.pipeline.ci import read_plan
    from builder.plan.ci.chunks import chunk_outputs

    _echo_outputs(chunk_outputs(read_plan(plan_file).chunk(number)))


def github(
    context: typer.Context, write: Write = False, check: Check = False, as_json: Json = False
) -> None:
    """Print, write or compare the workflows for GitHub."""
    from builder.pipeline.ci import github_files

    session = open_session(context)
    _emit(session, "github", github_files(session), write=write, check=check, as_json=as_json)


def gitlab(
    context: typer.Context,
    write: Write = False,
    check: Check = False,
    children: Annotated[
        Path | None, typer.Option(help="Write the child pipelines of --plan-file to this folder.")
    ] = None,
    plan_file: PlanFile = Path("ci-plan.json"),
    as_json: Json = False,
) -> None:
    """Print, write or compare the pipeline for GitLab; --children makes its child pipelines."""
    from builder.pipeline import ci as step

    session = open_session(context)
    if children is not None:
        texts = step.gitlab_children(session, step.read_plan(plan_file))
        step.write(children, texts)
        document = {"schema": "rocm-torch/ci-gitlab/v1", "files": sorted(texts)}
        text = f"{len(texts)} child pipelines in {children}"
        answer(document, as_json=as_json, text=lambda: typer.echo(text))
        return
    texts = step.gitlab_files(session)
    _emit(session, "gitlab", texts, write=write, check=check, as_json=as_json)


def _emit(
    session: Session,
    kind: str,
    texts: Mapping[str, str],
    *,
    write: bool,
    check: bool,
    as_json: bool,
) -> None:
    from builder.pipeline import ci as step

    if write and check:
        raise typer.BadParameter("--write and --check exclude each other")
    root = session.workspace.root
    changed = step.differing(root, texts) if check else step.write(root, texts) if write else ()
    if check and changed:
        raise RefusedError(
            Problem(
                "CI_DRIFT",
                "The committed pipeline is missing or is not what the program makes.",
                where=name,
                fix=f"run `rocm-torch ci {kind} --write` and commit the result",
            )
            for name in changed
        )
    document = {
        "schema": f"rocm-torch/ci-{kind}/v1",
        "files": dict(texts),
        "changed": list(changed),
    }
    lines = [f"{len(texts)} files, {len(changed)} changed"]
    if not (write or check):
        lines = [text.rstrip("\n") for text in texts.values()]
    answer(document, as_json=as_json, text=lambda: typer.echo("\n---\n".join(lines)))


def _echo_outputs(values: Mapping[str, str]) -> None:
    for name, value in values.items():
        typer.echo(f"{name}={value}")
