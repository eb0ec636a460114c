"""From a snapshot of the host and a request to the arguments of a container: the one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.errors import BadCallError, Problem
from builder.host.run.access import access_notes, planned_groups, security_settings
from builder.host.run.devices import (
    cdi_devices,
    cdi_notes,
    chosen_nodes,
    dxg_devices,
    elsewhere_devices,
    node_devices,
    topology_notes,
)
from builder.host.run.model import (
    CACHE_FOLDER,
    IMAGE_UID,
    Device,
    Mount,
    RunPlan,
    RunRequest,
    Setting,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.host.snapshot import Engine, HostSnapshot

_WSL = "/usr/lib/wsl"
_DXCORE = f"{_WSL}/lib/libdxcore.so"
_DXG_LIBRARY = "/opt/rocm/lib/librocdxg.so"
_INFINIBAND = "/dev/infiniband"
_LOST = "caches are lost with the container"


def plan_run(snapshot: HostSnapshot, request: RunRequest) -> RunPlan:
    """Return the plan of a container on the host of ``snapshot``; one without GPU has no devices.

    Raises:
        RefusedError: a GPU was chosen that is not there.
        BadCallError: a group was named that this host does not have.
    """
    engine = engine_for(snapshot, request)
    wsl = snapshot.is_wsl or (snapshot.dxg is not None and snapshot.kfd is None)
    nodes = () if wsl else chosen_nodes(snapshot, request.gpus)
    whole = wsl or (snapshot.kfd is not None and bool(snapshot.render_nodes))
    cdi = cdi_devices(snapshot, engine, request) if nodes and whole else ()
    devices: tuple[Device, ...] = ()
    if wsl:
        devices = dxg_devices(snapshot)
    elif whole and not cdi:
        devices = node_devices(nodes, request, one_by_one=request.target == "podman")
    elif request.target == "slurm":
        devices = elsewhere_devices()
    groups, keep = planned_groups(snapshot, engine, request, nodes if cdi or devices else ())
    cache, cache_notes = _cache(snapshot, request)
    settings = (*_settings(request), *security_settings(snapshot, engine, request))
    return RunPlan(
        request=request,
        cdi=cdi,
        devices=(*devices, *_rdma_devices(snapshot, request)),
        groups=groups,
        keep_groups=keep,
        settings=settings,
        mounts=(*(_wsl_mounts(snapshot) if wsl and devices else ()), *cache, *request.mounts),
        environment=tuple(_environment(snapshot, request, wsl=wsl and bool(devices))),
        gpu_count=_count(snapshot, request),
        uid=snapshot.uid,
        relabel=snapshot.selinux == "Enforcing" and "security-opt" not in _names(settings),
        notes=(
            *topology_notes(snapshot, request.gpus),
            *cdi_notes(snapshot, request),
            *access_notes(snapshot, engine, request, nodes),
            *_wsl_notes(snapshot, request, wsl=wsl),
            *cache_notes,
            *_target_notes(request, has_nodes=bool(nodes)),
            *_fabric_notes(request),
        ),
    )


def engine_for(snapshot: HostSnapshot, request: RunRequest) -> Engine | None:
    """Return the engine of the host that runs the target; ``None`` where it is not known."""
    kind = {"compose": "docker", "devcontainer": "docker", "slurm": "apptainer"}.get(
        request.target, request.target
    )
    return next((one for one in snapshot.engines if one.kind == kind), None)


def _names(settings: tuple[Setting, ...]) -> set[str]:
    return {one.name for one in settings}


def _count(snapshot: HostSnapshot, request: RunRequest) -> int | None:
    return len(request.gpus) if request.gpus is not None else len(snapshot.gpus) or None


def _rdma_devices(snapshot: HostSnapshot, request: RunRequest) -> tuple[Device, ...]:
    if not request.rdma:
        return ()
    if snapshot.files.get(_INFINIBAND) is False:
        raise BadCallError(
            Problem(
                code="NO_RDMA",
                what="--rdma was given, and this host has no /dev/infiniband",
                fix="leave --rdma away, or load the driver of the network card (ib_uverbs)",
            )
        )
    return (Device(_INFINIBAND, _INFINIBAND, "--rdma: the verbs of the network cards"),)


def _settings(request: RunRequest) -> Iterator[Setting]:
    if request.ipc_host:
        yield Setting("ipc", "host", "--ipc-host: the host's /dev/shm, for processes outside")
    else:
        why = "workers of a DataLoader and RCCL share memory; engines give 64 MB by themselves"
        yield Setting("shm-size", request.shm_size, why)
    if request.rdma:
        why = "--rdma: network cards read memory that is locked"
        yield Setting("ulimit", "memlock=-1", why)
    if request.user is not None:
        numbers = request.user.replace(":", "", 1)
        if request.target == "kubernetes" and not numbers.isdecimal():
            what = f"Kubernetes takes a user by number (runAsUser), not {request.user!r}"
            raise BadCallError(Problem("USER_NOT_A_NUMBER", what, fix="--user UID[:GID]"))
        yield Setting("user", request.user, "--user: instead of the image's user")


def _cache(
    snapshot: HostSnapshot, request: RunRequest
) -> tuple[tuple[Mount, ...], tuple[Problem, ...]]:
    """Return where caches outlive the container, and what hinders that."""
    if request.cache == "" or request.target in ("apptainer", "slurm"):
        return (), ()
    if request.cache is not None and request.cache.startswith("/"):
        why = "--cache: compiled kernels and models outlive the container"
        return (Mount(request.cache, CACHE_FOLDER, why),), ()
    if request.user is not None and request.user.split(":")[0] not in (str(IMAGE_UID), "rocm"):
        problem = Problem(
            code="CACHE_NOT_KEPT",
            what=f"{_LOST}: a new volume belongs to the image's user {IMAGE_UID}, and"
            f" the container runs as {request.user}",
            fix="--cache FOLDER, with a folder that belongs to that user and only it can write to",
        )
        return (), (problem,)
    name = request.cache or f"rocm-torch-cache-{snapshot.uid}"
    why = (
        "compiled kernels and models outlive the container; one volume per user of the host, since"
        " who can write kernels runs code as the one who loads them"
    )
    return (Mount(name, CACHE_FOLDER, why),), ()


def _wsl_mounts(snapshot: HostSnapshot) -> Iterator[Mount]:
    yield Mount(_WSL, _WSL, "Windows' part of the driver, which /dev/dxg needs", read_only=True)
    why = "where ROCm looks for DXCore"
    yield Mount(_DXCORE, "/usr/lib/libdxcore.so", why, read_only=True)
    if snapshot.files.get(_DXG_LIBRARY):
        why = "ROCr's way to /dev/dxg, as this WSL has it"
        yield Mount(_DXG_LIBRARY, _DXG_LIBRARY, why, read_only=True)


def _environment(snapshot: HostSnapshot, request: RunRequest, *, wsl: bool) -> Iterator[Setting]:
    given = {name: value for name, value in request.environment if value}
    if request.cache and request.cache.startswith("/") and "ROCM_TORCH_CACHE_DIR" not in given:
        why = "--cache: the folder itself, whatever home the user has"
        yield Setting("ROCM_TORCH_CACHE_DIR", CACHE_FOLDER, why)
    if wsl and snapshot.files.get(_DXG_LIBRARY) and "HSA_ENABLE_DXG_DETECTION" not in given:
        why = "ROCr looks for /dev/dxg; since ROCm 10.1 it does so by itself"
        yield Setting("HSA_ENABLE_DXG_DETECTION", "1", why)
    for name, value in given.items():
        yield Setting(name, value, "--env")


def _wsl_notes(snapshot: HostSnapshot, request: RunRequest, *, wsl: bool) -> Iterator[Problem]:
    if not wsl or snapshot.dxg is None:
        return
    if snapshot.files.get(_DXG_LIBRARY) is False:
        yield Problem(
            code="WSL_DXG",
            what="the GPU of WSL is /dev/dxg, and librocdxg is not in /opt/rocm/lib here",
            why="images with ROCm 10.1 and later bring it; earlier ones need the host's",
            fix="install librocdxg in this WSL, or use an image with ROCm 10.1 or later",
        )
    if request.target == "kubernetes":
        yield Problem("WSL_DXG", "AMD's device plugin for Kubernetes knows no /dev/dxg")
    if request.gpus is not None:
        what = "--gpu chooses nothing here: all GPUs of WSL are behind the one /dev/dxg"
        yield Problem("WSL_DXG", what, fix="choose within the container, with HIP_VISIBLE_DEVICES")


def _target_notes(request: RunRequest, *, has_nodes: bool) -> Iterator[Problem]:
    """Yield what a target cannot be told, or what only another machine knows."""
    if request.target == "kubernetes":
        if not has_nodes:
            yield Problem(
                code="GROUPS_UNKNOWN",
                what="supplementalGroups is not set: this host has no GPU nodes to take numbers of",
                fix="save the state of a node of the pool, and give it as --host-state FILE",
            )
        if request.gpus is not None:
            yield Problem(
                "GPU_NOT_CHOSEN", "AMD's device plugin chooses the GPUs; --gpu says how many"
            )
        if request.rdma:
            what = "--rdma: a pod gets network cards and locked memory from the cluster's plugin"
            yield Problem("RDMA_BY_PLUGIN", what, fix="add the resource that your plugin offers")
        if (request.cache or "").startswith("/"):
            what = f"{_LOST}: a pod does not get the folder {request.cache} of its node"
            yield Problem(
                "CACHE_NOT_KEPT", what, fix="--cache NAME, with the name of a volume claim"
            )
    if request.target in ("apptainer", "slurm") and request.user is not None:
        what = f"Apptainer runs as its caller: --user {request.user} does nothing"
        yield Problem("USER_NOT_SET", what)


def _fabric_notes(request: RunRequest) -> Iterator[Problem]:
    if request.target != "slurm" or request.fabric != "cxi" or request.fabric_plugin:
        return
    yield Problem(
        code="RCCL_TCP_FALLBACK",
        what="no network plugin of the site was named: RCCL goes over TCP (NET/Socket) where the"
        " image has no librccl-net.so for cxi",
        why="it says nothing and is a fraction as fast; NCCL_DEBUG=INFO shows the provider",
        fix="--fabric-plugin FOLDER, with the site's build of aws-ofi-rccl",
    )
