"""Where a SIF is made: a folder with room for the unpacked image, looked at before the start.

An image of 45 GiB unpacked fills a ``/tmp`` in memory after minutes of work, and the variable that
should have moved it elsewhere is easily mistyped: both are told before anything is unpacked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.errors import Problem
from builder.host.mounts import MEMORY_KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from builder.host.mounts import Folder

_GIB = 1 << 30
# The unpacked image, its squashed form, and the copy of that which becomes the SIF; the rest is
# for layers that an Apptainer older than --disable-cache keeps.
TIMES_UNPACKED = 2.5
# Of an image with a whole conda environment and ROCm.
INODES = 400_000
VARIABLES = ("APPTAINER_TMPDIR", "SINGULARITY_TMPDIR", "TMPDIR")
_KNOWN = frozenset(
    f"{owner}_{what}" for owner in ("APPTAINER", "SINGULARITY") for what in ("TMPDIR", "CACHEDIR")
)
_OWNERS = ("APPTAINER_", "SINGULARITY_")


def wanted_bytes(unpacked: int) -> int:
    """Return the bytes that a conversion needs for an image of ``unpacked`` bytes."""
    return round(TIMES_UNPACKED * unpacked)


def misnamed(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Say which variables of the environment look like a folder's and are none."""
    return tuple(
        f"{name} is not a known name: write {owner}{'CACHEDIR' if 'CACHE' in name else 'TMPDIR'}"
        for name in sorted(environ)
        for owner in _OWNERS
        if name.startswith(owner)
        and name not in _KNOWN
        and name.removesuffix("_DIR").endswith(("DIR", "TMP", "TEMP", "CACHE"))
        and any(word in name for word in ("TEMP", "TMP", "CACHE"))
    )


def choose(
    folders: Sequence[Folder], unpacked: int, environ: Mapping[str, str], *, inodes: int = INODES
) -> Folder | Problem:
    """Return the first folder that a conversion fits into, or what is wrong with all of them.

    Args:
        folders: in the order of preference; one that the user named is not passed over.
        unpacked: bytes of the unpacked image.
        environ: the caller's, looked through for mistyped names.
        inodes: files that the unpacked image has at most.
    """
    reasons = []
    for folder in folders:
        reason = _unfit(folder, wanted_bytes(unpacked), inodes)
        if reason is None:
            return folder
        reasons.append(f"{folder.path} {reason}")
        if folder.named:
            break
    hints = misnamed(environ)
    return Problem(
        code="SIF_TMP_TOO_SMALL",
        what=f"no folder has room to convert an image of {unpacked / _GIB:.1f} GiB unpacked"
        f" ({wanted_bytes(unpacked) / _GIB:.1f} GiB are needed): "
        + ("; ".join(reasons) or "there is none that can be written"),
        where=next((f.named for f in folders if f.named), None),
        why="; ".join(hints) or None,
        fix="set APPTAINER_TMPDIR to a folder on a disk with that room, such as node-local scratch",
    )


def _unfit(folder: Folder, wanted: int, inodes: int) -> str | None:
    if not folder.writable:
        return "cannot be written by this user"
    if folder.kind in MEMORY_KINDS:
        return f"is a {folder.kind}, which is memory ({folder.free / _GIB:.1f} GiB free)"
    if not folder.runs:
        return "is mounted noexec"
    if folder.free < wanted:
        return f"has {folder.free / _GIB:.1f} GiB free"
    if folder.inodes is not None and folder.inodes < inodes:
        return f"has {folder.inodes} inodes free where {inodes} are needed"
    return None
