"""Which devices a container gets: CDI, nodes, or the paravirtual GPU of WSL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from builder.errors import Problem, RefusedError
from builder.host.run.model import CDI_NAME, Device, Setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from builder.host.run.model import RunRequest
    from builder.host.snapshot import DeviceNode, Engine, Gpu, HostSnapshot

# The first Docker that reads CDI specifications without a switch in its configuration. Source:
# release notes of Docker Engine 28.3.0. Podman reads them since 4.1.
_CDI_SINCE = {"docker": (28, 3), "podman": (4, 1)}
_CDI_TARGETS = ("docker", "podman", "compose", "devcontainer")
_DRI = "/dev/dri"
_KFD = "/dev/kfd"
_KFD_WHY = "the compute device: HIP opens it for reading and writing"


def cdi_devices(
    snapshot: HostSnapshot, engine: Engine | None, request: RunRequest
) -> tuple[Setting, ...]:
    """Return the CDI name, where a fresh specification is there and the engine reads it.

    Not for a choice of GPUs: a specification counts by its generator's order, and the choice is
    by KFD's.
    """
    if request.target not in _CDI_TARGETS or request.gpus is not None:
        return ()
    if not snapshot.cdi_specs or snapshot.cdi_stale is not False or not _reads_cdi(engine):
        return ()
    where = ", ".join(snapshot.cdi_specs)
    why = f"{where} names AMD's GPUs and is newer than the nodes"
    return (Setting("device", f"{CDI_NAME}=all", why),)


def cdi_notes(snapshot: HostSnapshot, request: RunRequest) -> tuple[Problem, ...]:
    """Return that a specification is there and no longer says what the host has."""
    if request.target not in _CDI_TARGETS or not snapshot.cdi_stale or not snapshot.cdi_specs:
        return ()
    problem = Problem(
        code="CDI_STALE",
        what="the CDI specification is older than the device nodes, so the nodes are passed",
        where=snapshot.cdi_specs[-1],
        fix="sudo amd-ctk cdi generate",
    )
    return (problem,)


def _reads_cdi(engine: Engine | None) -> bool:
    if engine is None or engine.version is None or engine.kind not in _CDI_SINCE:
        return True
    found = re.match(r"(\d+)\.(\d+)", engine.version)
    return found is None or (int(found[1]), int(found[2])) >= _CDI_SINCE[engine.kind]


def chosen_nodes(snapshot: HostSnapshot, gpus: tuple[int, ...] | None) -> tuple[DeviceNode, ...]:
    """Return kfd and the render nodes of the GPUs with these indices; of all for ``None``.

    Raises:
        RefusedError: ``GPU_UNKNOWN`` or ``RENDER_NODE_MISSING``.
    """
    if gpus is None:
        return snapshot.compute_nodes
    minors = {_minor(snapshot, index) for index in gpus}
    chosen = tuple(node for node in snapshot.render_nodes if node.render_minor in minors)
    return ((snapshot.kfd,) if snapshot.kfd else ()) + chosen


def _minor(snapshot: HostSnapshot, index: int) -> int:
    gpu = next((one for one in snapshot.gpus if one.index == index), None)
    if gpu is None:
        there = ", ".join(str(one.index) for one in snapshot.gpus) or "none"
        raise RefusedError(
            Problem(
                code="GPU_UNKNOWN",
                what=f"there is no GPU {index}: KFD's topology has {there}",
                where="/sys/class/kfd/kfd/topology/nodes",
                fix="choose by these numbers, which ROCR_VISIBLE_DEVICES counts by as well",
            )
        )
    if gpu.render_minor not in {node.render_minor for node in snapshot.render_nodes}:
        raise RefusedError(_missing(gpu))
    return gpu.render_minor or 0


def _missing(gpu: Gpu) -> Problem:
    node = f"/dev/dri/renderD{gpu.render_minor}" if gpu.render_minor else "no render node"
    return Problem(
        code="RENDER_NODE_MISSING",
        what=f"GPU {gpu.index} ({gpu.gfx or 'target unknown'}) has {node} in KFD's topology, and"
        " that is not there",
        where=f"/sys/class/kfd/kfd/topology/nodes/{gpu.node if gpu.node is not None else '?'}",
        why="some versions of ROCr stop at a GPU that they see and cannot open",
        fix="pass the whole of /dev/dri, and choose with ROCR_VISIBLE_DEVICES",
    )


def topology_notes(snapshot: HostSnapshot, gpus: tuple[int, ...] | None) -> tuple[Problem, ...]:
    """Return what KFD's topology and the nodes tell differently, for the GPUs that are passed."""
    if snapshot.is_wsl:
        return ()
    minors = {node.render_minor for node in snapshot.render_nodes}
    wanted = [gpu for gpu in snapshot.gpus if gpus is None or gpu.index in gpus]
    missing = [_missing(gpu) for gpu in wanted if gpu.render_minor not in minors]
    return (*missing, *_shared(snapshot, gpus))


