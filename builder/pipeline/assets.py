"""The files that go into images: read from the working copy, staged with fixed modes and times."""

from __future__ import annotations

import os
import shutil
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING

from builder.errors import Problem, RefusedError
from builder.plan.inputs import AssetFile, assets_digest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from builder.pipeline.workspace import Workspace

    Assets = Mapping[str, Mapping[str, AssetFile]]

# Older than any epoch: BuildKit clamps later times to the epoch and leaves earlier ones alone.
_STAGED_TIME = 315_532_800  # 1980-01-01, the earliest that zip files can hold
_LEFT_OUT = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"})


def read_assets(workspace: Workspace) -> Assets:
    """Read both folders, by the names under which Dockerfiles copy them."""
    return MappingProxyType(
        {
            "rootfs": _read_folder(workspace.images / "rootfs"),
            "selftest": _read_folder(workspace.images / "selftest" / "rocm_torch_selftest"),
        }
    )


def _read_folder(root: Path) -> Mapping[str, AssetFile]:
    files: dict[str, AssetFile] = {}
    for path in sorted(root.rglob("*")):
        if path.is_dir() or _LEFT_OUT.intersection(path.parts):
            continue
        if path.is_symlink() or not path.is_file():
            raise RefusedError(
                Problem(
                    code="ASSET_NOT_A_FILE",
                    what="only plain files can be copied into images",
                    where=str(path),
                    fix="replace the link by a copy of what it points to",
                )
            )
        files[path.relative_to(root).as_posix()] = AssetFile(
            content=path.read_bytes(), executable=bool(path.stat().st_mode & 0o100)
        )
    if not files:
        raise RefusedError(
            Problem("ASSETS_MISSING", "there are no files to copy into images", where=str(root))
        )
    return MappingProxyType(files)


def stage(workspace: Workspace, name: str, files: Mapping[str, AssetFile]) -> Path:
    """Write ``files`` into a folder below ``.rocm-torch/stage`` with fixed modes and times.

    The folder is named by its content and appears in one rename, so runs do not disturb each other.
    """
    folder = workspace.state / "stage" / f"{name}-{assets_digest(files).hex[:16]}"
    if folder.is_dir():
        return folder
    building = folder.with_name(f"{folder.name}.{os.getpid()}.{threading.get_ident()}")
    shutil.rmtree(building, ignore_errors=True)
    for relative, file in files.items():
        path = building / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(0o755 if file.executable else 0o644)
    for path in (building, *building.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (_STAGED_TIME, _STAGED_TIME))
    try:
        building.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        shutil.rmtree(building)
    return folder
