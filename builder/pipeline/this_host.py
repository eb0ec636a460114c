"""The host that this program runs on, as one snapshot: the files, the caller, the engines."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from builder.engines.docker_engine import RunSpec
from builder.engines.local import ask_engine
from builder.host.run import RunRequest, plan_run
from builder.host.snapshot import Engine, read_snapshot
from builder.host.snapshot.read import Surroundings

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from builder.engines.process import Runner
    from builder.host.run import RunPlan
    from builder.host.snapshot import HostSnapshot


def see_host(root: Path, runner: Runner, kinds: Iterable[str]) -> HostSnapshot:
    """Return the snapshot with the engines of ``kinds`` that answer, in that order.

    Args:
        root: ``/``, or where stand-in nodes lie.
        runner: starts the engines' programs.
        kinds: engines to ask.
    """
    answers = (ask_engine(runner, kind) for kind in kinds)
    around = Surroundings(
        environment=os.environ,
        uid=os.getuid(),
        groups=tuple(os.getgroups()),
        engines=tuple(Engine(**asdict(one)) for one in answers if one is not None),
    )
    return read_snapshot(root, around)


def plan_test(snapshot: HostSnapshot, image: str, command: tuple[str, ...]) -> RunPlan:
    """Return the plan of a container for tests: that of ``run``, without caches of earlier runs."""
    request = RunRequest(image, command, cache="", interactive=False, terminal=False)
    return plan_run(snapshot, request)


def spec_of(plan: RunPlan, timeout: float, labels: Iterable[tuple[str, str]]) -> RunSpec:
    """Return the plan as the engine's API takes it.

    Args:
        plan: for Docker.
        timeout: seconds after which the container is ended.
        labels: to find it again by.
    """
    security = plan.setting("security-opt")
    return RunSpec(
        image=plan.request.image,
        command=plan.request.command,
        timeout=timeout,
        cdi=tuple(one.value for one in plan.cdi),
        devices=tuple(f"{one.source}:{one.path}:rwm" for one in plan.devices),
        groups=tuple(group.gid for group in plan.groups),
        shm_size=plan.setting("shm-size"),
        security=(security,) if security else (),
        userns=plan.setting("userns"),
        mounts=tuple((one.source, one.path, one.read_only) for one in plan.mounts),
        environment=tuple((one.name, one.value) for one in plan.environment),
        labels=tuple(labels),
    )
