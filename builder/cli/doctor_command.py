"""The doctor: why a container does not see the GPU of this host."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from builder.cli.common import DeviceRoot, Json, answer
from builder.errors import BadCallError, CouldNotError, Problem

if TYPE_CHECKING:
    from builder.engines.process import Runner
    from builder.host.rules import Diagnosis, HostFacts, ImageFacts
    from builder.host.rules.checklist import Check
    from builder.host.snapshot import HostSnapshot

_EXIT_CODES = {"pass": 0, "fail": 2, "incomplete": 3}
_WIDTH = 100


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(epilog="Example: rocm-torch doctor --preflight ourorg/rocm-torch:6.2-py311")(doctor)


def doctor(
    context: typer.Context,
    image: Annotated[
        str | None,
        typer.Argument(help="Image whose targets, ROCm and user are compared with this host."),
    ] = None,
    preflight: Annotated[
        bool, typer.Option("--preflight", help="Print the five-point checklist.")
    ] = False,
    host_state: Annotated[
        Path | None,
        typer.Option(help="Judge a saved state, not this host."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="Write what was seen, without names and addresses, to this file."),
    ] = None,
    error: Annotated[
        str | None, typer.Option(help="An error message that you saw and want explained.")
    ] = None,
    root: DeviceRoot = Path("/"),
    as_json: Json = False,
) -> None:
    """Say why a container would not see the GPU here: cause, fix and evidence.

    Exit status 0: nothing is in the way; 2: an error was found; 3: there is no GPU to judge.
    """
    from builder.engines.process import ProcessRunner
    from builder.host.rules import diagnose
    from builder.host.run.arguments import run_arguments

    runner = ProcessRunner()
    seen = _saved(host_state, error) if host_state else _look(runner, root, error)
    if save:
        _save(save, seen)
    looked = _image(runner, seen, image) if image else None
    facts = replace(_facts(context.obj.facts), image=looked)
    found = diagnose(seen, facts)
    checks = _checks(seen, facts, found) if preflight else ()
    document = _document(found, checks, image, looked)
    words = run_arguments(seen, image)
    document["run_args"] = {engine: list(arguments) for engine, arguments in words.items()}
    answer(document, as_json=as_json, text=lambda: _print(found, checks, image, looked))
    raise typer.Exit(_EXIT_CODES[found.verdict])


def _facts(folder: Path | None) -> HostFacts:
    """Return the shipped facts; those of another folder cost reading all of its YAML."""
    if folder is None:
        from builder.host.shipped import shipped_facts

        return shipped_facts()
    from builder.facts import load_facts
    from builder.host.known import host_facts

    return host_facts(load_facts(folder))


def _look(runner: Runner, root: Path, error: str | None) -> HostSnapshot:
    from builder.host.snapshot import read_snapshot
    from builder.pipeline.host_state import surroundings

    return read_snapshot(root, surroundings(runner, os.environ, root, told=error))


def _saved(path: Path, error: str | None) -> HostSnapshot:
    from builder.host.snapshot import ToolOutput, from_document

    try:
        document = json.loads(path.read_text("utf-8"))
        if not isinstance(document, dict):
            raise ValueError(f"it is a {type(document).__name__}, not an object")
        seen = from_document(document)
    except (OSError, ValueError) as problem:
        raise BadCallError(
            Problem(
                code="HOST_STATE_INVALID",
                what=f"not a saved host state: {problem}",
                where=str(path),
                fix="write one with rocm-torch doctor --save FILE; rocm-torch schema host-state"
                " prints its schema",
            )
        ) from None
    if not error:
        return seen
    return replace(seen, tools={**seen.tools, "error": ToolOutput("error", 1, stderr=error)})


def _save(path: Path, seen: HostSnapshot) -> None:
    from builder.host.snapshot import to_document

    try:
        path.write_text(json.dumps(to_document(seen, _owner()), indent=1) + "\n", encoding="utf-8")
    except OSError as problem:
        raise CouldNotError(
            Problem("CANNOT_SAVE", f"the host state cannot be written: {problem}", where=str(path))
        ) from None


def _owner() -> tuple[str, ...]:
    """Return the words that tell whose machine this is; a saved state goes to strangers."""
    names = (platform.node(), platform.node().partition(".")[0], os.environ.get("USER"))
    return tuple(name for name in names if name)


def _image(runner: Runner, seen: HostSnapshot, reference: str) -> ImageFacts | None:
    """Ask the engines of this machine for the image; ``None`` where none has it."""
    from builder.host.known import image_facts
    from builder.pipeline.host_state import image_configuration

    if reference.startswith("-"):
        raise BadCallError(Problem("BAD_IMAGE", f"not an image: {reference!r}"))
    kinds = [engine.kind for engine in seen.engines if engine.kind in ("docker", "podman")]
    for kind in kinds or ["docker", "podman"]:
        found = image_configuration(runner, kind, reference)
        if found:
            labels, user, size = found
            return image_facts(reference, labels, user, size)
    return None


def _checks(seen: HostSnapshot, facts: HostFacts, found: Diagnosis) -> tuple[Check, ...]:
    from builder.host.rules.checklist import preflight

    return preflight(seen, facts, found)


def _unlooked(image: str | None, looked: ImageFacts | None) -> str | None:
    """Say why an image was not compared, where it was not."""
    if not image:
        return None
    if looked is None:
        return f"{image} was not compared: no engine of this machine has it (docker pull {image})"
    if not looked.gfx:
        return f"{image} was not compared by target: it has no label io.rocm-torch.gfx"
    return None


def _document(
    found: Diagnosis, checks: tuple[Check, ...], image: str | None, looked: ImageFacts | None
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "schema": "rocm-torch/doctor/v1",
        "verdict": found.verdict,
        "findings": [finding.to_json() for finding in found.findings],
    }
    if checks:
        document["preflight"] = [
            {"name": one.name, "result": one.result, "detail": one.detail} for one in checks
        ]
    if image:
        document["image"] = {"reference": image, "note": _unlooked(image, looked)}
    return document


def _print(
    found: Diagnosis, checks: tuple[Check, ...], image: str | None, looked: ImageFacts | None
) -> None:
    from builder.host.rules.text import checklist_lines, lines

    for line in checklist_lines(checks, _WIDTH):
        typer.echo(line)
    if checks:
        typer.echo("")
    for line in lines(found, _WIDTH):
        typer.echo(line)
    note = _unlooked(image, looked)
    if note:
        typer.echo(f"\nnote: {note}")
