"""Cells of every base family, flavour and package manager, made by hand."""

from __future__ import annotations

from samples import cell

from builder.matrix.cells import Base, Cell, Expected, Interpreter, Repository, Wheels
from builder.matrix.ids import cell_id

FAMILIES = ("distro", "wheel", "amd-wheel", "rocm-dev", "rocm-pytorch")
FLAVOURS = ("runtime", "devel", "opencl")
MANAGERS = {
    "distro": ("apt",),
    "wheel": ("apt", "dnf", "microdnf"),
    "amd-wheel": ("apt", "dnf", "microdnf"),
    "rocm-dev": ("apt", "dnf"),
    "rocm-pytorch": ("apt",),
}
DISTROS = {"apt": "ubuntu22.04", "dnf": "almalinux9", "microdnf": "ubi9"}
PLAIN = {
    "ubuntu22.04": "docker.io/library/ubuntu:22.04",
    "almalinux9": "docker.io/library/almalinux:9",
    "ubi9": "registry.access.redhat.com/ubi9/ubi-minimal:9.6",
}
AMD = {
    ("rocm-dev", "apt"): "docker.io/rocm/dev-ubuntu-22.04:6.2.4-complete",
    ("rocm-dev", "dnf"): "docker.io/rocm/dev-almalinux-8:6.2.4-complete",
    ("rocm-pytorch", "apt"): "docker.io/rocm/pytorch:rocm6.2.4_ubuntu22.04_py3.10_pytorch_2.5.1",
}
KEY_URL = "https://repo.radeon.com/rocm/rocm.gpg.key"
FINGERPRINT = "CA8BB4727A47B4D09B4EE8969386B48A1A693C5C"
APT = Repository(
    name="amd-rocm",
    uri="https://repo.radeon.com/rocm/apt/6.2.4",
    key_url=KEY_URL,
    key_fingerprint=FINGERPRINT,
    packages=(),
    suites=("jammy",),
    components=("main",),
    origin="repo.radeon.com",
)
DNF = Repository(
    name="amd-rocm",
    uri="https://repo.radeon.com/rocm/el9/6.2.4/main",
    key_url=KEY_URL,
    key_fingerprint=FINGERPRINT,
    packages=(),
)
WHEELS = Wheels(
    index="https://download.pytorch.org/whl/rocm6.2.4",
    style="simple",
    requirements=("torch==2.7.1+rocm6.2.4",),
)
ADDED = {"devel": ("hipcc", "hipify-clang", "rocprofiler"), "opencl": ("rocm-opencl-runtime",)}


def named(family: str, flavour: str, manager: str) -> str:
    """Return how the golden file of such a cell is called."""
    return f"{family}-{flavour}-{manager}"


def family_cell(family: str, flavour: str = "runtime", manager: str = "apt") -> Cell:
    """Return a cell of a family; its facts are made up where the family is not the point."""
    if family == "distro":
        tools = {"devel": ("hipcc", "hipify-perl"), "opencl": ("clinfo", "rocm-opencl-icd")}
        packages = ("python3-torch", "rocminfo", *tools.get(flavour, ()))
        name = cell_id(None, "2.6.0", "3.13", "debian13", flavour)
        return cell(id=name, flavour=flavour, packages=packages)
    distro = DISTROS[manager]
    packages = ("ca-certificates", "python3.11" if manager != "apt" else "g++")
    repository = APT if manager == "apt" else DNF
    added = ADDED.get(flavour, ()) if family != "rocm-dev" else ()
    wheels = family != "rocm-pytorch"
    return cell(
        id=cell_id("6.2.4", "2.7.1", "3.11", distro, flavour),
        lane="legacy",
        distro=distro,
        rocm="6.2.4",
        torch="2.7.1",
        python="3.11",
        flavour=flavour,
        base=Base(family, AMD.get((family, manager), PLAIN[distro])),
        expected=Expected("2.7.1+rocm6.2.4", "hip", "6.2.41134-65d174c3e", ("rocminfo",)),
        gfx=("gfx90a", "gfx942"),
        package_manager=manager,
        packages=packages if wheels or flavour == "devel" else (),
        repositories=(_with(repository, added),) if added else (),
        interpreter=_interpreter(manager) if wheels else Interpreter("base"),
        wheels=WHEELS if wheels else None,
    )


def _interpreter(manager: str) -> Interpreter:
    """Ubuntu 22.04 has no Python 3.11 of its own, the others have."""
    return Interpreter("uv") if manager == "apt" else Interpreter("distro", "python3.11")


def _with(repository: Repository, packages: tuple[str, ...]) -> Repository:
    return Repository(
        name=repository.name,
        uri=repository.uri,
        key_url=repository.key_url,
        key_fingerprint=repository.key_fingerprint,
        packages=packages,
        suites=repository.suites,
        components=repository.components,
        origin=repository.origin,
    )


ALL = {
    named(family, flavour, manager): family_cell(family, flavour, manager)
    for family in FAMILIES
    for flavour in FLAVOURS
    for manager in MANAGERS[family]
}
