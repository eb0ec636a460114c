"""The order of wheel versions that end in a ROCm release.

PEP 440 compares a local segment with letters in it as text: to pip ``+rocm7.15`` is newer than
``+rocm10.1``. Exact pins are all that we install; where the newest is asked for, the base version
and the release are split and compared as numbers.
Source: TheRock issue 7183.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Iterable

_ROCM = re.compile(r"(?:^|\.)rocm(\d+(?:\.\d+)*)(.*)")
Key = tuple[Version, tuple[int, ...], bool, tuple[tuple[int, str], ...], str]


def wheel_version_key(version: str) -> Key:
    """Return the key by which versions sort: base version, then ROCm release, then its suffix.

    A release without suffix is newer than a preview of it (``rocm10.1.0a20260807``).

    Raises:
        ValueError: it is no version.
    """
    try:
        parsed = Version(version)
    except InvalidVersion as error:
        raise ValueError(f"not a version: {version!r}") from error
    base, local = Version(parsed.public), parsed.local or ""
    found = _ROCM.search(local)
    if found is None:
        return base, (), True, _pieces(local), local
    release = [int(part) for part in found[1].split(".")]
    while release and release[-1] == 0:
        release.pop()
    return base, tuple(release), not found[2], _pieces(found[2]), local


def newest(versions: Iterable[str]) -> str:
    """Return the newest of ``versions``; ``ValueError`` where there is none."""
    return max(versions, key=wheel_version_key)


def _pieces(text: str) -> tuple[tuple[int, str], ...]:
    """Split a suffix where letters and digits meet, so that its numbers compare as numbers."""
    return tuple(
        (int(piece), "") if piece.isdigit() else (-1, piece)
        for piece in re.findall(r"\d+|[^\d.]+", text)
    )
