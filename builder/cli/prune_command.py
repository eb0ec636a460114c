"""Command prune: what nothing refers to any more."""

from __future__ import annotations

from typing import Annotated

import typer

from builder.cli.common import Json, answer, hold, open_session, registry_for


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: rocm-torch prune --yes")(prune)


def prune(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it, do not only show it.")] = False,
    registry: Annotated[
        str | None,
        typer.Option(help="Look in a registry instead: for tags of candidates past their lease."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show, or remove, what nothing refers to: blobs, evidence, staged files, images of ours.

    With --registry: the tags of candidates whose lease has ended, and nothing else there.
    """
    from builder.pipeline.prune import ended_leases, find_garbage, remove, remove_leases

    session = open_session(context)
    hold(context, session, "prune")
    if registry is not None:
        client = registry_for(session, registry)
        garbage = ended_leases(session, client)
        if yes:
            remove_leases(session, client, garbage)
    else:
        garbage = find_garbage(session)
        if yes:
            remove(session, garbage)
    size = sum(item.size for item in garbage)
    document = {
        "schema": "rocm-torch/prune/v1",
        "removed": yes,
        "bytes": size,
        "garbage": [{"kind": item.kind, "name": item.name, "bytes": item.size} for item in garbage],
    }
    lines = [f"{item.kind:<12} {item.name}  {item.size / 1e6:.1f} MB" for item in garbage]
    verb = "removed" if yes else "would be removed (--yes does it)"
    lines.append(f"{len(garbage)} things, {size / 1e6:.1f} MB: {verb}" if garbage else "nothing")
    answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(lines)))
