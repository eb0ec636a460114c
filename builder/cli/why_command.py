"""Command why: the cause in a log that lies already somewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from builder.cli.common import Json, answer
from builder.errors import BadCallError, Problem

if TYPE_CHECKING:
    from builder.plan.causes import Cause

_TAIL = 40


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: rocm-torch why build.log")(why)


def why(
    log: Annotated[str, typer.Argument(help="File with a log or an engine's stream; - is stdin.")],
    exit_code: Annotated[
        int | None, typer.Option(help="What the program ended with; 0 leaves only warnings to see.")
    ] = None,
    pip_args: Annotated[str, typer.Option(help="Arguments that pip was called with.")] = "",
    exported: Annotated[
        bool, typer.Option("--exported", help="The image came out all the same.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Tell why a build, push, pull or container failed, from what it said.

    Exit 0 where a cause is known, 3 where no rule knows one: the last lines are shown then.
    """
    from dataclasses import replace

    from builder.plan.causes import causes, output_of_stream

    said = output_of_stream(_read(log))
    status = said.exit_code if exit_code is None else exit_code
    found = causes(replace(said, exit_code=status, pip_args=pip_args, exported=exported))
    tail = said.text.splitlines()[-_TAIL:]
    document = {
        "schema": "rocm-torch/why/v1",
        "causes": [_cause(one) for one in found],
        "tail": [] if found else tail,
    }
    lines = [str(line) for one in found for line in _told(one)]
    unknown = ["no rule knows a cause; the last lines:", *(f"    {line}" for line in tail)]
    answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(lines or unknown)))
    if not found:
        raise typer.Exit(3)


def _read(log: str) -> str:
    try:
        if log == "-":
            return sys.stdin.read()
        return Path(log).read_text("utf-8", "replace")
    except OSError as error:
        raise BadCallError(
            Problem("CANNOT_READ", f"{log} cannot be read: {error.strerror}", fix="name a log file")
        ) from error


def _cause(one: Cause) -> dict[str, Any]:
    return {
        **one.problem.to_json(),
        "severity": one.severity,
        "retryable": one.retryable,
        "wait_seconds": one.wait_seconds,
    }


def _told(one: Cause) -> list[str]:
    lines = [f"{one.severity}: {one.problem}"]
    if one.retryable:
        wait = f" after {one.wait_seconds:g} s" if one.wait_seconds else ""
        lines.append(f"  try again{wait}: it can succeed without a change")
    return lines
