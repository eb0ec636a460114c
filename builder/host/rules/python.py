"""Rules about variables that change which Python packages and libraries a program gets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from builder.host.rules.ask import line_with, told
from builder.host.rules.model import Finding

if TYPE_CHECKING:
    from builder.host.rules.facts import HostFacts
    from builder.host.snapshot.model import HostSnapshot

_HOST_ROCM = re.compile(r"/opt/rocm[^:]*")


def python_path(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Modules of another Python come before the image's."""
    value = snapshot.environment.get("PYTHONPATH")
    if not value or snapshot.container is None:
        return None
    return Finding(
        code="PYTHONPATH_SET",
        severity="warning",
        summary=f"PYTHONPATH={value} puts other modules before those of the image: a torch that"
        " lies there is the one that is imported.",
        evidence=(f"PYTHONPATH={value}",),
        fix="unset PYTHONPATH",
        source="Python, using/cmdline: PYTHONPATH",
    )


def preload(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A library that is loaded before all others can replace the runtime."""
    value = snapshot.environment.get("LD_PRELOAD")
    if not value or not re.search(r"hip|hsa|amd|rocm|cuda|stdc\+\+", value):
        return None
    return Finding(
        code="LD_PRELOAD_SET",
        severity="warning",
        summary=f"LD_PRELOAD={value} is loaded before the libraries of the image.",
        evidence=(f"LD_PRELOAD={value}",),
        fix="unset LD_PRELOAD",
        source="ld.so(8)",
    )


def library_path(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """Wheels bring their ROCm; a path to another one mixes two releases in one process."""
    value = snapshot.environment.get("LD_LIBRARY_PATH", "")
    release = facts.image.rocm if facts.image else None
    found = _HOST_ROCM.findall(value)
    others = [path for path in found if release and not _of(path, release)]
    if not others:
        return None
    return Finding(
        code="LD_LIBRARY_PATH_MIXES",
        severity="warning",
        summary=f"LD_LIBRARY_PATH has {others[0]}, and the image's ROCm is {release}: two releases"
        " in one process end in missing symbols. The wheels bring their own; no ROCm of the system"
        " is needed.",
        evidence=(f"LD_LIBRARY_PATH={value}",),
        fix="unset LD_LIBRARY_PATH",
        source="pytorch/builder, manywheel/build_rocm.sh",
    )


def extra_index(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A second index does not go before the first: the newest version wins, which may be CUDA's."""
    value = snapshot.environment.get("PIP_EXTRA_INDEX_URL", "")
    if "download.pytorch.org/whl" not in value and "/rocm" not in value:
        return None
    return Finding(
        code="PIP_EXTRA_INDEX",
        severity="warning",
        summary="PIP_EXTRA_INDEX_URL adds the ROCm index beside PyPI: pip takes the newer version"
        " of either, and PyPI's torch is built for CUDA. An index that replaces PyPI for torch is"
        " what is meant; its place in the command does not matter.",
        evidence=("PIP_EXTRA_INDEX_URL is set",),
        fix="unset PIP_EXTRA_INDEX_URL",
        source="pip, docs: --extra-index-url; pypa/pip, main_parser.py",
    )


def glibcxx(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The C++ library of the place where it runs counts; in a container that is the image's."""
    said = line_with(told(snapshot), r"version .?(GLIBC|GLIBCXX)_[0-9.]+.? not found")
    if not said:
        return None
    return Finding(
        code="GLIBCXX_TOO_OLD",
        severity="error",
        summary="A library needs a newer C or C++ library than the one that was found first. In a"
        " container the host's do not matter: look for a path that brings in another one (conda,"
        " LD_LIBRARY_PATH, libraries of the host).",
        evidence=said,
        fix="unset LD_LIBRARY_PATH; ldd FILE | grep -E 'libstdc|libc.so'",
        source="pypa/auditwheel, manylinux policies; apptainer pull request 1622",
    )


def cuda_build(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The backend is fixed when torch is built; nothing chooses it at run time."""
    said = line_with(
        told(snapshot), r"found no NVIDIA driver|not compiled with CUDA|libcudart|libcuda\.so"
    )
    if not said:
        return None
    return Finding(
        code="TORCH_NOT_FOR_ROCM",
        severity="error",
        summary="The torch that ran is a build for CUDA or for the CPU: the backend is fixed when"
        " torch is built, and neither /opt/rocm nor a variable changes it.",
        evidence=said,
        fix="python -c 'import torch; print(torch.__version__, torch.version.hip, torch.__file__)'",
        source="PyTorch, docs/source/notes/hip.rst",
    )


def _of(path: str, release: str) -> bool:
    """Tell whether a path names no release, or this one."""
    found = re.search(r"rocm[-/](?:core-)?(\d+\.\d+)", path)
    return found is None or release.startswith(found[1])