def _shared(snapshot: HostSnapshot, gpus: tuple[int, ...] | None) -> Iterable[Problem]:
    if gpus is None:
        return
    chosen = {gpu.render_minor for gpu in snapshot.gpus if gpu.index in gpus}
    more = [gpu for gpu in snapshot.gpus if gpu.render_minor in chosen and gpu.index not in gpus]
    for gpu in more:
        yield Problem(
            code="RENDER_NODE_SHARED",
            what=f"GPU {gpu.index} comes along: it has the same render node"
            f" (renderD{gpu.render_minor}) as one that was chosen",
            fix="choose within the container, with ROCR_VISIBLE_DEVICES",
        )


def node_devices(
    nodes: Sequence[DeviceNode], request: RunRequest, *, one_by_one: bool
) -> tuple[Device, ...]:
    """Return kfd and the whole of ``/dev/dri``, or each render node where only some are wanted."""
    kfd = [Device(node.source or node.path, node.path, _KFD_WHY) for node in nodes if node.is_kfd]
    renders = [node for node in nodes if not node.is_kfd]
    folder = _folder(renders)
    if request.gpus is None and not one_by_one and folder is not None:
        why = "all render nodes: HIP opens that of each GPU in KFD's topology"
        return (*kfd, Device(folder, _DRI, why))
    why = "render node of a GPU" if request.gpus is None else "render node of a GPU that was chosen"
    return (*kfd, *(Device(node.source or node.path, node.path, why) for node in renders))


def _folder(renders: Sequence[DeviceNode]) -> str | None:
    """Return the one folder of the host that all render nodes are in."""
    folders = {(node.source or node.path).rpartition("/")[0] for node in renders}
    return folders.pop() if len(folders) == 1 else None


def dxg_devices(snapshot: HostSnapshot) -> tuple[Device, ...]:
    """Return the device of WSL 2, which has no kfd."""
    node = snapshot.dxg
    if node is None:
        return ()
    why = "the GPU of WSL 2: its kernel has no /dev/kfd"
    return (Device(node.source or node.path, node.path, why),)


def elsewhere_devices() -> tuple[Device, ...]:
    """Return the devices of a node that is not this host: a job starts where the GPUs are."""
    return (
        Device(_KFD, _KFD, _KFD_WHY),
        Device(_DRI, _DRI, "all render nodes of the node that the job runs on"),
    )


def no_gpu(snapshot: HostSnapshot) -> Problem:
    """Return why a container on this host would have no GPU."""
    wants = "/dev/dxg" if snapshot.is_wsl else "/dev/kfd with a render node below /dev/dri"
    there = ", ".join(node.path for node in snapshot.nodes) or "none of its nodes"
    return Problem(
        code="NO_GPU_NODE",
        what=f"this host has no GPU to pass on: it needs {wants}, and has {there}",
        fix="rocm-torch run --print TARGET --host-state FILE prints the line for another host",
    )
