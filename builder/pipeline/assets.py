"""The files that go into images: read from the working copy, staged with fixed modes and times."""

from __future__ import annotations

import os
import shutil
import threading
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING

from builder.errors import Problem, RefusedError
from builder.host.shipped import SHIPPED
from builder.oci import Digest
from builder.plan.inputs import AssetFile, assets_digest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from builder.pipeline.workspace import Workspace

    Assets = Mapping[str, Mapping[str, AssetFile]]

# 1980-01-01, the earliest day that zip files can hold. Older than any epoch: BuildKit clamps later
# times to the epoch and leaves earlier ones alone.
_STAGED_DAY = 315_532_800 * 10**9
_DAY = 86_400 * 10**9
_DOCTOR = "usr/lib/rocm-torch/doctor"
_LEFT_OUT = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"})


def read_assets(workspace: Workspace) -> Assets:
    """Read both folders, by the names under which Dockerfiles copy them."""
    return MappingProxyType(
        {
            "rootfs": MappingProxyType(
                {**_read_folder(workspace.images / "rootfs"), **doctor_files()}
            ),
            "selftest": _read_folder(workspace.images / "selftest" / "rocm_torch_selftest"),
        }
    )


def doctor_files() -> Mapping[str, AssetFile]:
    """Return the snapshot and the rules of this package, and the facts they need, for images.

    They lie among the files of every image, so that the doctor inside says what the one on the
    host says. Only the modules that need the standard library alone go along.
    """
    package = files("builder")
    taken = {
        "__init__.py": package / "__init__.py",
        "host/__init__.py": package / "host/__init__.py",
    }
    for room in ("host/snapshot", "host/rules"):
        for item in (package / room).iterdir():
            if item.name.endswith(".py"):
                taken[f"{room}/{item.name}"] = item
    found = {
        f"{_DOCTOR}/builder/{name}": AssetFile(item.read_bytes(), executable=False)
        for name, item in sorted(taken.items())
    }
    found[f"{_DOCTOR}/facts.json"] = AssetFile(SHIPPED.read_bytes(), executable=False)
    return MappingProxyType(found)


def _read_folder(root: Path) -> Mapping[str, AssetFile]:
    files: dict[str, AssetFile] = {}
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if _LEFT_OUT.intersection(relative.parts):
            continue
        # A link to a folder is a folder to is_dir(): links are looked at first.
        if path.is_dir() and not path.is_symlink():
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
        files[relative.as_posix()] = AssetFile(
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
        os.utime(path, ns=(_staged_time(file), _staged_time(file)))
    for path in (building, *building.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
            os.utime(path, ns=(_STAGED_DAY, _STAGED_DAY))
    try:
        building.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        shutil.rmtree(building)
    return folder


def _staged_time(file: AssetFile) -> int:
    """Return the time in nanoseconds that a staged file gets: one that its content decides.

    BuildKit sends a file again only where its size or time changed. With one time for all, a
    change that keeps the size would not reach the image.
    """
    return _STAGED_DAY + int(Digest.of(file.content).hex[:16], 16) % _DAY
