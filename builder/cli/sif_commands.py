"""Commands about SIF files: sif, publish-sif, pull-sif, and the SIF side of test."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from builder.cli.common import (
    Json,
    PublicKey,
    Registry,
    Selectors,
    answer,
    hold,
    open_session,
    registry_for,
    selected,
)
from builder.cli.steps import built_of, tell_records
from builder.errors import BadCallError, IncompleteError, Problem, RefusedError
from builder.matrix.tags import SIF_SUFFIX
from builder.oci import Digest, Reference

if TYPE_CHECKING:
    from builder.errors import RocmTorchError
    from builder.pipeline.session import Session
    from builder.report.sif_report import Condition, SifReport

Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="The SIF; below .rocm-torch/sif by default.")
]
_PULL = "localhost:5000/ourorg/rocm-torch:cpu-sif"
Source = Annotated[
    str,
    typer.Argument(
        metavar="REF|CELL", help="An image in a registry (host/name:tag or @digest), or a cell."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(epilog="Example: rocm-torch sif cpu-py313 --output cpu.sif")(sif)
    app.command(
        "publish-sif", epilog="Example: rocm-torch publish-sif --registry localhost:5000 cpu-py313"
    )(publish_sif)
    app.command("pull-sif", epilog=f"Example: rocm-torch pull-sif {_PULL} --output cpu.sif")(
        pull_sif
    )


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


def publish_sif(
    context: typer.Context,
    selectors: Selectors = None,
    registry: Registry = None,
    as_json: Json = False,
) -> None:
    """Publish tested SIF files under the image's tags with -sif at the end."""
    from builder.pipeline import sif_publish as step
    from builder.plan.legs import Leg, check_legs

    session = open_session(context)
    hold(context, session, "publish-sif")
    client = registry_for(session, registry)
    cells = selected(session, selectors)
    check_legs(
        Leg(cell.id, f"{client.host}/{session.matrix.image}:{tag}")
        for cell in cells
        for tag in step.planned_tags(session, cell.id)
    )
    records = [step.publish_sif(session, cell.id, client) for cell in cells]
    tell_records(
        "publish-sif",
        [record.model_dump(mode="json", by_alias=True) for record in records],
        as_json=as_json,
    )


def pull_sif(
    context: typer.Context,
    reference: Annotated[
        str, typer.Argument(metavar="REF", help="A SIF (host/name:tag-sif), or its image.")
    ],
    output: Output = None,
    key: PublicKey = None,
    as_json: Json = False,
) -> None:
    """Fetch a SIF, checked while it comes; the file appears when its digest agreed.

    With --key its signature is checked before anything is fetched.
    """
    from builder.pipeline import sif_publish as step
    from builder.pipeline.registries import open_registry
    from builder.pipeline.signing import read_public_key

    session = open_session(context)
    wanted = reference_of(reference)
    name = wanted.tag or (wanted.digest.hex[:12] if wanted.digest else "latest")
    target = output or Path.cwd() / f"{name.removesuffix(SIF_SUFFIX)}.sif"
    with open_registry(
        wanted.registry, runner=session.tools.runner, environ=os.environ
    ) as registry:
        public = read_public_key(key) if key else None
        pulled = step.pull_sif(session, registry, wanted, target.absolute(), public=public)
    document = {
        "schema": "rocm-torch/pull-sif/v1",
        "path": str(pulled.output),
        "digest": pulled.file,
        "bytes": pulled.size,
        "image": pulled.image,
    }
    line = f"{pulled.output}  {pulled.size / 1e6:.1f} MB  {pulled.file}  of {pulled.image}"
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


@dataclass(frozen=True, slots=True)
class SifOptions:
    """How a SIF is tested: the level, the hosts by name, and where ``/dev`` is looked for."""

    level: str
    hosts: tuple[str, ...]
    device_root: Path


def test_sif(context: typer.Context, sif: Path, options: SifOptions, *, as_json: bool) -> None:
    """Test a SIF and print what was found; exit 2 or 3 where it does not pass."""
    from builder.pipeline.sif_test import SifTest, sif_selftest

    if not sif.is_file():
        raise BadCallError(
            Problem(
                code="NO_SUCH_FILE",
                what="there is no such file",
                where=str(sif),
                fix="make it with `rocm-torch sif CELL --output FILE`",
            )
        )
    hosts = _hosts(options.hosts)
    session = open_session(context)
    hold(context, session, "test")
    test = SifTest(sif.absolute(), options.level, hosts, options.device_root)
    report = sif_selftest(session, test)
    error: RocmTorchError | None = None
    kinds = {"fail": RefusedError, "incomplete": IncompleteError}
    if report.verdict in kinds:
        bad = [run for run in report.runs if run.verdict not in (None, "pass")]
        named = [f"{run.mode}, {run.condition}: {run.verdict}" for run in bad]
        error = kinds[report.verdict](
            Problem(
                code=f"TEST_{report.verdict.upper()}",
                what=f"level {options.level} of the self-test is {report.verdict} under Apptainer",
                where=str(sif),
                why="; ".join(named) or None,
                fix="the lines above name the host and the check",
            )
        )
    text = partial(typer.echo, _told(report))
    answer(report.to_json(), as_json=as_json, text=text, error=error)


def _hosts(names: tuple[str, ...]) -> tuple[Condition, ...]:
    from builder.report.sif_report import CONDITIONS

    unknown = [name for name in names if name not in CONDITIONS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(CONDITIONS)}")
    return tuple(name for name in CONDITIONS if name in names) or CONDITIONS


def _told(report: SifReport) -> str:
    lines = [f"{report.cell}  {report.verdict}  {report.sif}"]
    for run in report.runs:
        codes = ", ".join(dict.fromkeys(finding.code for finding in run.findings))
        told = run.verdict or f"not tried: {run.reason}"
        lines.append(f"  {run.mode:<8} {run.condition:<18} {told}{'  ' if codes else ''}{codes}")
    lines += [f"  {finding}" for finding in report.findings]
    return "\n".join(lines)
