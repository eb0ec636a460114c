"""Versions as the axes write them: normalised to three components and compared as versions."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Collection

VERSION_PATTERN = r"^[0-9]{1,4}(\.[0-9]{1,4}){1,2}$"
PYTHON_PATTERN = r"^[1-9]\.[0-9]{1,2}t?$"
_VERSION = re.compile(VERSION_PATTERN.removesuffix("$") + r"\Z")
_PYTHON = re.compile(PYTHON_PATTERN.removesuffix("$") + r"\Z")


@lru_cache(maxsize=4096)
def version_key(text: str) -> tuple[int, int, int]:
    """Return the key by which versions sort: 10.0 after 7.14 after 7.2.

    Raises:
        ValueError: ``text`` has not two or three numbers.
    """
    if not _VERSION.match(text):
        raise ValueError(f"not a version of two or three numbers: {text!r}")
    release = (*Version(text).release, 0)
    return release[0], release[1], release[2]


def normalise(text: str) -> str:
    """Return ``text`` with three components (``6.2.0`` for ``6.2``), else ``ValueError``."""
    return ".".join(str(part) for part in version_key(text))


def series(text: str) -> str:
    """Return the first two components: ``6.2`` for ``6.2.4``."""
    major, minor, _ = version_key(text)
    return f"{major}.{minor}"


def is_exact(text: str) -> bool:
    """Tell whether ``text`` names one release (three components) and not a series (two)."""
    return text.count(".") == 2


def resolve(text: str, available: Collection[str]) -> str | None:
    """Return the release that an axis value means: itself, or the newest patch of a series.

    Args:
        text: a version of two or three components.
        available: the releases that exist, with three components.

    Returns:
        The release, or ``None`` where nothing that exists fits.
    """
    if is_exact(text):
        exact = normalise(text)
        return exact if exact in available else None
    wanted = version_key(text)[:2]
    fitting = [version for version in available if version_key(version)[:2] == wanted]
    return max(fitting, key=version_key, default=None)


def compare(one: str, other: str) -> int:
    """Return -1, 0 or 1 where ``one`` is older than, equal to or newer than ``other``.

    Takes what the world writes: ``2.9.0rc1``, ``v2.8.1-11``. What is no version by PEP 440 raises
    ``packaging.version.InvalidVersion``, a ``ValueError``.
    """
    left, right = Version(one), Version(other)
    return (left > right) - (left < right)


@lru_cache(maxsize=1024)
def python_key(text: str) -> tuple[int, int, int]:
    """Return the key by which Pythons sort; the free-threaded ``3.13t`` follows ``3.13``.

    Raises:
        ValueError: ``text`` is not like ``3.13`` or ``3.13t``.
    """
    if not _PYTHON.match(text):
        raise ValueError(f"not a Python version of two numbers: {text!r}")
    major, minor = text.removesuffix("t").split(".")
    return int(major), int(minor), int(text.endswith("t"))


def normalise_python(text: str) -> str:
    """Return ``text`` without leading zeros; ``ValueError`` where it is no Python version."""
    major, minor, threads = python_key(text)
    return f"{major}.{minor}{'t' if threads else ''}"


def python_tag(text: str) -> str:
    """Return the form in ids and tags: ``py313`` for ``3.13``.

    The major number has one digit, so no two versions share a form.
    """
    return "py" + normalise_python(text).replace(".", "", 1)
