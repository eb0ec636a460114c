"""Why a conversion to a SIF failed: from what Apptainer said to what to do."""

from __future__ import annotations

import re

from builder.errors import Problem

_GIB = 1 << 30
_KILLED = re.compile(r"signal: killed|exit status 137|\bKilled\b|out of memory|oom-kill", re.I)
_CRASHED = re.compile(r"signal: segmentation fault|exit status 139|segfault", re.I)
_FULL = re.compile(r"no space left on device|disk quota exceeded", re.I)
_SQUASHING = re.compile(r"squashfs", re.I)


def conversion_problem(
    text: str, returncode: int, *, sif: str, memory: int, temporary: str
) -> Problem:
    """Return the problem behind a failed ``apptainer build``.

    Args:
        text: what it wrote to standard error.
        returncode: its exit status; negative or above 128 for a signal.
        sif: the file that was to be made.
        memory: bytes that this process may use.
        temporary: the folder that it unpacked to.
    """
    last = _last_line(text) or f"exit status {returncode}"
    status = 128 - returncode if returncode < 0 else returncode
    if _KILLED.search(text) or status == 137:
        limit = f"{memory / _GIB:.3g}"
        return Problem(
            code="SIF_OOM",
            what=f"the conversion was killed: {last}",
            where=sif,
            why=f"this process may use {limit} GiB of memory, and mksquashfs, left to itself, takes"
            " a quarter of the host's memory and all its cores",
            fix=f"give the job more than {limit} GiB, or let mksquashfs take less:"
            ' apptainer build --mksquashfs-args "-mem 512M -processors 2"',
        )
    if _CRASHED.search(text) or status == 139:
        proot = "proot" in text.lower()
        return Problem(
            code="SIF_CRASHED",
            what=f"the conversion crashed: {last}",
            where=sif,
            why="mksquashfs ran under proot, which crashes there" if proot else None,
            fix="set APPTAINER_IGNORE_PROOT=1 and convert again" if proot else "convert again",
        )
    if _FULL.search(text):
        step = "while the squashfs was written" if _SQUASHING.search(text) else "while unpacking"
        return Problem(
            code="SIF_DISK_FULL",
            what=f"the conversion ran out of room {step}: {last}",
            where=temporary,
            fix="set APPTAINER_TMPDIR to a folder on a disk with more room or a higher quota",
        )
    return Problem(code="SIF_FAILED", what=f"apptainer build failed: {last}", where=sif)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"\x1b\[[0-9;]*m", "", lines[-1]) if lines else ""
