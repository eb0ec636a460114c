"""One row of the table of checks, and the words that rows are made of."""

from __future__ import annotations

from dataclasses import dataclass

CPU = "cpu"
HIP = "hip"
CUDA = "cuda"
EVERY_BACKEND = (CPU, HIP, CUDA)

SMOKE = "smoke"
GPU = "gpu"
BENCH = "bench"
LEVELS = (SMOKE, GPU, BENCH)
ENVIRONMENT = "environment"  # not a level: probes that fill the document's environment


@dataclass(frozen=True)
class Check:
    """One row of the table.

    Attributes:
        id: stable name; never used again for something else.
        level: the level that it belongs to.
        run: ``module:function``; a module name without a dot lies in ``checks/``. The function
            takes a ``Context`` and returns an ``Outcome``.
        about: what it shows, as a short sentence for ``--list``.
        required: backends for which the level is not complete without it.
        needs_torch: it imports torch, so it is not tried once torch is known not to import.
        alone: it gets a process of its own; others of one kind share one.
        limit_s: seconds until it counts as hanging and is ended.
    """

    id: str
    level: str
    run: str
    about: str
    required: tuple[str, ...] = EVERY_BACKEND
    needs_torch: bool = True
    alone: bool = False
    limit_s: float = 60.0
