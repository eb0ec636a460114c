"""Rules about Apptainer: its own small /dev, the host's libraries, and where it unpacks.

Sources: Apptainer's CHANGELOG and etc/rocmliblist.conf; its user guide, "build environment".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.host.rules.ask import line_with, told
from builder.host.rules.model import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.host.rules.facts import HostFacts
    from builder.host.snapshot.model import HostSnapshot

_LIBRARIES = "/.singularity.d/libs"
_GIB = 1 << 30
_FACTOR = 2.5  # the unpacked tree, its squashed copy, and the layers on the way
_MEMORY = ("tmpfs", "ramfs")


def host_libraries(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """--rocm brings libraries of the host in, and they want the host's C library."""
    said = line_with(told(snapshot), r"(GLIBC|GLIBCXX)_[0-9.]+.*not found.*singularity\.d")
    if not said:
        return None
    return Finding(
        code="APPTAINER_HOST_LIBRARIES",
        severity="error",
        summary="A library of the host came in through --rocm and needs a newer C or C++ library"
        " than the image has. The image brings its own ROCm: bind the nodes only.",
        evidence=said,
        fix="apptainer exec --containall --bind /dev/kfd,/dev/dri IMAGE.sif COMMAND",
        source="https://github.com/apptainer/apptainer/pull/1622 and 2606",
        explains=("GLIBCXX_TOO_OLD",),
    )


def host_tensile(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """The host's rocBLAS does not find the image's kernels."""
    said = line_with(told(snapshot), r"TensileLibrary.*(not|could not|cannot)")
    libraries = snapshot.environment.get("LD_LIBRARY_PATH", "")
    if not said or _LIBRARIES not in libraries:
        return None
    return Finding(
        code="APPTAINER_HOST_ROCBLAS",
        severity="error",
        summary="rocBLAS of the host is used instead of the image's, and looks for its kernels in"
        " the wrong place.",
        evidence=(*said, f"LD_LIBRARY_PATH={libraries}"),
        fix="apptainer exec --containall --bind /dev/kfd,/dev/dri IMAGE.sif COMMAND",
        source="https://github.com/apptainer/apptainer/issues/1621",
    )


def unknown_names(snapshot: HostSnapshot, facts: HostFacts) -> Iterator[Finding]:
    """TEMPDIR for TMPDIR is a slip that nothing reports."""
    for name in sorted(snapshot.environment):
        if name in ("APPTAINER_TEMPDIR", "SINGULARITY_TEMPDIR"):
            value = snapshot.environment[name]
            yield Finding(
                code="APPTAINER_UNKNOWN_NAME",
                severity="warning",
                summary=f"{name} is not a known name: nothing reads it. APPTAINER_TMPDIR is the one"
                " that says where images are unpacked.",
                evidence=(f"{name}={value}",),
                fix=f"unset {name}"
                if "APPTAINER_TMPDIR" in snapshot.environment
                else f"export APPTAINER_TMPDIR={_target(snapshot)}",
                source="Apptainer user guide, build environment",
            )


def tmp_too_small(snapshot: HostSnapshot, facts: HostFacts) -> Finding | None:
    """A conversion unpacks below TMPDIR, whatever the cache folder is."""
    given = snapshot.environment
    place = snapshot.places.get("tmp")
    size = facts.image.unpacked_bytes if facts.image else None
    if place is None or place.free_bytes is None or not size:
        return None
    if not _converts(snapshot) or given.get("APPTAINER_TMPDIR"):
        return None
    need = int(size * _FACTOR)
    if place.free_bytes >= need and place.filesystem not in _MEMORY:
        return None
    kind = f" ({place.filesystem}: memory)" if place.filesystem in _MEMORY else ""
    return Finding(
        code="SIF_TMP_TOO_SMALL",
        severity="error",
        summary=f"{place.path}{kind} has {place.free_bytes / _GIB:.0f} GiB free, and converting an"
        f" image of {size / _GIB:.0f} GiB needs {need / _GIB:.0f} GiB there: the cache folder is"
        " another place. Set APPTAINER_TMPDIR to a disk.",
        evidence=(f"{place.path}: {place.free_bytes} bytes free, {place.filesystem or '?'}",),
        fix=f"export APPTAINER_TMPDIR={_target(snapshot)}",
        source="Apptainer user guide, build environment",
    )


def _target(snapshot: HostSnapshot) -> str:
    """Return where to unpack: what a misspelt name asked for, else the usual place on a disk."""
    given = snapshot.environment
    return given.get("APPTAINER_TEMPDIR") or given.get("SINGULARITY_TEMPDIR") or "/var/tmp"


def _converts(snapshot: HostSnapshot) -> bool:
    named = any(name.startswith(("APPTAINER_", "SINGULARITY_")) for name in snapshot.environment)
    return named or any(engine.kind == "apptainer" for engine in snapshot.engines)
