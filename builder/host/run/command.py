"""A plan as the command line of docker or podman, and as what a devcontainer hands to Docker."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from builder.host.run.model import Reason, Rendered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from builder.host.run.model import RunPlan


def render_command(plan: RunPlan) -> Rendered:
    """Return the line for ``docker run`` or ``podman run``."""
    request = plan.request
    head = [request.target, "run", "--rm"]
    reasons = [Reason("--rm", "the container goes when it ends; caches have their volume")]
    flags = ("i" if request.interactive else "") + ("t" if request.terminal else "")
    if flags:
        head.append(f"-{flags}")
        reasons.append(Reason(f"-{flags}", "standard input" + (", a terminal" * request.terminal)))
    arguments = tuple(engine_arguments(plan))
    argv = (*head, *(one.argument for one in arguments), request.image, *request.command)
    return Rendered(
        target=request.target,
        text=shlex.join(argv) + "\n",
        argv=argv,
        reasons=(*reasons, *arguments),
    )


def engine_arguments(plan: RunPlan) -> Iterator[Reason]:
    """Yield the arguments that docker and podman share, in a fixed order, each one word."""
    for cdi in plan.cdi:
        yield Reason(f"--device={cdi.value}", cdi.why)
    for device in plan.devices:
        yield Reason(f"--device={device.mapping}", device.why)
    if plan.keep_groups:
        yield Reason(f"--group-add={plan.keep_groups.value}", plan.keep_groups.why)
    for group in plan.groups:
        yield Reason(f"--group-add={group.gid}", group.why)
    for setting in plan.settings:
        yield Reason(f"--{setting.name}={setting.value}", setting.why)
    for mount in plan.mounts:
        mode = ":ro" if mount.read_only else _relabel(plan, mount.source)
        yield Reason(f"--volume={mount.source}:{mount.path}{mode}", mount.why)
    for variable in plan.environment:
        yield Reason(f"--env={variable.name}={variable.value}", variable.why)


def _relabel(plan: RunPlan, source: str) -> str:
    """Return what lets containers use a folder of the host, where SELinux looks."""
    return ":z" if plan.relabel and source.startswith("/") else ""


def render_devcontainer(plan: RunPlan) -> Rendered:
    """Return a ``devcontainer.json``."""
    arguments = tuple(engine_arguments(plan))
    document: dict[str, object] = {
        "name": "rocm-torch",
        "image": plan.request.image,
        "runArgs": [one.argument for one in arguments],
    }
    if plan.request.command:
        document["postAttachCommand"] = list(plan.request.command)
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    return Rendered("devcontainer", text, reasons=arguments)


def shell_lines(commands: Sequence[tuple[str, ...]]) -> str:
    """Return commands as lines of a shell."""
    return "".join(shlex.join(command) + "\n" for command in commands)
