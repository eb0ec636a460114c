"""Gathers what a snapshot cannot read from files: programs, engines, user database, kernel log.

All of it is asked at once and with time limits: a program that waits in a broken driver must not
make the doctor wait.
"""

from __future__ import annotations

import json
import os
import pwd
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from builder.engines.local import KINDS, ask_engine
from builder.engines.process import Command
from builder.errors import CouldNotError
from builder.host.snapshot import Engine, ToolOutput
from builder.host.snapshot.read import Surroundings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from builder.engines.process import Runner

_TOOL_SECONDS = 10.0
_ENGINE_SECONDS = 5.0
_MOST = 20_000
_TIMED_OUT = 124
_TOOLS: Mapping[str, tuple[str, ...]] = {
    "amd-smi": ("amd-smi", "list"),
    "rocm-smi": ("rocm-smi", "--showbus"),
    "rocminfo": ("rocminfo",),
}
_CONCERNS = re.compile(
    r"amdgpu|kfd|\[drm|apparmor=\"DENIED\"|avc: +denied|key was rejected", re.IGNORECASE
)
_KERNEL_LINES = 200


def surroundings(
    runner: Runner, environment: Mapping[str, str], root: Path, *, told: str | None = None
) -> Surroundings:
    """Ask programs, engines and the user database about the caller and this machine.

    Args:
        runner: starts programs.
        environment: of the caller.
        root: where to look for nodes first: without any, GPU tools have nothing to tell and are
            not started; programs look at the real machine, so none runs for another root.
        told: a message that the user asks about.
    """
    real = root.resolve().as_posix() == "/"
    tools: tuple[ToolOutput, ...] = ()
    engines: tuple[Engine, ...] = ()
    log: tuple[str, ...] = ()
    if real:
        names = tuple(_TOOLS) if _has_nodes(root) else ()
        with ThreadPoolExecutor(max_workers=8) as pool:
            jobs = [pool.submit(_tool, runner, name) for name in names]
            docker, podman = (pool.submit(_engine, runner, kind) for kind in KINDS)
            apptainer, kernel = pool.submit(_apptainer, runner), pool.submit(_dmesg, runner)
            tools = tuple(job.result() for job in jobs)
            found = (docker.result(), podman.result(), apptainer.result())
            engines = tuple(engine for engine in found if engine)
            log = kernel.result()
    if told:
        tools = (*tools, ToolOutput("error", 1, stderr=told[:_MOST]))
    return Surroundings(
        environment=environment,
        uid=os.getuid(),
        groups=tuple({os.getegid(), *os.getgroups()}),
        db_groups=database_groups(os.getuid()),
        engines=engines,
        tools=tools,
        dmesg=log,
    )


def database_groups(uid: int) -> tuple[int, ...] | None:
    """Return the groups that the user database gives a user; ``None`` where it knows none."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return None
    return tuple(sorted(set(os.getgrouplist(entry.pw_name, entry.pw_gid))))


def image_configuration(
    runner: Runner, engine: str, reference: str
) -> tuple[Mapping[str, str], str, int | None] | None:
    """Return labels, user and unpacked size of an image that an engine has, without running it.

    Args:
        runner: starts the engine's program.
        engine: ``docker`` or ``podman``.
        reference: of the image; a word that starts with ``-`` is no reference.
    """
    argv = (engine, "image", "inspect", "--", reference)
    found = _json(runner, argv, _ENGINE_SECONDS)
    image = found[0] if isinstance(found, list) and found else None
    if not isinstance(image, dict):
        return None
    config = image.get("Config") or {}
    size = image.get("Size")
    return (
        {str(k): str(v) for k, v in (config.get("Labels") or {}).items()},
        str(config.get("User") or ""),
        size if isinstance(size, int) else None,
    )


def _has_nodes(root: Path) -> bool:
    return any((root / name).exists() for name in ("dev/kfd", "dev/dxg", "sys/class/kfd"))


def _tool(runner: Runner, name: str) -> ToolOutput:
    try:
        done = runner.run(Command(_TOOLS[name], timeout=_TOOL_SECONDS))
    except CouldNotError as error:
        late = any(problem.code == "TOOL_TIMEOUT" for problem in error.problems)
        return ToolOutput(name, _TIMED_OUT if late else None)
    return ToolOutput(name, done.returncode, done.stdout[:_MOST], done.stderr[:_MOST])


def _said(runner: Runner, argv: tuple[str, ...], seconds: float) -> str | None:
    try:
        done = runner.run(Command(argv, timeout=seconds))
    except CouldNotError:
        return None
    return done.stdout if done.returncode == 0 else None


def _json(runner: Runner, argv: tuple[str, ...], seconds: float) -> Any:
    try:
        return json.loads(_said(runner, argv, seconds) or "null")
    except ValueError:
        return None


def _engine(runner: Runner, kind: str) -> Engine | None:
    found = ask_engine(runner, kind, seconds=_ENGINE_SECONDS)
    return Engine(**asdict(found)) if found else None


def _apptainer(runner: Runner) -> Engine | None:
    said = _said(runner, ("apptainer", "--version"), _ENGINE_SECONDS)
    return Engine("apptainer", version=said.split()[-1]) if said and said.split() else None


def _dmesg(runner: Runner) -> tuple[str, ...]:
    """Return what concerns GPUs in the kernel log, where the caller may read it."""
    said = _said(runner, ("dmesg",), _ENGINE_SECONDS) or ""
    return tuple(line for line in said.splitlines() if _CONCERNS.search(line))[-_KERNEL_LINES:]
