"""Kernel caches on disk: where they are, whether they were cold, and whether they work at all."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

EFFECTIVE = "CACHE_EFFECTIVE"
NOT_NEEDED = "CACHE_NOT_NEEDED"
NOT_EFFECTIVE = "CACHE_NOT_EFFECTIVE"
UNKNOWN = "CACHE_UNKNOWN"
_GAIN = 0.8  # a process that found a cache takes at most this part of one that did not
_SLOW = 2.0  # and one that searches anew takes more than this many times the reference

# Variable that moves the cache, and its usual place below the home directory.
_PLACES = {
    "miopen-db": ("MIOPEN_USER_DB_PATH", ".config/miopen"),
    "miopen-kernels": ("MIOPEN_CUSTOM_CACHE_DIR", ".cache/miopen"),
    "comgr": ("AMD_COMGR_CACHE_DIR", ".cache/comgr"),
    "triton": ("TRITON_CACHE_DIR", ".triton/cache"),
    "cuda": ("CUDA_CACHE_PATH", ".nv/ComputeCache"),
}
MOST_FILES = 20_000


@dataclass(frozen=True)
class CacheVerdict:
    """What several processes that share a cache show about it."""

    code: str
    detail: str


def count_files(environment: Mapping[str, str], home: Path) -> dict[str, int]:
    """Return how many files each kernel cache holds; counting ends at ``MOST_FILES``."""
    found = {}
    for name, (variable, usual) in _PLACES.items():
        folder = Path(environment.get(variable) or home / usual)
        found[name] = 0
        for path in folder.rglob("*") if folder.is_dir() else ():
            found[name] += path.is_file()
            if found[name] >= MOST_FILES:
                break
    return found


def temperature(before: Mapping[str, int], backend: str) -> str | None:
    """Return ``cold`` or ``warm``, or None where the backend keeps no kernels on disk.

    On a CPU nothing is kept, and cuDNN searches anew in each process.
    """
    if backend != "hip":
        return None
    return "warm" if before["miopen-db"] or before["miopen-kernels"] else "cold"


def judge(
    processes_s: Sequence[float],
    files: Sequence[Sequence[int]],
    reference_s: float | None,
) -> CacheVerdict:
    """Say whether a cache that processes share, one after the other, does its work.

    A cache that never hits makes every run as slow as the first: steady, and wrong.

    Args:
        processes_s: seconds that each process needed, in order.
        files: (before, after) of each process: how many files the cache held.
        reference_s: what a process with a working cache needs; None where nobody knows.
    """
    if len(processes_s) < 2:
        return CacheVerdict(UNKNOWN, "One process alone cannot show whether the cache works.")
    first, later = processes_s[0], statistics.median(processes_s[1:])
    told = f"process 1 took {first:.4g} s, later ones {later:.4g} s"
    if reference_s is None:
        if later <= _GAIN * first:
            return CacheVerdict(EFFECTIVE, f"The cache works: {told}.")
        return CacheVerdict(UNKNOWN, f"No gain and no reference to compare with: {told}.")
    if later <= _SLOW * reference_s:
        gained = later <= _GAIN * first
        code, words = (EFFECTIVE, "works") if gained else (NOT_NEEDED, "was not needed")
        return CacheVerdict(code, f"The cache {words}: {told}.")
    if later <= _GAIN * first and not _grew_each_time(files):
        return CacheVerdict(EFFECTIVE, f"The cache works: {told}.")
    return CacheVerdict(
        NOT_EFFECTIVE,
        f"The kernel cache has no effect: {told}, and with a working cache it is "
        f"{reference_s:.4g} s; {_files_told(files)}. The times show searching and compiling, "
        "not the speed of this build: the result is not valid.",
    )


def _grew_each_time(files: Sequence[Sequence[int]]) -> bool:
    return bool(files) and all(after > before for before, after in files)


def _files_told(files: Sequence[Sequence[int]]) -> str:
    if not files:
        return "the cache directory was not looked at"
    if all(after == before for before, after in files):
        return f"the cache directory did not change ({files[0][0]} files)"
    if _grew_each_time(files):
        return "each process added files to it, so what is kept is not found again"
    return "it was written once and is not found again"


def files_of(counts: Mapping[str, Any]) -> int:
    """Return the files of MIOpen's caches, the ones that are searched for."""
    return int(counts["miopen-db"]) + int(counts["miopen-kernels"])
