"""Commands about what there is to build: matrix, check, render, lock, plan, bake, schema."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from builder.cli.common import (
    Json,
    Registry,
    Selectors,
    answer,
    hold,
    open_session,
    registry_for,
    selected,
)
from builder.errors import BadCallError, Problem, RefusedError

if TYPE_CHECKING:
    from builder.matrix.cells import Cell
    from builder.pipeline.session import Session


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(epilog="Example: rocm-torch matrix --json 'python>=3.12'")(matrix)
    app.command(epilog="Example: rocm-torch check --json")(check)
    app.command(epilog="Example: rocm-torch render --check")(render)
    app.command(epilog="Example: rocm-torch lock --update cpu-py313")(lock)
    app.command(epilog="Example: rocm-torch plan cpu")(plan)
    app.command(epilog="Example: rocm-torch bake > bake.json")(bake)
    app.command(epilog="Example: rocm-torch schema matrix")(schema)


def matrix(
    context: typer.Context,
    selectors: Selectors = None,
    excluded: Annotated[
        bool, typer.Option("--excluded", help="Show the combinations that are not built, and why.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the cells that the matrix comes to."""
    from builder.matrix.nearest import nearest

    session = open_session(context)
    cells = selected(session, selectors)
    document: dict[str, Any] = {
        "schema": "rocm-torch/matrix/v1",
        "cells": [_cell_json(session, cell) for cell in cells],
        "excluded": [
            entry.to_json(nearest(entry.combination, session.facts))
            for entry in session.matrix.excluded
        ]
        if as_json or excluded
        else [],
    }

    def text() -> None:
        if excluded:
            for entry in document["excluded"]:
                axes = " ".join(f"{key}={value}" for key, value in entry["axes"].items() if value)
                near = f"\n  nearest: {', '.join(entry['nearest'])}" if entry["nearest"] else ""
                typer.echo(f"{axes}\n  {entry['code']}: {entry['reason']}{near}")
            return
        for entry in document["cells"]:
            state = "locked" if entry["locked"] else "unlocked: rendered, not built"
            typer.echo(f"{entry['id']}  [{entry['lane']}, {state}]")
            typer.echo(f"  {entry['base']['family']} from {entry['base']['ref']}")
            typer.echo("  " + " ".join(entry["tags"]))

    answer(document, as_json=as_json, text=text)


def _cell_json(session: Session, cell: Cell) -> dict[str, Any]:
    locked = session.locked(cell)
    return {
        "id": cell.id,
        "lane": cell.lane,
        "distro": cell.distro,
        "rocm": cell.rocm,
        "torch": cell.torch,
        "python": cell.python,
        "flavour": cell.flavour,
        "base": {
            "family": cell.base.family,
            "ref": cell.base.ref,
            "digest": locked.base if locked else None,
        },
        "gfx": list(cell.gfx),
        "tags": list(session.matrix.references_of(cell)),
        "locked": locked is not None,
        "buildable": locked is not None,
    }


def check(context: typer.Context, as_json: Json = False) -> None:
    """Check the matrix; every problem is told at once, with its line."""
    from builder.matrix.rules.lifecycle import ended

    session = open_session(context)
    loaded, today = session.matrix, datetime.now(UTC).date()
    warnings = [
        *(f"{warned.cell}: {warned.reason} [{warned.code}]" for warned in loaded.warnings),
        *(
            f"{cell.id}: {verdict.reason} [{verdict.code}]"
            for cell in loaded.cells
            for verdict in ended(cell, session.facts, today)
        ),
    ]
    document = {
        "schema": "rocm-torch/check/v1",
        "cells": len(loaded.cells),
        "excluded": len(loaded.excluded),
        "warnings": warnings,
    }
    text = "\n".join(
        (
            *(f"warning: {warning}" for warning in warnings),
            f"{len(loaded.cells)} cells, {len(loaded.excluded)} combinations excluded with a "
            f"reason, {len(warnings)} warnings",
        )
    )
    answer(document, as_json=as_json, text=lambda: typer.echo(text))


