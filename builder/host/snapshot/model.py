"""The values of a snapshot. What could not be found out is ``None``, never a guess."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class DeviceNode:
    """A character device of the GPU path.

    Attributes:
        path: the path that programs know, such as ``/dev/kfd``.
        source: where it was found; differs from ``path`` under another root.
        uid: owner of the node.
        gid: owning group; the number that ``--group-add`` needs.
        mode: permission bits.
        open_errno: what opening it for reading and writing gave (``EACCES``); ``""`` where it
            opened, ``None`` where it was not tried.
    """

    path: str
    source: str = ""
    uid: int = 0
    gid: int = 0
    mode: int = 0o660
    open_errno: str | None = None

    @property
    def is_kfd(self) -> bool:
        """Tell whether it is the compute device."""
        return self.path == "/dev/kfd"

    @property
    def render_minor(self) -> int | None:
        """Return the number of a render node; ``None`` for other nodes."""
        name = self.path.rpartition("/")[2]
        number = name[len("renderD") :] if name.startswith("renderD") else ""
        return int(number) if number.isdecimal() else None


@dataclass(frozen=True)
class Gpu:
    """A GPU as the kernel describes it: KFD topology, DRM class and PCI.

    Attributes:
        index: its place among the GPU nodes of the topology, from zero: the index that
            ``ROCR_VISIBLE_DEVICES`` counts by.
        node: number of the topology node.
        gfx: target, such as ``gfx1100``.
        render_minor: number of its render node.
        uuid: ``GPU-`` and sixteen hexadecimal digits; ``None`` where the device has none.
        pci: address ``0000:83:00.0``.
        pci_id: vendor and device, ``1002:744c``.
        vram_mib: local memory in MiB.
        integrated: whether it is part of the CPU and shares its memory.
        link_width: PCI lanes in use.
        link_width_max: PCI lanes that the device has.
        performance_level: ``auto``, ``low``, ``manual``... of amdgpu.
        name: marketing name, where a tool told it.
    """

    index: int
    gfx: str | None = None
    node: int | None = None
    render_minor: int | None = None
    uuid: str | None = None
    pci: str | None = None
    pci_id: str | None = None
    vram_mib: int | None = None
    integrated: bool | None = None
    link_width: int | None = None
    link_width_max: int | None = None
    performance_level: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Engine:
    """A container engine of the host, and how it runs.

    Attributes:
        kind: ``docker``, ``podman``, ``apptainer``.
        rootless: whether it runs without root.
        version: as it says.
        runtime: the OCI runtime, ``runc`` or ``crun``.
        user_namespaces: whether containers get a user namespace by default.
        desktop: whether it is Docker Desktop, whose containers run in a virtual machine.
        api: newest version of its API, and ``min_api`` the oldest that it takes.
    """

    kind: str
    rootless: bool = False
    version: str | None = None
    runtime: str | None = None
    user_namespaces: bool = False
    desktop: bool = False
    api: str | None = None
    min_api: str | None = None


@dataclass(frozen=True)
class Place:
    """A file system place: bytes and inodes that are free, its type, whether it can be written."""

    path: str
    free_bytes: int | None = None
    total_bytes: int | None = None
    free_inodes: int | None = None
    filesystem: str | None = None
    writable: bool | None = None


@dataclass(frozen=True)
class ToolOutput:
    """What a program said: exit status (``None``: not startable) and the text, shortened."""

    name: str
    status: int | None
    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True)
class HostSnapshot:
    """One frozen look at a host or at the inside of a container.

    Attributes:
        kernel: release, ``6.8.0-50-generic``.
        machine: ``x86_64``.
        os_id: ``ID`` of os-release.
        os_version: ``VERSION_ID`` of os-release.
        uid: of the caller.
        process_groups: groups of the caller's process.
        db_groups: groups that the user database gives the caller; ``None`` where not asked.
        groups: group names and numbers of ``/etc/group`` that concern the GPU.
        uid_map: lines of ``/proc/self/uid_map``.
        container: ``docker``, ``podman``, ``lxc``, ``lxc-unprivileged``, ``kubernetes``,
            ``apptainer``; ``None`` on a host.
        engines: container engines found, the one in use first.
        nodes: every node of the GPU path: kfd first, then render nodes, cards, dxg.
        gpus: GPUs that the kernel knows.
        pci_gpus: display and accelerator devices of AMD on the PCI bus, each as address, ids and
            bound driver (``0000:83:00.0 1002:744c amdgpu``); ``None`` where there is no PCI bus.
        kfd_gpu_nodes: number of GPU nodes in the KFD topology; ``None`` where there is no KFD.
        kfd_processes: processes that use the GPU now.
        modules: loaded kernel modules that concern the GPU.
        module_parameters: their parameters, ``amdgpu.gpu_recovery``.
        amdgpu_version: version of the driver, ``None`` where it is the kernel's own.
        kfd_ioctl: version of KFD's interface, ``1.14``.
        secure_boot: whether it is on; ``None`` where there is no answer.
        iommu: what the kernel's command line says of it.
        numa_balancing: value of the sysctl.
        selinux: ``Enforcing``, ``Permissive`` or ``Disabled``; ``None`` where there is none.
        container_use_devices: SELinux boolean.
        apparmor: whether it is on.
        cgroup_devices: rules of the devices cgroup, as far as they can be read.
        cdi_specs: paths of CDI specifications for AMD GPUs.
        cdi_stale: whether the newest of them is older than the loaded driver.
        environment: variables that concern the GPU; unset is not there, empty is ``""``.
        places: disk, ``/dev/shm``, ``/tmp`` and cache folders, by name.
        files: existence of files that rules ask for.
        tools: output of ``amd-smi``, ``rocm-smi`` and ``rocminfo``, by name.
        dmesg: lines of the kernel log about amdgpu and kfd.
        torch_targets: targets of the torch at hand, where it was asked.
    """

    kernel: str = ""
    machine: str = "x86_64"
    os_id: str | None = None
    os_version: str | None = None
    uid: int = 0
    process_groups: tuple[int, ...] = ()
    db_groups: tuple[int, ...] | None = None
    groups: dict[str, int] = field(default_factory=dict)
    uid_map: tuple[str, ...] = ()
    container: str | None = None
    engines: tuple[Engine, ...] = ()
    nodes: tuple[DeviceNode, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    pci_gpus: tuple[str, ...] | None = None
    kfd_gpu_nodes: int | None = None
    kfd_processes: int | None = None
    modules: tuple[str, ...] | None = None
    module_parameters: dict[str, str] = field(default_factory=dict)
    amdgpu_version: str | None = None
    kfd_ioctl: str | None = None
    secure_boot: bool | None = None
    iommu: str | None = None
    numa_balancing: int | None = None
    selinux: str | None = None
    container_use_devices: bool | None = None
    apparmor: bool | None = None
    cgroup_devices: tuple[str, ...] | None = None
    cdi_specs: tuple[str, ...] = ()
    cdi_stale: bool | None = None
    environment: dict[str, str] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    files: dict[str, bool] = field(default_factory=dict)
    tools: dict[str, ToolOutput] = field(default_factory=dict)
    dmesg: tuple[str, ...] = ()
    torch_targets: tuple[str, ...] | None = None

    @property
    def kfd(self) -> DeviceNode | None:
        """Return the compute device."""
        return next((node for node in self.nodes if node.is_kfd), None)

    @property
    def render_nodes(self) -> tuple[DeviceNode, ...]:
        """Return the render nodes, by number."""
        found = [node for node in self.nodes if node.render_minor is not None]
        return tuple(sorted(found, key=lambda node: node.render_minor or 0))

    @property
    def compute_nodes(self) -> tuple[DeviceNode, ...]:
        """Return what a container needs: kfd first, then the render nodes."""
        return ((self.kfd,) if self.kfd else ()) + self.render_nodes

    @property
    def dxg(self) -> DeviceNode | None:
        """Return the paravirtual GPU device of WSL 2."""
        return next((node for node in self.nodes if node.path == "/dev/dxg"), None)

    @property
    def is_wsl(self) -> bool:
        """Tell whether this is Windows' Linux: its kernel says so in its release."""
        return "microsoft" in self.kernel.lower()

    @property
    def engine(self) -> Engine | None:
        """Return the container engine in use."""
        return self.engines[0] if self.engines else None
