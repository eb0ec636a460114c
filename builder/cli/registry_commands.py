"""Commands for the registry on loopback: up and down."""

from __future__ import annotations

from typing import Annotated

import typer

from builder.cli.common import Json, answer, open_session


def register(app: typer.Typer) -> None:
    """Add the group ``registry`` to ``app``."""
    group = typer.Typer(help="A registry on loopback, to publish to before you publish.")
    group.command(epilog="Example: rocm-torch registry up")(up)
    group.command(epilog="Example: rocm-torch registry down --purge")(down)
    group.command(epilog="Example: rocm-torch registry image --name tools/registry:1")(image)
    app.add_typer(group, name="registry")


def up(
    context: typer.Context,
    port: Annotated[
        int | None, typer.Option(help="Port on 127.0.0.1; 5000, or a free one if that is taken.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Start the registry where it does not run, and print its address."""
    from builder.pipeline.services import registry_up

    host = registry_up(open_session(context), port=port)
    document = {"schema": "rocm-torch/registry/v1", "host": host}
    answer(document, as_json=as_json, text=lambda: typer.echo(host))


def down(
    purge: Annotated[bool, typer.Option("--purge", help="Remove what was pushed, too.")] = False,
    as_json: Json = False,
) -> None:
    """Stop the registry."""
    from builder.pipeline.services import registry_down

    stopped = registry_down(purge=purge)
    document = {"schema": "rocm-torch/registry/v1", "host": None, "stopped": stopped}
    text = "stopped" if stopped else "it was not running"
    answer(document, as_json=as_json, text=lambda: typer.echo(text))


def image(
    context: typer.Context,
    name: Annotated[str | None, typer.Option(help="Name of the image in the engine.")] = None,
    as_json: Json = False,
) -> None:
    """Build the registry's image without starting it."""
    from builder.pipeline.services import IMAGE, build_registry_image

    chosen = name or IMAGE
    build_registry_image(open_session(context), chosen)
    document = {"schema": "rocm-torch/registry-image/v1", "image": chosen}
    answer(document, as_json=as_json, text=lambda: typer.echo(chosen))
