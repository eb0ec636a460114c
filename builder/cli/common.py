"""What all commands share: their options, how they open a session, how they answer and fail."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from builder.errors import BadCallError, CouldNotError, Problem
from builder.oci import is_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from builder.cli.signals import Interrupts
    from builder.engines.registry import Registry as RegistryClient
    from builder.errors import RocmTorchError
    from builder.matrix.cells import Cell
    from builder.pipeline.session import Session
    from builder.report.progress.choose import Style

Selectors = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SELECTOR]...",
        help="Cell id, tag, lane, glob or axis=value (rocm>=7.2); commas narrow. Default: all.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with a schema key.")]
Registry = Annotated[
    str | None,
    typer.Option(
        help="Registry host to use instead of the matrix's.", envvar="ROCM_TORCH_REGISTRY"
    ),
]
PublicKey = Annotated[
    Path | None,
    typer.Option("--key", help="Public key (PEM) that it must be signed with.", dir_okay=False),
]
Builder = Annotated[str | None, typer.Option(help="Name of a buildx builder.")]
DeviceRoot = Annotated[
    Path, typer.Option(help="Root below which /dev is looked at (for tests with stand-in nodes).")
]
Workers = Annotated[
    int, typer.Option("--jobs", "-j", min=1, max=64, help="Steps at a time that keep a core busy.")
]


@dataclass(frozen=True, slots=True)
class Globals:
    """The options that stand before the command."""

    project: Path
    matrix: Path | None
    lock: Path | None
    facts: Path | None
    site: Path | None
    wheelhouse: Path | None
    signing_key: str | None
    quiet: bool
    wait: bool
    progress: Style
    interrupts: Interrupts | None


def find_project(start: Path) -> Path:
    """Return the nearest folder from ``start`` upwards that holds ``matrix.yaml``."""
    for folder in (start, *start.parents):
        if (folder / "matrix.yaml").is_file():
            return folder
    return start


def open_session(context: typer.Context) -> Session:
    """Return the session of this call; the files it names are read when they are needed."""
    # Here and not above: starting up must not cost what a command does not use.
    from builder.engines.cosign import SigningKey
    from builder.engines.process import ProcessRunner
    from builder.pipeline.session import Session
    from builder.pipeline.workspace import Tools, Workspace
    from builder.report.progress.choose import open_progress

    options: Globals = context.obj
    workspace = Workspace(options.project)
    try:
        workspace.state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CouldNotError(
            Problem(
                code="STATE_NOT_WRITABLE",
                what=f"the folder for what a run leaves behind cannot be made: {error.strerror}",
                where=str(workspace.state),
                fix="name a working copy that you may write to: --project FOLDER",
            )
        ) from error
    runner = ProcessRunner(workspace.state / "tools.jsonl")
    if options.interrupts is not None:
        options.interrupts.last(runner.kill_all)
    progress = open_progress(options.progress, sys.stderr, os.environ, quiet=options.quiet)
    context.call_on_close(progress.close)
    tools = Tools(
        runner=runner,
        now=lambda: datetime.now(UTC),
        clock=time.monotonic,
        progress=progress,
    )
    return Session(
        workspace=workspace,
        tools=tools,
        lock_file=options.lock or options.project / "matrix.lock",
        matrix_file=options.matrix or workspace.matrix,
        facts_folder=options.facts,
        site_file=_site_file(options),
        wheelhouse=options.wheelhouse,
        signing_key=SigningKey(options.signing_key, os.environ) if options.signing_key else None,
    )


def _site_file(options: Globals) -> Path | None:
    if options.site is not None:
        return options.site
    usual = options.project / "site.yaml"
    return usual if usual.is_file() else None


def hold(context: typer.Context, session: Session, command: str) -> None:
    """Keep other runs out of this working copy until this call ends."""
    from builder.pipeline.run_lock import RunLock

    options: Globals = context.obj
    lock = RunLock(session.workspace, session.tools)
    lock.take(f"rocm-torch {command}", wait=options.wait)
    context.call_on_close(lock.release)


def selected(session: Session, selectors: Sequence[str] | None) -> tuple[Cell, ...]:
    """Return the cells that the selectors of a call name."""
    from builder.matrix.select import select

    return select(session.matrix.cells, tuple(selectors or ()), session.matrix.tags)


def answer(
    document: dict[str, Any],
    *,
    as_json: bool,
    text: Callable[[], None],
    error: RocmTorchError | None = None,
) -> None:
    """Print the result of a command: one JSON object, or whatever ``text`` prints.

    With an ``error`` the result is told as far as there is one, and the error is raised; as JSON
    the result stands inside the error's object.
    """
    if error is not None and as_json:
        error.answer = document
    elif as_json:
        sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    else:
        text()
    if error is not None:
        raise error


# Building is unpacking and compressing: more cells at a time than cores only wait for each other.
DEFAULT_JOBS = max(1, min(4, len(os.sched_getaffinity(0))))


def registry_for(session: Session, host: str | None) -> RegistryClient:
    """Return the registry client for ``host``, or for the matrix's registry."""
    from builder.pipeline.registries import open_registry

    name = host or session.matrix.registry
    if not is_registry(name):
        raise BadCallError(
            Problem("BAD_REGISTRY", f"not a registry host: {name!r}", fix="write HOST[:PORT]")
        )
    return open_registry(name, runner=session.tools.runner, environ=os.environ)
