"""What a container engine of this host says of itself: podman and docker, by their own programs."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from builder.engines.process import Command
from builder.errors import CouldNotError

if TYPE_CHECKING:
    from builder.engines.process import Runner

KINDS = ("docker", "podman")
_FORMAT = {"docker": "{{json .}}", "podman": "json"}


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """How an engine runs: without root, with which OCI runtime, with user namespaces.

    ``api`` and ``min_api`` are the versions of Docker's interface that it speaks.
    """

    kind: str
    version: str | None = None
    rootless: bool = False
    runtime: str | None = None
    user_namespaces: bool = False
    desktop: bool = False
    api: str | None = None
    min_api: str | None = None


def installed() -> tuple[str, ...]:
    """Return which engines have their program on the path, the one to prefer first."""
    return tuple(kind for kind in KINDS if shutil.which(kind))


def ask_engine(runner: Runner, kind: str, *, seconds: float = 60.0) -> LocalEngine | None:
    """Ask an engine; ``None`` where its program is not there or gives no answer in time."""
    said = _json(runner, (kind, "info", "--format", _FORMAT[kind]), seconds)
    if not isinstance(said, dict):
        return None
    if kind == "podman":
        return _podman(said)
    if not said.get("ServerVersion"):  # podman under Docker's name, or no server behind it
        return None
    server = _json(runner, (kind, "version", "--format", "{{json .Server}}"), seconds)
    return _docker(said, server if isinstance(server, dict) else {})


def _json(runner: Runner, argv: tuple[str, ...], seconds: float) -> Any:
    try:
        completed = runner.run(Command(argv, timeout=seconds))
        return json.loads(completed.stdout) if completed.returncode == 0 else None
    except (CouldNotError, ValueError):
        return None


def _docker(said: dict[str, Any], server: dict[str, Any]) -> LocalEngine:
    options = " ".join(map(str, said.get("SecurityOptions") or ()))
    return LocalEngine(
        kind="docker",
        version=str(said["ServerVersion"]),
        rootless="name=rootless" in options,
        runtime=said.get("DefaultRuntime") or None,
        user_namespaces="name=userns" in options,
        desktop="Docker Desktop" in str(said.get("OperatingSystem", "")),
        api=server.get("ApiVersion"),
        min_api=server.get("MinAPIVersion"),
    )


def _podman(said: dict[str, Any]) -> LocalEngine:
    host = said.get("host") or {}
    return LocalEngine(
        kind="podman",
        version=(said.get("version") or {}).get("Version"),
        rootless=bool((host.get("security") or {}).get("rootless")),
        runtime=(host.get("ociRuntime") or {}).get("name"),
    )
