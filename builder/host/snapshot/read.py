"""Reads a snapshot from the file system that starts at a root, and from what is handed in.

Reading never fails: what cannot be read is not there. No program is started here; output of
programs is handed in (``tools``), because only an adapter may start them.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from builder.host.snapshot.container import container_of
from builder.host.snapshot.gpus import read_gpus, read_pci_gpus
from builder.host.snapshot.model import DeviceNode, Engine, HostSnapshot, Place, ToolOutput
from builder.host.snapshot.text import first_line, number, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# Variables that decide which GPUs a program sees, and how; and what changes which Python it has.
VARIABLES = re.compile(
    r"(HIP|ROCR|CUDA|AMD|HSA|GPU|MIOPEN|ROCM|NCCL|RCCL|PYTORCH|TORCH|PIP|APPTAINER|SINGULARITY|"
    r"TESTCONTAINERS|DOCKER|SLURM|FI)_.*|LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|XDG_CACHE_HOME|"
    r"TMPDIR|HF_HOME|TRITON_CACHE_DIR"
)
MODULES = ("amdgpu", "amdkfd", "radeon", "nvidia", "nouveau", "vfio_pci", "amdxcp", "amdkcl")
GROUPS = ("video", "render")
FILES = (
    "/opt/rocm/lib/libhsa-runtime64.so.1",
    "/usr/lib/wsl/lib/libdxcore.so",
    "/opt/rocm/lib/librocdxg.so",
    "/opt/rocm/.info/version",
    "/dev/infiniband",
)
_CDI = ("etc/cdi", "var/run/cdi", "run/cdi")
_PARAMETERS = ("gpu_recovery", "noretry", "lockup_timeout", "runpm", "ppfeaturemask", "vm_size")


@dataclass(frozen=True)
class Surroundings:
    """What is not in the file system of the root.

    Attributes:
        environment: of the caller.
        uid: of the caller.
        groups: of the caller's process.
        db_groups: what the user database says of the caller.
        engines: container engines that answered.
        tools: what programs said.
        dmesg: lines of the kernel log.
        probe: whether nodes are opened, which the caller may not want.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    uid: int = 0
    groups: tuple[int, ...] = ()
    db_groups: tuple[int, ...] | None = None
    engines: tuple[Engine, ...] = ()
    tools: tuple[ToolOutput, ...] = ()
    dmesg: tuple[str, ...] = ()
    probe: bool = True


def read_snapshot(root: Path, around: Surroundings | None = None) -> HostSnapshot:
    """Look at the machine whose file system starts at ``root``: ``/``, or a stand-in tree."""
    here = around or Surroundings(uid=os.getuid(), groups=tuple(os.getgroups()), probe=False)
    release = _os_release(root)
    gpus, kfd_gpu_nodes = read_gpus(root)
    cdi = _cdi_specs(root)
    wanted = {k: v for k, v in here.environment.items() if VARIABLES.fullmatch(k)}
    return HostSnapshot(
        kernel=first_line(root / "proc/sys/kernel/osrelease") or platform.release(),
        machine=platform.machine(),
        os_id=release.get("ID"),
        os_version=release.get("VERSION_ID"),
        uid=here.uid,
        process_groups=tuple(sorted(set(here.groups))),
        db_groups=here.db_groups,
        groups=_groups(root),
        uid_map=tuple(" ".join(line.split()) for line in _lines(root / "proc/self/uid_map")),
        container=container_of(root, here.environment),
        engines=here.engines,
        nodes=tuple(_nodes(root, probe=here.probe)),
        gpus=gpus,
        pci_gpus=read_pci_gpus(root),
        kfd_gpu_nodes=kfd_gpu_nodes,
        kfd_processes=_count(root / "sys/class/kfd/kfd/proc"),
        modules=_modules(root),
        module_parameters=_parameters(root),
        amdgpu_version=first_line(root / "sys/module/amdgpu/version"),
        secure_boot=_secure_boot(root),
        iommu=_iommu(root),
        numa_balancing=number(root / "proc/sys/kernel/numa_balancing"),
        selinux=_selinux(root),
        container_use_devices=_boolean(root / "sys/fs/selinux/booleans/container_use_devices"),
        apparmor=_apparmor(root),
        cgroup_devices=_cgroup_devices(root),
        cdi_specs=tuple(f"/{path.relative_to(root)}" for path in cdi),
        cdi_stale=_stale(root, cdi),
        environment=wanted,
        places=_places(root, here.environment),
        files={name: (root / name.lstrip("/")).exists() for name in FILES},
        tools={tool.name: tool for tool in here.tools},
        dmesg=here.dmesg,
    )


def _lines(path: Path) -> list[str]:
    return (read_text(path) or "").splitlines()


def _nodes(root: Path, *, probe: bool) -> Iterator[DeviceNode]:
    dri = root / "dev/dri"
    paths = [
        root / "dev/kfd",
        *sorted(dri.glob("renderD*"), key=_number),
        *sorted(dri.glob("card*")),
    ]
    for path in (*paths, root / "dev/dxg"):
        node = _node(root, path)
        if node is not None:
            yield replace(node, open_errno=_opened(path)) if probe else node


def _number(path: Path) -> tuple[int, str]:
    digits = path.name[len("renderD") :]
    return (int(digits) if digits.isdecimal() else 1 << 30, path.name)


