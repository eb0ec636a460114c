"""Whether a tag may move: never to an older image because an older run ended last.

What counts is the order of runs where both sides say it, else the epoch, else the versions. Two
images that are equally old may take each other's place: then the last one to publish wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.matrix.versions import version_key

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Age:
    """How new an image is.

    Attributes:
        sequence: number of the run that published it; runs are numbered as they start. ``None``
            where that run had no number.
        rocm: of its cell; ``None`` on the CPU.
        torch: of its cell.
        epoch: seconds since 1970, the one time that the image contains.
    """

    sequence: int | None
    rocm: str | None
    torch: str
    epoch: int

    @classmethod
    def of_labels(cls, labels: Mapping[str, str], epoch: int, sequence: int | None) -> Age | None:
        """Read the labels of an image; ``None`` where it is none of ours."""
        torch, rocm = labels.get("io.rocm-torch.torch"), labels.get("io.rocm-torch.rocm")
        return cls(sequence, rocm or None, torch, epoch) if torch else None


def newer_there(ours: Age, there: Age) -> str | None:
    """Return why what a tag names is newer than what it would name, or ``None``."""
    if ours.sequence is not None and there.sequence is not None:
        if ours.sequence < there.sequence:
            return f"run {there.sequence} put it there, and this is run {ours.sequence}"
        return None
    if ours.epoch != there.epoch:
        told = f"its epoch is {there.epoch}, and that of this image is {ours.epoch}"
        return told if there.epoch > ours.epoch else None
    if _versions(there) > _versions(ours):
        return f"it has ROCm {there.rocm}, torch {there.torch}, from the same epoch"
    return None


def _versions(age: Age) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return version_key(age.rocm) if age.rocm else (), version_key(age.torch)
