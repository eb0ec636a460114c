"""Opens registries with the credentials that Docker's configuration has for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.engines.registry import Registry, load_credentials
from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.engines.process import Runner
    from builder.engines.registry import Credentials


def open_registry(host: str, *, runner: Runner, environ: Mapping[str, str]) -> Registry:
    """Return a client for ``host``; credentials are looked up when it first asks for them.

    Args:
        host: as in a reference, with its port.
        runner: starts credential helpers.
        environ: where ``DOCKER_CONFIG`` and ``HOME`` say the configuration lies.
    """

    def credentials() -> Credentials | None:
        return load_credentials(_docker_config(environ), host, runner)

    return Registry(host, credentials=credentials)


def _docker_config(environ: Mapping[str, str]) -> dict[str, Any]:
    folder = environ.get("DOCKER_CONFIG")
    path = (Path(folder) if folder else Path(environ.get("HOME", "/")) / ".docker") / "config.json"
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CouldNotError(
            Problem(
                code="DOCKER_CONFIG_UNREADABLE",
                what=f"Docker's configuration cannot be read: {error}",
                where=str(path),
                fix="mend the file, or set DOCKER_CONFIG to another folder",
            )
        ) from error
    return found if isinstance(found, dict) else {}
