"""The words between ``run`` and the image, for each engine that takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.errors import RocmTorchError
from builder.host.run.command import engine_arguments
from builder.host.run.model import RunRequest
from builder.host.run.plan import plan_run

if TYPE_CHECKING:
    from builder.host.run.model import Target
    from builder.host.snapshot import HostSnapshot

_ENGINES: tuple[Target, ...] = ("docker", "podman")


def run_arguments(snapshot: HostSnapshot, image: str | None = None) -> dict[str, tuple[str, ...]]:
    """Return what passes this host's GPUs in, by engine; no words where there is nothing to pass.

    Args:
        snapshot: a host. Inside a container there is nothing to start one with.
        image: the image that is meant; its name changes no argument.
    """
    if snapshot.container is not None:
        return dict.fromkeys(_ENGINES, ())
    return {engine: _arguments(snapshot, engine, image or "IMAGE") for engine in _ENGINES}


def _arguments(snapshot: HostSnapshot, engine: Target, image: str) -> tuple[str, ...]:
    try:
        plan = plan_run(snapshot, RunRequest(image=image, target=engine))
    except RocmTorchError:  # a host that cannot be planned for is what the findings are about
        return ()
    if not plan.devices and not plan.cdi:
        return ()
    return tuple(one.argument for one in engine_arguments(plan))
