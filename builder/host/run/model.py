"""What a run is asked to be, and what it becomes: values, each part with the reason for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from builder.errors import Problem

Target = Literal["docker", "podman", "apptainer", "compose", "kubernetes", "slurm", "devcontainer"]
TARGETS: tuple[Target, ...] = get_args(Target)
EngineKind = Literal["docker", "podman"]

SHM_SIZE = "16g"
# The user of the images, and the folder of its home that a volume keeps: the image has it, owned
# by that user, so that a new volume takes its owner from there.
IMAGE_UID = 1000
CACHE_FOLDER = "/home/rocm/.cache"
CDI_NAME = "amd.com/gpu"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the caller wants.

    Attributes:
        image: reference, or a ``.sif`` file for Apptainer.
        command: words to run in it; empty for what the image starts by itself.
        target: what the plan is for.
        gpus: indices of KFD's topology, which ``ROCR_VISIBLE_DEVICES`` counts by; ``None`` for all.
        rdma: pass ``/dev/infiniband`` and lift the limit on locked memory.
        shm_size: size of ``/dev/shm`` as the engines write it, such as ``16g``.
        ipc_host: share the host's ``/dev/shm`` and its other IPC instead.
        user: ``UID[:GID]`` or a name, instead of the image's user.
        groups: further groups, as names of the host or numbers.
        cache: a volume's name or an absolute folder for caches; ``""`` for none, ``None`` for a
            volume that is the caller's own.
        mounts: further folders and volumes.
        environment: variables to set; those without a value are left out.
        interactive: keep standard input open.
        terminal: give it a terminal.
        host_libraries: Apptainer's ``--rocm`` instead of plain binds of the devices.
        fabric: ``cxi`` (Slingshot) or ``verbs`` for jobs over several nodes.
        fabric_plugin: folder of the site that holds RCCL's network plugin.
        nodes: how many nodes a Slurm job takes.
        scratch: node-local folder for the work and caches of a job.
    """

    image: str
    command: tuple[str, ...] = ()
    target: Target = "docker"
    gpus: tuple[int, ...] | None = None
    rdma: bool = False
    shm_size: str = SHM_SIZE
    ipc_host: bool = False
    user: str | None = None
    groups: tuple[str, ...] = ()
    cache: str | None = None
    mounts: tuple[Mount, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    interactive: bool = True
    terminal: bool = True
    host_libraries: bool = False
    fabric: Literal["cxi", "verbs"] | None = None
    fabric_plugin: str | None = None
    nodes: int = 1
    scratch: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """A device node, or a folder of them: where it is on the host and in the container."""

    source: str
    path: str
    why: str

    @property
    def mapping(self) -> str:
        """Return ``path``, or ``source:path:rwm`` where the two differ."""
        return self.path if self.source == self.path else f"{self.source}:{self.path}:rwm"


@dataclass(frozen=True, slots=True)
class Group:
    """A supplementary group by its number on the host."""

    gid: int
    why: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A named volume, or a file or folder of the host."""

    source: str
    path: str
    why: str
    read_only: bool = False

    @property
    def is_volume(self) -> bool:
        """Tell whether the engine keeps it under a name, and it is no path of the host."""
        return not self.source.startswith("/")


@dataclass(frozen=True, slots=True)
class Setting:
    """An option with its value: ``shm-size``, ``ipc``, ``user``, ``security-opt``, ..."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Reason:
    """An argument as it is written, and why it is there."""

    argument: str
    why: str


@dataclass(frozen=True, slots=True)
class RunPlan:
    """How a container gets at this host's GPUs. There is no place for a privileged one in it.

    Attributes:
        request: what was asked for.
        cdi: name of the devices in the CDI specification, instead of nodes.
        devices: nodes and folders of nodes.
        groups: one per distinct group of the nodes, ascending, and those that were asked for.
        keep_groups: the caller's groups are kept as they are, in place of numbers.
        settings: further options.
        mounts: volumes and binds.
        environment: variables.
        gpu_count: how many GPUs it gets; ``None`` where the topology is not known.
        uid: number of the caller on the host.
        relabel: SELinux looks at folders of the host that are mounted.
        notes: what the caller should know: what is not as it should be, and what to do.
    """

    request: RunRequest
    cdi: tuple[Setting, ...] = ()
    devices: tuple[Device, ...] = ()
    groups: tuple[Group, ...] = ()
    keep_groups: Setting | None = None
    settings: tuple[Setting, ...] = ()
    mounts: tuple[Mount, ...] = ()
    environment: tuple[Setting, ...] = ()
    gpu_count: int | None = None
    uid: int = 0
    relabel: bool = False
    notes: tuple[Problem, ...] = ()

    @property
    def has_gpu(self) -> bool:
        """Tell whether the container gets a device of a GPU."""
        return bool(self.cdi or self.devices)

    def setting(self, name: str) -> str | None:
        """Return the value of a setting; ``None`` where it is not set."""
        return next((one.value for one in self.settings if one.name == name), None)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A plan as its target reads it.

    Attributes:
        target: which one.
        text: what to print or to save, with its last newline.
        argv: the command, where the target is one.
        before: commands that have to run before it.
        reasons: why each argument or key is there.
    """

    target: Target
    text: str
    argv: tuple[str, ...] = ()
    before: tuple[tuple[str, ...], ...] = ()
    reasons: tuple[Reason, ...] = ()
