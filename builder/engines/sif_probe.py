"""Looks at what a plain ``python`` finds inside a SIF: runs in the image, not in the builder.

The self-test is isolated from the caller's home and paths, so that it tests the image. Users run
``python``, which is not; this program says what of the host reaches it. It is handed to the image's
Python as text, needs the standard library of Python 3.9 alone, and prints one JSON object.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import re
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

HOST_LIBS = Path("/.singularity.d/libs")
CACHES = (
    "MIOPEN_USER_DB_PATH",
    "MIOPEN_CUSTOM_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
)
NETWORK_KINDS = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph")
# Told even where the image has none: they are what it is for.
ALWAYS = ("torch", "triton", "numpy")
_LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
_MAPPED = "import torch; print(open('/proc/self/maps').read())"
_SECONDS = 120


def main() -> int:
    """Print what was found."""
    document = {
        "shadows": shadows(),
        "host_libraries": host_libraries(),
        "mapped_from_host": mapped_from_host(),
        "caches": caches(),
        "uid": os.getuid(),
    }
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


def shadows() -> list[dict[str, str]]:
    """Return modules that the caller's own folders put in the place of the image's."""
    folders = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    folders += [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    mine = [folder for folder in folders if folder in sys.path]
    found = []
    for folder in mine:
        for entry in sorted(Path(folder).glob("*")):
            name = entry.name.split(".")[0] if entry.suffix in (".py", ".so") else entry.name
            if not name.isidentifier() or name == "__pycache__":
                continue
            before, after = _around(folder, mine)
            if importlib.machinery.PathFinder.find_spec(name, before) is not None:
                continue  # the image's own comes first, as all of the standard library does
            hidden = importlib.machinery.PathFinder.find_spec(name, after)
            if hidden is not None or name in ALWAYS:
                origin = str(hidden.origin) if hidden else ""
                found.append({"module": name, "path": str(entry), "hides": origin})
    return found


def _around(folder: str, mine: list[str]) -> tuple[list[str], list[str]]:
    """Return the image's own places that Python looks at before ``folder``, and those after."""
    place = sys.path.index(folder)
    before = [path for path in sys.path[:place] if path and path not in mine]
    return before, [path for path in sys.path[place:] if path and path not in mine]


def host_libraries() -> list[dict[str, str]]:
    """Try each library of the host that Apptainer put in front of the image's own, or a path did.

    Each is loaded in a process of its own: one that does not fit may end it.
    """
    own = image_libraries()
    found = []
    for path in _candidates():
        done = subprocess.run(
            [sys.executable, "-I", "-c", _LOAD, str(path)],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        error = ""
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
            error = lines[-1]
        found.append({"path": str(path), "error": error, "hides": own.get(path.name, "")})
    return found


def _candidates() -> list[Path]:
    folders = [HOST_LIBS]
    root = Path("/").stat().st_dev
    for text in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        folder = Path(text) if text else None
        # What lies on another device than the image's root was bound from the host.
        if folder and folder != HOST_LIBS and folder.is_dir() and folder.stat().st_dev != root:
            folders.append(folder)
    return sorted({path for folder in folders for path in folder.glob("*.so*") if path.is_file()})


def image_libraries() -> dict[str, str]:
    """Return the image's own libraries by file name, of the places that loaders look at."""
    roots = [Path("/usr/lib"), Path("/usr/lib64"), Path("/lib")]
    folders = [*roots, *(path for root in roots for path in root.glob("*-linux-gnu"))]
    folders += sorted(Path("/opt").glob("rocm*/lib"))
    for path in sys.path:
        folders += [Path(path, "torch", "lib"), *Path(path).glob("_rocm_sdk_*/lib")]
    return {path.name: str(path) for folder in folders for path in folder.glob("*.so*")}


def mapped_from_host() -> list[str] | None:
    """Return what ``import torch`` maps from the host's libraries; None where it fails."""
    done = subprocess.run(
        [sys.executable, "-c", _MAPPED],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        return None
    return sorted(set(re.findall(rf"{HOST_LIBS}/\S+", done.stdout)))


def caches() -> dict[str, Any]:
    """Return where the caches are, whether they can be written, and on what file system."""
    places = {name: os.environ.get(name, "") for name in CACHES}
    home = os.environ.get("HOME", "")
    wished = os.environ.get("ROCM_TORCH_CACHE_DIR") or f"{home}/.cache"
    return {
        "state": os.environ.get("ROCM_TORCH_CACHES", ""),
        "wished": wished,
        "wished_writable": _can_write(Path(wished)),
        "network": sorted(name for name, place in places.items() if _is_network(place)),
        "places": places,
    }


def _can_write(folder: Path) -> bool:
    probe = folder / f".rocm-torch-probe-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError:
        return False
    return True


def _is_network(place: str) -> bool:
    if not place:
        return False
    kind, depth = "", -1
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        point, name = line.split()[1:3]
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= depth:
            kind, depth = name, len(point)
    return kind in NETWORK_KINDS


if __name__ == "__main__":
    sys.exit(main())
