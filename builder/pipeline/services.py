"""A registry on loopback: for the demo, for tests, for a look before publishing."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

from builder.engines.buildx import Buildx
from builder.engines.docker_engine import DockerEngine
from builder.engines.registry import Patience, Registry
from builder.errors import CouldNotError, Problem, RefusedError
from builder.oci import Digest, canonical_json
from builder.pipeline.lent import apt_sources
from builder.plan.bake import base_source, context_name, secret_words
from builder.report.records import atomic_write

if TYPE_CHECKING:
    from builder.matrix.cells import Cell
    from builder.matrix.lock import LockedCell
    from builder.pipeline.session import Session

# What FROM says in images/registry/Dockerfile; the base that it gets may be another Debian.
_BASE = "docker.io/library/debian:13"
CONTAINER = "rocm-torch-registry"
IMAGE = "rocm-torch-registry:local"
TOOLS = "rocm-torch-tools"
VOLUME = "rocm-torch-registry"
PORT = 5000
# A registry that was just started refuses connections for a moment.
_STARTING = Patience(attempts=9, first_wait=0.1)


def registry_up(session: Session, *, port: int | None = None) -> str:
    """Make sure that the registry runs and return its address, ``localhost:PORT``.

    Its image is built from the base of a locked Debian cell, so no other registry is needed.

    Args:
        session: the run.
        port: port on 127.0.0.1; 5000 by default, or a free one where that is taken.

    Raises:
        CouldNotError: it did not come up.
        RefusedError: no locked cell has a Debian base.
    """
    tools, engine = session.tools, DockerEngine()
    address = engine.published_port(CONTAINER, "5000/tcp")
    if address is None:
        engine.remove_service(CONTAINER)
        if not engine.has_image(IMAGE):
            build_registry_image(session, IMAGE)
        chosen = port if port is not None else PORT if _free(PORT) else 0
        engine.start_service(
            IMAGE,
            CONTAINER,
            ports={"5000/tcp": ("127.0.0.1", chosen or None)},
            volumes={VOLUME: {"bind": "/var/lib/registry", "mode": "rw"}},
            labels={"io.rocm-torch.service": "registry"},
        )
        address = engine.published_port(CONTAINER, "5000/tcp")
    if address is None:
        raise CouldNotError(
            Problem(
                code="REGISTRY_NOT_UP",
                what="the registry's container was started and does not run",
                where=CONTAINER,
                fix=f"read what it said: docker logs {CONTAINER}",
            )
        )
    host = f"localhost:{address}"
    Registry(host, patience=_STARTING).ping()
    tools.progress.say("", "registry", f"up at {host}")
    return host


def registry_down(*, purge: bool = False) -> bool:
    """Stop and remove the registry's container and tell whether there was one.

    Args:
        purge: remove what was pushed to it, too.
    """
    engine = DockerEngine()
    was_there = engine.remove_service(CONTAINER)
    if purge:
        engine.remove_volume(VOLUME)
    return was_there


def build_registry_image(session: Session, name: str) -> None:
    """Build the image of the registry into the engine as ``name``."""
    _build_image(session, "registry", name, _debian_base(session))


def tools_image(session: Session) -> str:
    """Return the name of the image with Apptainer, built where the engine does not have it.

    Raises:
        RefusedError: ``UNLOCKED``, when no Debian 13 cell is locked, whose base it needs.
        CouldNotError: it could not be built.
    """
    base = _debian_base(session, distro="debian13")
    folder = session.workspace.images / "tools"
    texts = {path.name: Digest.of(path.read_bytes()) for path in folder.iterdir()}
    inputs = Digest.of(canonical_json({"base": base[1].base, "files": texts}))
    name = f"{TOOLS}:{inputs.hex[:12]}"
    if not DockerEngine().has_image(name):
        _build_image(session, "tools", name, base)
    return name


def _build_image(session: Session, what: str, name: str, base: tuple[Cell, LockedCell]) -> None:
    cell, locked = base
    workspace = session.workspace
    folder = workspace.images / what
    served = session.site.base(cell.base.ref)
    source = base_source(cell, locked, workspace.layout, served=served)
    secrets = secret_words(apt_sources(session, cell))
    document = {
        "target": {
            what: {
                "context": str(folder),
                "contexts": {context_name(_BASE): source},
                "tags": [name],
                "output": ["type=docker"],
                **({"secret": secrets} if secrets else {}),
            }
        }
    }
    path = workspace.state / "bake" / f"{what}.json"
    atomic_write(path, json.dumps(document).encode())
    session.tools.progress.say("", what, f"building {name}")
    Buildx(session.tools.runner).bake(path, what, log=workspace.log(what, "build"))


def _debian_base(session: Session, *, distro: str | None = None) -> tuple[Cell, LockedCell]:
    for cell in session.matrix.cells:
        locked = session.locked(cell)
        if locked is None or distro not in (None, cell.distro):
            continue
        if session.facts.distributions[cell.distro].os_id == "debian":
            return cell, locked
    needed = "Debian" if distro is None else distro
    raise RefusedError(
        Problem(
            code="UNLOCKED",
            what=f"this image needs the base of a locked {needed} cell, and there is none",
            where=str(session.lock_file),
            fix="run `rocm-torch lock` first",
        )
    )


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
