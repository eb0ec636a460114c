"""Check ``shared-libraries``: each shared library of torch finds the ones that it links to.

``import torch`` alone does not show this: parts of torch are loaded later, on first use.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Iterable

from rocm_torch_selftest.context import Context, run_program
from rocm_torch_selftest.outcome import CheckFailedError, failed, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.outcome import Outcome

_MISSING = re.compile(r"^\s*(\S+) => not found")
_VERSION = re.compile(r"version [`']([^']+)' not found")
_FOUND = re.compile(r"=> /|^\s*/\S+ \(0x")
_MAPPED = (
    "import json, re, torch; "
    "print(json.dumps(sorted({line.split()[-1].rsplit('/', 1)[-1] "
    "for line in open('/proc/self/maps') if '.so' in line})))"
)
_LOAD = (
    "import ctypes, json, sys\n"
    "wrong = {}\n"
    "for path in sys.argv[1:]:\n"
    "    try:\n"
    "        ctypes.CDLL(path)\n"
    "    except OSError as error:\n"
    "        wrong[path] = str(error)\n"
    "print(json.dumps(wrong))\n"
)


@dataclass(frozen=True)
class Links:
    """What ``ldd`` said of one file: how many libraries were found, and which were not."""

    found: int
    missing: tuple[str, ...]


def parse_ldd(text: str) -> Links:
    """Read the output of ``ldd``: missing libraries, and missing symbol versions of found ones."""
    lines = text.splitlines()
    missing = [match.group(1) for match in map(_MISSING.match, lines) if match]
    missing += [f"version {match.group(1)}" for match in map(_VERSION.search, lines) if match]
    return Links(sum(1 for line in lines if _FOUND.search(line)), tuple(sorted(set(missing))))


def run(context: Context) -> Outcome:
    """Ask ``ldd`` about each library, or load each one where there is no ``ldd``."""
    context.stage("look for the libraries of torch")
    files = torch_libraries()
    ldd = shutil.which("ldd")
    if ldd is None:
        return _by_loading(files, context)
    missing: dict[str, list[str]] = {}
    found = 0
    for file in files:
        context.stage(f"ldd {file}")
        said = run_program([ldd, str(file)])
        links = parse_ldd(said.stdout + "\n" + said.stderr)
        found += links.found
        if links.missing:
            missing[str(file)] = list(links.missing)
    if not found:
        return _by_loading(files, context)
    loaded = _loaded_by_torch(context) if missing else frozenset()
    return judge(len(files), found, missing, loaded)


def judge(files: int, found: int, missing: dict[str, list[str]], loaded: frozenset[str]) -> Outcome:
    """Judge what ldd said; a library that torch loads by itself at import is not missing."""
    open_names = {
        file: [name for name in names if name not in loaded] for file, names in missing.items()
    }
    open_names = {file: names for file, names in open_names.items() if names}
    if open_names:
        words = "; ".join(
            f"{Path(file).name} needs {', '.join(names)}" for file, names in open_names.items()
        )
        return failed(f"Libraries of torch are not found: {words}.", not_found=open_names)
    by_torch = sorted({name for names in missing.values() for name in names})
    return passed(
        f"{files} libraries of torch find all {found} that they link to.",
        files=files,
        links=found,
        loaded_by_torch=by_torch,
        method="ldd",
    )


def torch_libraries() -> tuple[Path, ...]:
    """Return torch's shared libraries, each once: in its package and in the system's folder.

    Raises:
        CheckFailedError: there is no torch, or it has no library at all.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise CheckFailedError(f"{sys.executable} has no torch.")
    places: list[Iterable[Path]] = []
    for location in spec.submodule_search_locations:
        package = Path(location)
        places += [package.glob("lib/*.so*"), package.glob("_C*.so")]
    # Debian keeps torch's libraries with all others.
    system = Path("/usr/lib") / (sysconfig.get_config_var("MULTIARCH") or "")
    places += [system.glob("libtorch*.so*"), system.glob("libc10*.so*")]
    files = {path.resolve() for place in places for path in place if path.is_file()}
    if not files:
        raise CheckFailedError(f"No shared library of torch was found beside {spec.origin}.")
    return tuple(sorted(files))


def _loaded_by_torch(context: Context) -> frozenset[str]:
    """Return the names of the libraries that are in a process after ``import torch``."""
    context.stage("list what torch loads by itself")
    said = run_program([sys.executable, "-c", _MAPPED], limit_s=50)
    if said.status != 0:
        return frozenset()
    return frozenset(json.loads(said.stdout.strip().splitlines()[-1]))


def _by_loading(files: tuple[Path, ...], context: Context) -> Outcome:
    context.stage("load each library")
    said = run_program(
        [sys.executable, "-c", _LOAD, *map(str, files)], limit_s=50, environment=dict(os.environ)
    )
    if said.status != 0:
        return failed(f"Loading the libraries of torch ended the process: {said.last_line}.")
    wrong = json.loads(said.stdout.strip().splitlines()[-1])
    if wrong:
        return failed(f"Libraries of torch do not load: {'; '.join(wrong.values())}.", errors=wrong)
    return passed(
        f"{len(files)} libraries of torch load (there is no working ldd here).",
        files=len(files),
        method="load",
    )
