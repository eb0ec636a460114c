"""Command run: start an image with this host's GPUs, or print how."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from builder.cli.common import Json, answer
from builder.errors import BadCallError, CouldNotError, Problem, RefusedError
from builder.host.run import SHM_SIZE, TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.host.run import Rendered, RunPlan, Target
    from builder.host.run.model import Mount
    from builder.host.snapshot import HostSnapshot

SCHEMA = "rocm-torch/run/v1"
_ENGINES = ("docker", "podman")
# Their jobs run on another machine: that this one has no GPU says nothing.
_ELSEWHERE = ("kubernetes", "slurm")


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(
        epilog="Example: rocm-torch run --gpu 0,2 ourorg/rocm-torch:cpu -- python train.py",
    )(run)


def run(
    image: Annotated[str, typer.Argument(help="Image reference, or a .sif file for Apptainer.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- CMD]...", help="What to run in it.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--print", help=f"Only print it, for: {', '.join(TARGETS)}.")
    ] = None,
    explain: Annotated[bool, typer.Option(help="Say why each argument is there.")] = False,
    gpu: Annotated[
        str | None, typer.Option(help="GPUs by their index in KFD's topology: 0,2.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="docker or podman; the first that is installed by default.")
    ] = None,
    rdma: Annotated[bool, typer.Option(help="Pass /dev/infiniband, allow locked memory.")] = False,
    shm_size: Annotated[str, typer.Option(help="Size of /dev/shm.")] = SHM_SIZE,
    ipc_host: Annotated[bool, typer.Option(help="The host's /dev/shm and IPC instead.")] = False,
    user: Annotated[
        str | None, typer.Option(help="UID[:GID] or name instead of the image's user.")
    ] = None,
    group_add: Annotated[
        list[str] | None, typer.Option(help="A further group: its number, or its name on the host.")
    ] = None,
    cache: Annotated[
        str | None, typer.Option(help="Volume or folder for caches; 'none' for no such thing.")
    ] = None,
    volume: Annotated[
        list[str] | None, typer.Option(help="A further folder or volume: SOURCE:PATH[:ro].")
    ] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE.")] = None,
    host_libraries: Annotated[
        bool, typer.Option(help="Apptainer: --rocm, with the host's libraries, not plain binds.")
    ] = False,
    nodes: Annotated[int, typer.Option(min=1, help="Slurm: nodes of the job.")] = 1,
    fabric: Annotated[str | None, typer.Option(help="Slurm: cxi (Slingshot) or verbs.")] = None,
    fabric_plugin: Annotated[
        str | None, typer.Option(help="Slurm: the site's folder with librccl-net.so.")
    ] = None,
    scratch: Annotated[
        str | None, typer.Option(help="Apptainer, Slurm: node-local folder for work and caches.")
    ] = None,
    host_state: Annotated[
        str | None, typer.Option(help="Plan for the host of this saved state; with --print.")
    ] = None,
    device_root: Annotated[
        str,
        typer.Option(help="Root below which /dev is looked at (for tests with stand-in nodes)."),
    ] = "/",
    as_json: Json = False,
) -> None:
    """Start an image with the GPUs of this host, or print how with --print."""
    from builder.host.run import RunRequest, no_gpu, plan_run, render_plan

    _check(target, engine, fabric, host_state)
    _check_sif(image, target)
    kind = _target(target, engine)
    snapshot = _snapshot(host_state, device_root, kind)
    request = RunRequest(
        image=image,
        command=tuple(command or ()),
        target=kind,
        gpus=_indices(gpu),
        rdma=rdma,
        shm_size=shm_size,
        ipc_host=ipc_host,
        user=user,
        groups=tuple(_group(name, snapshot, live=host_state is None) for name in group_add or ()),
        cache="" if cache == "none" else cache,
        mounts=tuple(_mount(text) for text in volume or ()),
        environment=tuple(_variable(text) for text in env or ()),
        interactive=target is None or not command,
        terminal=_wants_terminal(target, command),
        host_libraries=host_libraries,
        nodes=nodes,
        fabric=cast("Any", fabric),
        fabric_plugin=fabric_plugin,
        scratch=scratch,
    )
    plan = plan_run(snapshot, request)
    if not plan.has_gpu and kind not in _ELSEWHERE:
        raise RefusedError(no_gpu(snapshot))
    rendered = render_plan(plan)
    _show(plan, rendered, explain=explain, as_json=as_json, printed=target is not None)
    if target is None and not as_json and not explain:
        _start(rendered)


def _wants_terminal(target: str | None, command: Sequence[str] | None) -> bool:
    """Tell whether a terminal is given: printed lines with a command run in scripts too."""
    if target is not None:
        return not command
    return sys.stdin.isatty() and sys.stdout.isatty()


def _check(
    target: str | None, engine: str | None, fabric: str | None, host_state: str | None
) -> None:
    for value, known, option in (
        (target, TARGETS, "--print"),
        (engine, _ENGINES, "--engine"),
        (fabric, ("cxi", "verbs"), "--fabric"),
    ):
        if value is not None and value not in known:
            what = f"{option} takes {', '.join(known)}, not {value!r}"
            raise BadCallError(Problem("BAD_CALL", what))
    if target is not None and engine is not None:
        what = "--engine says what starts the container, and --print starts none"
        raise BadCallError(Problem("BAD_CALL", what, fix="give one of the two"))
    if host_state is not None and target is None:
        what = "--host-state plans for another host, where this program cannot start anything"
        raise BadCallError(Problem("BAD_CALL", what, fix="add --print TARGET"))


def _check_sif(image: str, target: str | None) -> None:
    """Raise where a SIF is to be run by what cannot read one."""
    if image.endswith(".sif") and target not in ("apptainer", "slurm"):
        what = f"{image} is a SIF, which Apptainer runs, and no container engine"
        fix = f"rocm-torch run --print apptainer {image}"
        raise BadCallError(Problem("SIF_NEEDS_APPTAINER", what, fix=fix))


def _target(target: str | None, engine: str | None) -> Target:
    from builder.engines.local import installed

    there = installed()
    if target is None and engine is None and not there:
        raise CouldNotError(
            Problem(
                code="NO_ENGINE",
                what="neither docker nor podman is on the path",
                fix="install one, or print the line: rocm-torch run --print docker IMAGE",
            )
        )
    return cast("Target", target or engine or there[0])


def _snapshot(host_state: str | None, device_root: str, kind: Target) -> HostSnapshot:
    from pathlib import Path

    if host_state is not None:
        return _saved(Path(host_state))
    from builder.engines.process import ProcessRunner
    from builder.pipeline.this_host import see_host

    asked = {"podman": ("podman",), "apptainer": (), "slurm": (), "kubernetes": ()}
    return see_host(Path(device_root), ProcessRunner(), asked.get(kind, ("docker",)))


def _saved(path: Any) -> HostSnapshot:
    import json

    from builder.host.snapshot import from_document

    try:
        return from_document(json.loads(path.read_text("utf-8")))
    except OSError as error:
        problem = Problem("BAD_HOST_STATE", f"cannot be read: {error.strerror}", where=str(path))
    except (ValueError, AttributeError) as error:
        problem = Problem("BAD_HOST_STATE", f"is no saved host state: {error}", where=str(path))
    raise BadCallError(problem)


def _indices(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        what = f"--gpu takes indices with commas between them, not {text!r}"
        raise BadCallError(Problem("BAD_CALL", what, fix="--gpu 0,2"))
    return tuple(sorted({int(part) for part in parts}))


def _group(name: str, snapshot: HostSnapshot, *, live: bool) -> str:
    """Return the number of a group that the snapshot does not have and this host does."""
    import grp

    if live and name not in snapshot.groups and not name.isdecimal():
        try:
            return str(grp.getgrnam(name).gr_gid)
        except KeyError:
            return name  # the plan says that there is none
    return name


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier()):
        raise BadCallError(Problem("BAD_CALL", f"--env takes NAME=VALUE, not {text!r}"))
    return name, value


def _mount(text: str) -> Mount:
    from builder.host.run.model import Mount

    source, _, rest = text.partition(":")
    path, _, mode = rest.partition(":")
    if not source or not path.startswith("/") or mode not in ("", "ro"):
        raise BadCallError(Problem("BAD_CALL", f"--volume takes SOURCE:PATH[:ro], not {text!r}"))
    return Mount(source, path, "--volume", read_only=mode == "ro")


def _show(
    plan: RunPlan, rendered: Rendered, *, explain: bool, as_json: bool, printed: bool
) -> None:
    document = {
        "schema": SCHEMA,
        "target": rendered.target,
        "text": rendered.text,
        "argv": list(rendered.argv),
        "before": [list(words) for words in rendered.before],
        "reasons": [{"argument": one.argument, "why": one.why} for one in rendered.reasons],
        "notes": [note.to_json() for note in plan.notes],
    }

    def tell() -> None:
        # Notes and reasons beside the text, so that it can be saved or piped as it is.
        for note in plan.notes:
            typer.echo(f"note: {note}", err=True)
        if printed or explain:
            typer.echo(rendered.text, nl=False)
        if explain:
            width = min(48, max((len(one.argument) for one in rendered.reasons), default=0))
            for one in rendered.reasons:
                typer.echo(f"  {one.argument:<{width}}  {one.why}", err=printed)

    answer(document, as_json=as_json, text=tell)


def _start(rendered: Rendered) -> None:
    """Become the engine: signals, terminal and exit status are the container's from here on."""
    program = shutil.which(rendered.argv[0])
    if program is None:
        what = f"{rendered.argv[0]} is not on the path"
        raise CouldNotError(Problem("TOOL_MISSING", what, fix="install it, or choose --engine"))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, rendered.argv)  # noqa: S606 - no shell: a list of words
