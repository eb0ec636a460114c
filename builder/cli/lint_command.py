"""Command lint: what users add to an image, before it is built."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import Annotated

import typer

from builder.cli.common import Json, answer
from builder.errors import BadCallError, Problem, RefusedError


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: rocm-torch lint Dockerfile requirements.txt")(lint)


def lint(
    files: Annotated[list[Path], typer.Argument(help="Dockerfiles, pieces of them, requirements.")],
    classic: Annotated[
        bool, typer.Option("--classic-builder", help="They are built without BuildKit.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Find what replaces the ROCm build of torch, or breaks an image elsewhere.

    Exit 2 where something is wrong; warnings alone are 0. The comment
    `# rocm-torch: ignore=CODE` before an instruction takes a code out.
    """
    from builder.plan.lint import lint as lint_text

    found = [
        finding
        for file in files
        for finding in lint_text(
            str(file), _read(file), builder="classic" if classic else "buildkit"
        )
    ]
    errors = [one.problem for one in found if one.severity == "error"]
    document = {
        "schema": "rocm-torch/lint/v1",
        "files": [str(file) for file in files],
        "findings": [{"severity": one.severity, **one.problem.to_json()} for one in found],
    }
    lines = [f"warning: {one.problem}" for one in found if one.severity == "warning"]
    if as_json or not errors:
        none = [] if lines else [f"{len(files)} files: nothing found"]
        answer(document, as_json=as_json, text=lambda: typer.echo("\n".join([*lines, *none])))
    elif lines:
        typer.echo("\n".join(lines), err=True)
    if errors and as_json:
        raise typer.Exit(RefusedError.exit_code)
    if errors:
        raise RefusedError(errors)


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadCallError(
            Problem("CANNOT_READ", f"{file} cannot be read: {error}", fix="name a text file")
        ) from error
