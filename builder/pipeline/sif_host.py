"""The hosts that a SIF is tested on: a clean one, and those that do what hosts do to containers.

Each condition is made for real in a folder of the test: a home with packages that hide the image's,
a library path with libraries that do not load, a cache place that is read-only or full.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from builder.engines.places import User
    from builder.report.sif_report import Condition

_HIDDEN = ("torch", "numpy", "pip")
# Apptainer drops the first; sites that mean to help set the second, which it hands on.
_PATHS: Mapping[Condition, str] = {
    "host-library-path": "LD_LIBRARY_PATH",
    "forced-library-path": "APPTAINERENV_LD_LIBRARY_PATH",
}
_LIBRARIES = ("libstdc++.so.6", "libamdhip64.so.6", "libhsa-runtime64.so.1", "libz.so.1")


@dataclass(frozen=True, slots=True)
class Host:
    """A host for one run.

    Attributes:
        home: the caller's home.
        work: folder for ``--workdir``.
        environ: the caller's variables beside ``HOME``.
        cache: the place that cannot be written, where the condition has one.
        full: whether ``cache`` is to be a full file system, which only the tools image can make.
    """

    home: Path
    work: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    cache: Path | None = None
    full: bool = False


def make_host(condition: Condition, folder: Path, python: str, user: User) -> Host:
    """Make the files of ``condition`` below ``folder``, owned by ``user``.

    Args:
        condition: what the host does.
        folder: empty; it goes when the run is over.
        python: the image's Python, such as ``3.13``.
        user: who runs the SIF.
    """
    home, work = folder / "home", folder / "work"
    for path in (home, work):
        path.mkdir(parents=True)
    environ: dict[str, str] = {}
    cache = home / ".cache" if condition.startswith("cache-") else None
    if condition == "hostile-home":
        _hide(home / ".local/lib" / f"python{python}" / "site-packages")
    elif condition in _PATHS:
        libraries = home / "lib"
        libraries.mkdir()
        for name in _LIBRARIES:
            (libraries / name).write_text("a library of some other system\n", "ascii")
        environ[_PATHS[condition]] = str(libraries)
    elif cache is not None:
        cache.mkdir()
    _give(folder, user)
    if condition == "cache-read-only" and cache is not None:
        cache.chmod(0o500)
        home.chmod(0o500)
    return Host(home, work, environ, cache, full=condition == "cache-full")


def _hide(packages: Path) -> None:
    """Put packages there that end whatever imports them, by the names of the image's own."""
    for name in _HIDDEN:
        package = packages / name
        package.mkdir(parents=True)
        text = f"raise ImportError('this is the {name} of somebody\\'s home')\n"
        (package / "__init__.py").write_text(text, "ascii")


def _give(folder: Path, user: User) -> None:
    if os.getuid() != 0:
        return
    for path, folders, files in os.walk(folder):
        os.chown(path, user.uid, user.gid)
        for name in (*folders, *files):
            os.chown(os.path.join(path, name), user.uid, user.gid)  # noqa: PTH118