def render(
    context: typer.Context,
    selectors: Selectors = None,
    check_only: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 2 where a file would change.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the build context of each cell to images/<cell>/."""
    from builder.pipeline import render as step

    session = open_session(context)
    cells = selected(session, selectors)
    if check_only:
        found = step.drift(session, cells, whole=not selectors)
        if found:
            raise RefusedError(
                Problem(
                    code="DRIFT",
                    what=f"is {entry.state}",
                    where=entry.path,
                    fix="run `rocm-torch render` and commit the result"
                    if entry.state != "left over"
                    else f"run `git rm -r {entry.path}`",
                )
                for entry in found
            )
        changed: tuple[str, ...] = ()
    else:
        changed = step.render(session, cells)
    document = {"schema": "rocm-torch/render/v1", "cells": len(cells), "changed": list(changed)}
    lines = [*changed, f"{len(cells)} contexts, {len(changed)} files changed"]
    answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(lines)))


def lock(
    context: typer.Context,
    selectors: Selectors = None,
    update: Annotated[
        bool, typer.Option("--update", help="Resolve again what is locked already.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 2 when a base or archive moved.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask nobody; exit 2 where something is not here.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Resolve each cell: digest of its base, state of its archives, epoch."""
    from builder.pipeline.lock import check_lock, lock_cells, offline_lock

    if update + check + offline > 1:
        raise typer.BadParameter("--update, --check and --offline exclude each other")
    session = open_session(context)
    hold(context, session, "lock")
    cells = selected(session, selectors)
    if check:
        result = check_lock(session, cells)
    elif offline:
        result = offline_lock(session, cells)
    else:
        result = lock_cells(session, cells, update=update)
    locked = {cell.id: result.cells[cell.id].to_json() for cell in cells}
    lines = [
        f"{name}  {entry['base']['origin']} {entry['base']['digest']}  epoch {entry['epoch']}"
        for name, entry in locked.items()
    ]
    document = {"schema": "rocm-torch/lock-result/v1", "cells": locked}
    answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(lines)))


def plan(
    context: typer.Context,
    selectors: Selectors = None,
    registry: Registry = None,
    since: Annotated[
        str | None, typer.Option(help="Compare with a git revision instead of the last build.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say for each cell what has to be done and why; changes nothing.

    With --registry the registry is asked, too, whether every release tag is where it should be.
    """
    from builder.pipeline import plan as step

    session = open_session(context)
    cells = selected(session, selectors)
    orphans: tuple[str, ...] = ()
    if since is not None:
        entries = step.plan_since(session, cells, since)
    else:
        client = registry_for(session, registry) if registry else None
        entries = step.plan(session, cells, client)
        orphans = step.orphan_tags(session, client) if client else ()
    todo = [entry for entry in entries if entry.reasons]
    document = {
        "schema": "rocm-torch/plan/v1",
        "cells": [
            {"cell": one.cell, "state": one.state, "reasons": list(one.reasons)} for one in entries
        ],
        "orphans": list(orphans),
    }
    lines = [f"{one.cell}  {one.state}: {', '.join(one.reasons)}" for one in todo]
    lines = lines or [f"nothing to do: {len(entries)} cells are current"]
    lines += [f"warning: no cell moves the tag {tag} any more [ORPHAN_ALIAS]" for tag in orphans]
    answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(lines)))


def bake(context: typer.Context, selectors: Selectors = None) -> None:
    """Print the bake file of the selected cells, for any BuildKit."""
    from builder.pipeline.build import bake_document

    session = open_session(context)
    jobs = [session.job(cell) for cell in selected(session, selectors)]
    sys.stdout.write(
        json.dumps(bake_document(session, jobs, session.workspace.layout), indent=1, sort_keys=True)
        + "\n"
    )


def schema(name: Annotated[str, typer.Argument(help="matrix, or host-state.")]) -> None:
    """Print a JSON Schema, for editors and for programs that read our output."""
    from builder.host.schema import host_state_json_schema
    from builder.matrix.schema import matrix_json_schema

    schemas = {"host-state": host_state_json_schema, "matrix": matrix_json_schema}
    if name not in schemas:
        raise BadCallError(
            Problem(
                code="UNKNOWN_SCHEMA",
                what=f"there is no schema {name!r}",
                fix=f"known schemas: {', '.join(sorted(schemas))}",
            )
        )
    sys.stdout.write(json.dumps(schemas[name](), indent=1, sort_keys=True) + "\n")
