"""Names of GPU targets and which of them serve which.

gfx rules follow LLVM's "User Guide for AMDGPU Backend" (target features and generic processors),
sm rules the CUDA compatibility guide (a cubin serves later minor versions of its major one, PTX
serves every later one, ``a`` variants serve their own version only).
"""

from __future__ import annotations

import re
from typing import Iterable

GENERIC = {
    "gfx9-generic": ("gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"),
    "gfx9-4-generic": ("gfx940", "gfx941", "gfx942", "gfx950"),
    "gfx10-1-generic": ("gfx1010", "gfx1011", "gfx1012", "gfx1013"),
    "gfx10-3-generic": (
        *("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    ),
    "gfx11-generic": (
        *("gfx1100", "gfx1101", "gfx1102", "gfx1103"),
        *("gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    ),
    "gfx12-generic": ("gfx1200", "gfx1201"),
}
_GFX = re.compile(r"gfx[0-9]{1,2}(?:-[0-9])?-generic|gfx[0-9]+[0-9a-f]{2}")
_IN_NAME = re.compile(r"(gfx[0-9]{1,2}(?:-[0-9])?-generic|gfx[0-9]+[0-9a-fx]{2})(?![0-9a-z])")
_SM = re.compile(r"(sm|compute)_([0-9]+)([0-9])([af]?)")


def stripped(target: str) -> str:
    """Return a target without its features: ``gfx90a:sramecc+:xnack-`` is ``gfx90a``."""
    return target.strip().split(":")[0].lower()


def is_target(name: str) -> bool:
    """Tell whether a name is that of a gfx or sm target, features or not."""
    return bool(_GFX.fullmatch(stripped(name)) or _SM.fullmatch(stripped(name)))


def in_file_name(name: str) -> str | None:
    """Return the target that a kernel file is for, or None where it is for all of them.

    The last one in the name counts, up to ``-`` or ``.``, so that ``-xnack+`` variants belong to
    their target; ``x`` stands for any digit (``gfx11xx``).
    """
    found = _IN_NAME.findall(name)
    return str(found[-1]) if found else None


def serves(offered: str, target: str) -> bool:
    """Tell whether code for ``offered`` runs on a GPU of ``target``."""
    have, want = stripped(offered), stripped(target)
    if have == want or want in GENERIC.get(have, ()):
        return True
    if have.startswith("gfx") and "x" in have[3:]:
        return re.fullmatch(have[:3] + have[3:].replace("x", "[0-9a-f]"), want) is not None
    return _sm_serves(have, want)


def _sm_serves(have: str, want: str) -> bool:
    offered, wanted = _SM.fullmatch(have), _SM.fullmatch(want)
    if offered is None or wanted is None:
        return False
    kind, major, minor, variant = offered.groups()
    theirs = (int(wanted.group(2)), int(wanted.group(3)))
    ours = (int(major), int(minor))
    if variant == "a":
        return ours == theirs
    if kind == "compute" and not variant:
        return ours <= theirs
    return ours[0] == theirs[0] and ours[1] <= theirs[1]


def served_by(offered: Iterable[str], target: str) -> tuple[str, ...]:
    """Return those of the offered targets whose code runs on ``target``."""
    return tuple(sorted(name for name in offered if serves(name, target)))


def in_both(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    """Return the targets that two lists both serve, features and generic targets looked through."""
    left, right = _concrete(first), _concrete(second)
    named = left | right
    return tuple(
        sorted(
            name
            for name in named
            if "x" not in name[3:]
            and any(serves(offered, name) for offered in left)
            and any(serves(offered, name) for offered in right)
        )
    )


def _concrete(names: Iterable[str]) -> set[str]:
    """Return the targets without features, each generic one with those of its family."""
    found: set[str] = set()
    for name in names:
        plain = stripped(name)
        found.update((plain, *GENERIC.get(plain, ())))
    return found
