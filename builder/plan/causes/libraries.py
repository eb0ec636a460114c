"""Shared libraries and modules that do not fit together, as an import or a loader tells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.errors import Problem
from builder.plan.causes.model import Cause, Output, Pattern, Rule, regex

if TYPE_CHECKING:
    from collections.abc import Iterator

_GLIBCXX = regex(
    r"(?P<file>/\S*libstdc\+\+\.so\S*?): version [`'](?P<version>(?:GLIBCXX|CXXABI)_[0-9.]+)'"
    r" not found(?: \(required by (?P<by>[^)]+)\))?"
)
# Where a distribution keeps its own libstdc++: anything else stands before it.
_SYSTEM = regex(r"^/(?:usr/)?lib(?:64|/[a-z0-9_]+-linux-gnu)?/")


def libstdcxx(output: Output) -> Iterator[Cause]:
    """Tell a copy that hides the system's libstdc++ from a system that is too old."""
    found = _GLIBCXX.search(output.text)
    if found is None:
        return
    file, version, by = found["file"], found["version"], found["by"] or "a library"
    what = f"{by} needs {version}, and {file}, which was loaded, does not have it"
    if _SYSTEM.match(file):
        problem = Problem(
            code="LIBSTDCXX_TOO_OLD",
            what=what,
            why="the library was built on a newer distribution than this one",
            fix="use an image of a newer distribution, or a build for this one",
        )
    else:
        problem = Problem(
            code="LIBSTDCXX_SHADOWED",
            what=what,
            why="this copy is found before the distribution's, which is newer",
            fix=f"update libstdcxx-ng in that environment, or remove {file} so that the"
            " distribution's is found; take its folder out of LD_LIBRARY_PATH",
        )
    yield Cause(problem, position=found.start())


RULES: tuple[Rule, ...] = (
    libstdcxx,
    Pattern(
        code="GLIBC_TOO_OLD",
        seen=regex(
            r"(?P<file>\S*libc\.so\.6): version [`'](?P<version>GLIBC_[0-9.]+)' not found"
            r"(?: \(required by (?P<by>[^)]+)\))?"
        ),
        what="{by} needs {version}, which {file} does not have",
        why="the program was built on a newer distribution; under Apptainer, `--rocm` binds"
        " libraries of the host that may be newer than the image",
        fix="use a build for this distribution; bind the devices only, not the host's libraries",
    ),
    Pattern(
        code="NUMPY_ABI",
        seen=regex(
            r"_ARRAY_API not found|compiled using NumPy 1\.x cannot be run in"
            r"|numpy\.dtype size changed|Numpy is not available"
        ),
        what="torch or another module was built for another NumPy than the one that is installed",
        why="NumPy 2 changed its binary interface; importing warns only, and the conversion"
        " between tensors and arrays fails later",
        fix="install `numpy<2`, or a torch that was built for NumPy 2 (2.3 and later)",
        on_success=True,
    ),
    Pattern(
        code="TORCHVISION_MISMATCH",
        seen=regex(r"operator torchvision::(?P<operator>\w+) does not exist"),
        what="torchvision does not fit to torch: its operator {operator} is not there",
        why="torchvision of PyPI was built for another torch than the ROCm build",
        fix="install torchvision from where torch came from, with the same suffix (+rocm...)",
        on_success=True,
    ),
    Pattern(
        code="SHARED_LIBRARY_MISSING",
        seen=regex(r"(?P<library>\S+\.so[.0-9]*): cannot open shared object file"),
        what="{library} is not found by the loader",
        why="it is not in the image, or only where LD_LIBRARY_PATH points in some shells",
        fix="install the package that has it, and name its folder in /etc/ld.so.conf.d, then run"
        " ldconfig",
    ),
    Pattern(
        code="NO_KERNEL_IMAGE",
        seen=regex(
            r"hipErrorNoBinaryForGpu|invalid device function|device kernel image is invalid"
            r"|hipErrorInvalidImage"
        ),
        what="what ran has no code for the GPU of this machine",
        why="an extension was compiled for other targets, or on a machine without a GPU",
        fix="set PYTORCH_ROCM_ARCH and GPU_ARCHS to the targets of the matrix before it is built",
    ),
)
