"""Command doctor: why a container does not see the GPU, and what to do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from builder.cli.common import DeviceRoot, Globals, Json, answer
from builder.errors import BadCallError, CouldNotError, Problem

if TYPE_CHECKING:
    from builder.host.rules import HostFacts
    from builder.host.snapshot import HostSnapshot


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: rocm-torch doctor --save host.json")(doctor)


def doctor(
    context: typer.Context,
    image: Annotated[
        str | None, typer.Argument(help="An image of the local engine, to compare the host with.")
    ] = None,
    preflight: Annotated[
        bool, typer.Option("--preflight", help="Answer five questions before a container starts.")
    ] = False,
    host_state: Annotated[
        Path | None, typer.Option(help="Judge a saved host instead of this one.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write what was seen, without names and tokens.")
    ] = None,
    device_root: DeviceRoot = Path("/"),
    as_json: Json = False,
) -> None:
    """Look at this host, or a saved one, and name the cause, its fix and the evidence.

    Exit 2 where the GPU cannot be used, 3 where there is none to judge.
    """
    from builder.host import told
    from builder.host.rules import diagnose

    snapshot = _read(host_state) if host_state else _look(device_root)
    if save:
        _save(snapshot, save)
    facts = _facts(context.obj, image)
    diagnosis = diagnose(snapshot, facts)
    run_args = _run_args(snapshot)
    document = told.document(snapshot, diagnosis, run_args)
    report = list(told.lines(snapshot, diagnosis, run_args))
    if preflight:
        points = _points(snapshot, facts)
        document["preflight"] = points
        report = [
            f"{point['result']:<8}{point['asks']}" + "".join(f" {code}" for code in point["codes"])
            for point in points
        ] + ["", *report]
    answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(report)))
    if exit_code := told.EXIT_CODES[diagnosis.verdict]:
        raise typer.Exit(exit_code)


def _look(root: Path) -> HostSnapshot:
    from builder.host.around import look_around
    from builder.host.snapshot import read_snapshot
    from builder.host.snapshot.container import container_of

    inside = container_of(root, os.environ) is not None
    return read_snapshot(root, look_around(root, os.environ, inside=inside))


def _read(file: Path) -> HostSnapshot:
    from builder.host.snapshot import from_document

    try:
        document = json.loads(file.read_text("utf-8"))
        if not isinstance(document, dict):
            raise ValueError("it is no JSON object")
        return from_document(document)
    except OSError as error:
        raise CouldNotError(
            Problem("HOST_STATE_UNREADABLE", f"It cannot be read: {error.strerror}.", str(file))
        ) from error
    except ValueError as error:
        raise BadCallError(
            Problem(
                code="NOT_A_HOST_STATE",
                what=f"This is no saved host state: {error}.",
                where=str(file),
                fix="write one with `rocm-torch doctor --save FILE`; its schema:"
                " `rocm-torch schema host-state`",
            )
        ) from error


def _save(snapshot: HostSnapshot, file: Path) -> None:
    from builder.host.around import owner_names
    from builder.host.snapshot import to_document

    text = json.dumps(to_document(snapshot, owner_names(os.environ)), indent=1) + "\n"
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise CouldNotError(
            Problem("HOST_STATE_NOT_SAVED", f"It cannot be written: {error.strerror}.", str(file))
        ) from error


def _facts(options: Globals, image: str | None) -> HostFacts:
    from builder.facts import load_facts
    from builder.host.known import host_facts, image_facts

    facts = load_facts(options.facts)
    if image is None:
        return host_facts(facts)
    found = _inspected(image)
    labels = found["Config"].get("Labels") or {}
    return host_facts(
        facts, image_facts(image, labels, found["Config"].get("User", ""), found.get("Size"))
    )


def _inspected(image: str) -> dict[str, Any]:
    from builder.engines.docker_engine import DockerEngine

    found = DockerEngine().inspected(image)
    if found is None:
        raise CouldNotError(
            Problem(
                code="IMAGE_NOT_HERE",
                what=f"The local engine has no image {image}, so its targets are not known.",
                where=image,
                fix=f"docker pull {image}",
            )
        )
    return found


def _points(snapshot: HostSnapshot, facts: HostFacts) -> list[dict[str, Any]]:
    from builder.host.preflight import preflight

    return [
        {"asks": point.asks, "result": point.result, "codes": list(point.codes)}
        for point in preflight(snapshot, facts)
    ]


def _run_args(snapshot: HostSnapshot) -> dict[str, tuple[str, ...]]:
    """Return what each engine needs; a rootless one needs more than devices and groups."""
    from builder.host.access import device_access

    if snapshot.container or not snapshot.compute_nodes:
        return {"docker": (), "podman": ()}
    words = device_access(snapshot).docker_arguments()
    rootless = {engine.kind for engine in snapshot.engines if engine.rootless}
    return {kind: () if kind in rootless else words for kind in ("docker", "podman")}
