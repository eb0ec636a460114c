"""Commands about SIF files: sif."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from builder.cli.common import Json, answer, hold, open_session, selected
from builder.cli.steps import built_of
from builder.errors import BadCallError, Problem
from builder.oci import Digest, Reference

if TYPE_CHECKING:
    from builder.pipeline.session import Session

Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="The SIF; below .rocm-torch/sif by default.")
]
Source = Annotated[
    str,
    typer.Argument(
        metavar="REF|CELL", help="An image in a registry (host/name:tag or @digest), or a cell."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(epilog="Example: rocm-torch sif cpu-py313 --output cpu.sif")(sif)


def sif(
    context: typer.Context,
    source: Source,
    output: Output = None,
    force: Annotated[bool, typer.Option("--force", help="Convert again.")] = False,
    as_json: Json = False,
) -> None:
    """Convert an image to a SIF for Apptainer, by its digest; a tag is resolved first."""
    from builder.pipeline.sif import Conversion, convert, default_output

    session = open_session(context)
    hold(context, session, "sif")
    digest = _digest_of(session, source)
    target = (output or default_output(session, digest)).absolute()
    record = convert(session, Conversion(digest, target, os.environ), force=force)
    document = {"schema": "rocm-torch/sif/v1", "record": record.model_dump(mode="json")}
    line = f"{record.path}  {record.size / 1e6:.1f} MB  of {record.digest}"
    answer(document, as_json=as_json, text=lambda: typer.echo(line))


def _digest_of(session: Session, source: str) -> Digest:
    """Return the digest of the image that is meant, which lies in the layout afterwards."""
    from builder.pipeline.fetch import fetch, resolve
    from builder.pipeline.registries import open_registry

    if "/" not in source:
        (cell, *others) = selected(session, [source])
        if others:
            raise BadCallError(
                Problem(
                    code="MORE_THAN_ONE",
                    what=f"{source!r} selects {1 + len(others)} cells, and a SIF is made of one",
                    fix=f"write one id, such as {cell.id}",
                )
            )
        return Digest(built_of(session, session.job(cell)).digest)
    reference = reference_of(source)
    with open_registry(
        reference.registry, runner=session.tools.runner, environ=os.environ
    ) as registry:
        digest = resolve(registry, reference)
        fetch(session, registry, reference.repository, digest)
    return digest


def reference_of(text: str) -> Reference:
    """Read a reference of a call; a wrong one is a bad call."""
    try:
        return Reference.parse(text)
    except ValueError as error:
        raise BadCallError(
            Problem("BAD_REFERENCE", str(error), fix="write host/name:tag or host/name@sha256:...")
        ) from error
