"""Whether a GPU is served: torch and its BLAS must both have code that runs on it.

Listed is not enough: wheels of torch exist that list a target for which their rocBLAS ships no
kernels; the first matrix product then aborts (ROCm/legacy-rocm-build issue 4625).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Sequence

from rocm_torch_selftest.arch.targets import in_both, served_by
from rocm_torch_selftest.known_lines import ARCH_NOT_IN_TORCH

if TYPE_CHECKING:
    from rocm_torch_selftest.arch.files import Offer

ARCH_NOT_IN_BLAS = "ARCH_NOT_IN_BLAS"
ARCH_UNKNOWN = "ARCH_UNKNOWN"
TORCH = "torch"
ROCBLAS = "rocblas"
HIPBLASLT = "hipblaslt"


@dataclass(frozen=True)
class Serving:
    """What the files say about one target.

    Attributes:
        served: True or False; None where the files do not tell.
        code: why not, as a stable word; empty where it is served.
        detail: one sentence.
        targets: the targets that torch and rocBLAS both serve.
        notes: what is less than it could be, and no failure.
    """

    served: bool | None
    code: str
    detail: str
    targets: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "served": self.served,
            "code": self.code or None,
            "detail": self.detail,
            "targets": list(self.targets),
            "notes": list(self.notes),
        }


def judge(target: str, backend: str, offers: Sequence[Offer]) -> Serving:
    """Judge whether a target is served.

    Args:
        target: ``gfx1100``, ``sm_90``; features are looked through.
        backend: of torch; only ``hip`` needs BLAS kernels for each target beside torch's.
        offers: what each library has; an empty one is not known.
    """
    known = {offer.library: offer.targets for offer in offers if offer.targets}
    theirs = known.get(TORCH, ())
    if backend == "cpu":
        detail = f"This torch is built for the CPU: it has no code for {target}."
        return Serving(False, ARCH_NOT_IN_TORCH, detail, ())
    if not theirs:
        sources = "; ".join(f"{offer.library}: {offer.source}" for offer in offers)
        return Serving(
            None, ARCH_UNKNOWN, f"Torch's targets cannot be read from its files ({sources}).", ()
        )
    blas = known.get(ROCBLAS)
    both = in_both(theirs, blas) if backend == "hip" and blas else tuple(sorted(set(theirs)))
    by_torch = served_by(theirs, target)
    if not by_torch:
        detail = f"Torch has no code for {target}; it has code for {', '.join(theirs)}."
        return Serving(False, ARCH_NOT_IN_TORCH, detail, both)
    if backend != "hip":
        return Serving(True, "", f"Torch serves {target} by its {', '.join(by_torch)}.", both)
    if blas is None:
        detail = f"Torch has code for {target}, and no kernel files of rocBLAS were found."
        return Serving(None, ARCH_UNKNOWN, detail, both)
    by_blas = served_by(blas, target)
    if not by_blas:
        detail = (
            f"Torch has code for {target} and rocBLAS has no kernels for it, so that matrix "
            f"products abort; rocBLAS has kernels for {', '.join(blas)}."
        )
        return Serving(False, ARCH_NOT_IN_BLAS, detail, both)
    notes = []
    if HIPBLASLT in known and not served_by(known[HIPBLASLT], target):
        notes.append(f"hipBLASLt has no kernels for {target}: hipBLAS computes in its place.")
    detail = (
        f"Torch serves {target} by its {', '.join(by_torch)}, rocBLAS by its {', '.join(by_blas)}."
    )
    return Serving(True, "", detail, both, tuple(notes))