def _node(root: Path, path: Path) -> DeviceNode | None:
    try:
        status = path.stat()
    except OSError:
        return None
    if not stat.S_ISCHR(status.st_mode):
        return None
    return DeviceNode(
        path=f"/{path.relative_to(root)}",
        source=os.fspath(path),
        uid=status.st_uid,
        gid=status.st_gid,
        mode=stat.S_IMODE(status.st_mode),
    )


def _opened(path: Path) -> str:
    """Open a node as a program would; return the name of the error, ``""`` where it opened."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error.errno))
    return ""


def _os_release(root: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in _lines(root / "etc/os-release"))
    return {key.strip(): value.strip().strip("\"'") for key, sign, value in pairs if sign}


def _groups(root: Path) -> dict[str, int]:
    found = {}
    for line in _lines(root / "etc/group"):
        name, *rest = line.split(":")
        if name in GROUPS and len(rest) > 1 and rest[1].isdecimal():
            found[name] = int(rest[1])
    return found


def _count(folder: Path) -> int | None:
    try:
        return sum(1 for entry in folder.iterdir() if entry.name.isdecimal())
    except OSError:
        return None


def _modules(root: Path) -> tuple[str, ...] | None:
    lines = _lines(root / "proc/modules")
    if not lines and not (root / "proc/modules").exists():
        return None
    loaded = {line.split(" ", 1)[0] for line in lines}
    built_in = {name for name in MODULES if (root / "sys/module" / name).is_dir()}
    return tuple(name for name in MODULES if name in loaded | built_in)


def _parameters(root: Path) -> dict[str, str]:
    folder = root / "sys/module/amdgpu/parameters"
    values = {name: first_line(folder / name) for name in _PARAMETERS}
    return {f"amdgpu.{name}": value for name, value in values.items() if value is not None}


def _secure_boot(root: Path) -> bool | None:
    for path in (root / "sys/firmware/efi/efivars").glob("SecureBoot-*"):
        try:
            return path.read_bytes()[-1:] == b"\x01"
        except OSError:
            return None
    return None


def _iommu(root: Path) -> str | None:
    words = (read_text(root / "proc/cmdline") or "").split()
    found = [word for word in words if "iommu" in word]
    return " ".join(found) or None


def _selinux(root: Path) -> str | None:
    value = first_line(root / "sys/fs/selinux/enforce")
    return {"1": "Enforcing", "0": "Permissive"}.get(value or "")


def _boolean(path: Path) -> bool | None:
    text = first_line(path)
    return text.split()[0] == "1" if text else None


def _apparmor(root: Path) -> bool | None:
    text = first_line(root / "sys/module/apparmor/parameters/enabled")
    return text == "Y" if text else None


def _cgroup_devices(root: Path) -> tuple[str, ...] | None:
    text = read_text(root / "sys/fs/cgroup/devices/devices.list")
    return None if text is None else tuple(text.splitlines()[:64])


def _cdi_specs(root: Path) -> list[Path]:
    """Return CDI specifications that name AMD's GPUs, the newest last."""
    found: dict[str, Path] = {}
    for folder in _CDI:
        for path in (root / folder).glob("*"):
            if path.suffix in {".json", ".yaml"} and "amd.com/gpu" in (read_text(path) or ""):
                found.setdefault(path.name, path)
    return sorted(found.values(), key=_changed)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _stale(root: Path, specs: list[Path]) -> bool | None:
    """Tell whether the newest specification is older than the nodes that it names."""
    nodes = [root / "dev/kfd", *(root / "dev/dri").glob("renderD*")]
    there = [_changed(path) for path in nodes if path.exists()]
    return _changed(specs[-1]) < max(there) if specs and there else None


def _places(root: Path, environment: Mapping[str, str]) -> dict[str, Place]:
    home = environment.get("HOME", "/root")
    wanted = {
        "root": "/",
        "shm": "/dev/shm",  # noqa: S108 - looked at, not written
        "tmp": environment.get("TMPDIR", "/tmp"),  # noqa: S108
        "home": home,
        "miopen-db": environment.get("MIOPEN_USER_DB_PATH", f"{home}/.config/miopen"),
        "miopen-kernels": environment.get("MIOPEN_CUSTOM_CACHE_DIR", f"{home}/.cache/miopen"),
    }
    mounts = _mounts(root)
    return {name: _place(root, path, mounts) for name, path in wanted.items()}


def _place(root: Path, path: str, mounts: Mapping[str, str]) -> Place:
    at = root / path.lstrip("/")
    while not at.exists() and at != root and at != at.parent:
        at = at.parent
    filesystem = _filesystem(path, mounts)
    try:
        found = os.statvfs(at)
    except OSError:
        return Place(path, filesystem=filesystem)
    return Place(
        path,
        free_bytes=found.f_bavail * found.f_frsize,
        total_bytes=found.f_blocks * found.f_frsize,
        free_inodes=found.f_favail or None,
        filesystem=filesystem,
        writable=os.access(at, os.W_OK),
    )


def _mounts(root: Path) -> dict[str, str]:
    rows: Iterable[list[str]] = (line.split() for line in _lines(root / "proc/self/mounts"))
    return {row[1]: row[2] for row in rows if len(row) > 2}


def _filesystem(path: str, mounts: Mapping[str, str]) -> str | None:
    above = [path, *(str(parent) for parent in Path(path).parents)]
    return next((mounts[one] for one in above if one in mounts), None)
