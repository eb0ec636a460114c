"""uv, which works out the wheels of an image: one file with its hash for each project.

uv asks for metadata alone and takes a project from the first index that has it, so that a package
of the same name elsewhere never takes its place. Source: uv's documentation of `uv pip compile`;
pylock.toml is PEP 751.
"""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from builder.engines.process import Command
from builder.errors import CouldNotError, Problem
from builder.oci import Digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from packaging.tags import Tag

    from builder.engines.process import Runner

# The oldest C library among our distributions. Wheels with the tag linux_x86_64, which says nothing
# of the C library, are taken as well: the facts know what they need.
PLATFORM = "x86_64-manylinux_2_28"
_GLIBC_MINOR = 28
# Resolution of torch reads a few MB of metadata; a page without hashes makes uv fetch the wheels.
_TIMEOUT = 3600.0


@dataclass(frozen=True, slots=True)
class Sources:
    """Where wheels may come from, as served here.

    Attributes:
        index: the first index; None with a folder.
        flat: whether it is a page of links and no simple index.
        others: the index for what the first has not.
        folder: a folder of wheels in place of all indexes.
    """

    index: str | None = None
    flat: bool = False
    others: str | None = None
    folder: Path | None = None

    def words(self) -> tuple[str, ...]:
        """Return them as options of uv."""
        if self.folder is not None:
            return ("--no-index", "--find-links", str(self.folder))
        first = (("--find-links" if self.flat else "--index"), self.index or "")
        if self.others is not None:
            return (*first, "--default-index", self.others)
        return ("--no-index", *first) if self.flat else ("--default-index", self.index or "")


@dataclass(frozen=True, slots=True)
class ResolvedWheel:
    """One wheel that uv chose; ``url`` may be a ``file:`` one."""

    name: str
    version: str
    file: str
    sha256: Digest
    url: str
    uploaded: datetime | None = None


class UnresolvableError(CouldNotError):
    """uv found no set of wheels."""


class Uv:
    """Calls the program that the package ``uv`` brings.

    Args:
        runner: starts it.
        cache: folder of what it has read.
        environ: the environment; settings of uv and pip in it are not passed on, because they
            could add an index that the matrix does not name.
    """

    def __init__(self, runner: Runner, cache: Path, environ: Mapping[str, str]) -> None:
        self._runner = runner
        kept = {
            name: value for name, value in environ.items() if not name.startswith(("UV_", "PIP_"))
        }
        here = ",".join(filter(None, (environ.get("NO_PROXY", ""), "localhost,127.0.0.1")))
        self._environ = {**kept, "UV_CACHE_DIR": str(cache), "NO_PROXY": here, "NO_COLOR": "1"}

    def resolve(
        self, requirements: tuple[str, ...], python: str, sources: Sources
    ) -> tuple[ResolvedWheel, ...]:
        """Return every wheel that ``requirements`` come to on Linux x86-64, by name.

        Args:
            requirements: PEP 508.
            python: two components.
            sources: where from.

        Raises:
            UnresolvableError: ``WHEELS_NOT_FOUND``.
            CouldNotError: uv is missing, or said something that is no answer.
        """
        argv = (
            *(str(program()), "pip", "compile", "--quiet", "--no-config", "--no-header"),
            *("--format", "pylock.toml", "--python", sys.executable, "--no-python-downloads"),
            *("--python-version", python, "--python-platform", PLATFORM),
            *("--only-binary", ":all:", *sources.words(), "-"),
        )
        done = self._runner.run(
            Command(
                argv,
                timeout=_TIMEOUT,
                env=self._environ,
                stdin="".join(f"{line}\n" for line in requirements).encode(),
            )
        )
        if done.returncode:
            # Its hints are about options that we do not offer.
            said = " ".join(done.tail(40).partition("hint:")[0].split())
            raise UnresolvableError(
                Problem(
                    code="WHEELS_NOT_FOUND",
                    what=f"there are no wheels for Python {python} that are "
                    f"{', '.join(requirements)}",
                    where=str(sources.folder or sources.index),
                    why=said[:1500],
                )
            )
        return read_pylock(done.stdout, python)


def program() -> Path:
    """Return the path of uv; ``CouldNotError`` (``TOOL_MISSING``) where it is not installed."""
    try:
        from uv import find_uv_bin

        return Path(find_uv_bin())
    except (ImportError, FileNotFoundError) as error:
        raise CouldNotError(
            Problem(
                code="TOOL_MISSING",
                what=f"the program uv is not installed: {error}",
                fix="install the package `uv` beside rocm-torch (`pip install uv`)",
            )
        ) from error


@cache
def uv_version() -> str:
    """Return the version of the package ``uv``."""
    return version("uv")


def read_pylock(text: str, python: str) -> tuple[ResolvedWheel, ...]:
    """Read a lock of the form pylock.toml, choosing for each project the wheel that fits best.

    Raises:
        CouldNotError: ``PYLOCK_UNREADABLE``; or ``WHEEL_DOES_NOT_FIT``, where a project has none
            for that Python on Linux x86-64.
    """
    try:
        packages = tomllib.loads(text).get("packages", [])
        return tuple(
            sorted((_chosen(package, python) for package in packages), key=lambda one: one.name)
        )
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise CouldNotError(
            Problem(
                code="PYLOCK_UNREADABLE",
                what=f"uv's answer cannot be read: {error!r}",
                fix="run `uv --version`; one of 0.13 or later is needed",
            )
        ) from error


def _chosen(package: Mapping[str, Any], python: str) -> ResolvedWheel:
    order = {tag: rank for rank, tag in enumerate(_tags(python))}
    fitting = []
    for entry in package.get("wheels", ()):
        file = str(entry.get("name") or _file(str(entry.get("url") or entry["path"])))
        try:
            tags = parse_wheel_filename(file)[3]
        except InvalidWheelFilename:
            continue
        ranks = [order[tag] for tag in tags if tag in order]
        if ranks:
            fitting.append((min(ranks), file, entry))
    if not fitting:
        raise CouldNotError(
            Problem(
                code="WHEEL_DOES_NOT_FIT",
                what=f"{package['name']} {package.get('version')} has no wheel for Python {python} "
                "on Linux x86-64",
                fix="lock another version of it, or put a wheel that fits into a --wheelhouse",
            )
        )
    _, file, entry = min(fitting, key=lambda found: found[:2])
    return ResolvedWheel(
        name=canonicalize_name(package["name"]),
        version=str(package["version"]),
        file=file,
        sha256=Digest(f"sha256:{entry['hashes']['sha256']}"),
        url=str(entry.get("url") or entry["path"]),
        uploaded=_time(entry.get("upload-time")),
    )


def _tags(python: str) -> Iterator[Tag]:
    major, minor = (int(part) for part in python.split("."))
    platforms = [f"manylinux_2_{number}_x86_64" for number in range(_GLIBC_MINOR, 4, -1)]
    platforms.insert(_GLIBC_MINOR - 17 + 1, "manylinux2014_x86_64")
    platforms += ["manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]
    yield from cpython_tags((major, minor), platforms=platforms)
    yield from compatible_tags((major, minor), f"cp{major}{minor}", platforms)


def _file(url: str) -> str:
    return unquote(urlsplit(url).path.rpartition("/")[2])


def _time(value: object) -> datetime | None:
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
