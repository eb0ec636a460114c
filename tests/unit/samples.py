"""Values that several test modules start from; each test says only what it varies."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from builder.matrix.cells import Base, Cell, Expected
from builder.matrix.lock import ArchiveState, Lock, LockedCell
from builder.oci import Digest

ROOT = Path(__file__).parents[2]
TWO_CELLS = ROOT / "tests/two_cells.yaml"
CELL = Cell(
    id="cpu-torch2.6.0-py313-debian13",
    lane="cpu",
    distro="debian13",
    rocm=None,
    torch="2.6.0",
    python="3.13",
    flavour="runtime",
    base=Base("distro", "docker.io/library/debian:13"),
    expected=Expected("2.6.0+debian", "cpu"),
    packages=("python3-torch",),
)
ARCHIVE = ArchiveState(
    "http://deb.debian.org/debian", "trixie", datetime(2026, 7, 11, tzinfo=UTC), Digest.of(b"rel")
)
LOCKED = LockedCell(Digest.of(b"base"), "bootstrap", (ARCHIVE,), 1_795_913_593)
OURS = ("cpu-torch2.6.0-py313-debian13", "cpu-torch1.13.1-py311-debian12")


def cell(**changes: Any) -> Cell:
    """Return the sample cell with other values."""
    return replace(CELL, **changes)


def project(folder: Path, *, locked: bool = True) -> Path:
    """Make a working copy in ``folder``: our matrix and templates, and contexts as committed."""
    for part in ("templates", "images/rootfs", "images/selftest", *(f"images/{c}" for c in OURS)):
        ignore = shutil.ignore_patterns("__pycache__", ".*_cache")
        shutil.copytree(ROOT / part, folder / part, ignore=ignore)
    shutil.copy(TWO_CELLS, folder / "matrix.yaml")
    if locked:
        lock = Lock().with_cells(dict.fromkeys(OURS, LOCKED))
        (folder / "matrix.lock").write_text(lock.to_text())
    return folder
