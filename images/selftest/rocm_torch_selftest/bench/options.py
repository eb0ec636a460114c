"""What a call of the level ``bench`` asks for, on its way to the checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping

DEFAULT_BUDGET_S = 180.0
MOST_PROCESSES = 2  # where the call does not say how many
# Part of a process's time that is not measuring: import, context, model, first steps.
_MEASURING = 0.4


@dataclass(frozen=True)
class Options:
    """Options of the level.

    Attributes:
        backend: of this torch, by the probe that ran before; ``cpu`` where it is not known.
        products: name, PCI id of the first device, by which peaks are looked up.
        dtype: ``fp32``, ``fp16``, ``bf16`` for all workloads, or None for each one's own.
        share_s: seconds for each workload to measure in.
        processes: fresh processes for each workload; None for as many as the budget has room
            for, at most ``MOST_PROCESSES``.
        deadline: time of day (Unix) at which the budget ends.
        after: for each check, how many come after it.
    """

    backend: str = "cpu"
    products: tuple[str, ...] = ()
    dtype: str | None = None
    share_s: float = 10.0
    processes: int | None = None
    deadline: float = 0.0
    after: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Options:
        """Build the options from what the parent process sent."""
        return cls(**{**document, "products": tuple(document.get("products", ()))})


def share_of(budget_s: float, checks: int) -> float:
    """Return the seconds of measuring that each of ``checks`` checks gets of a budget."""
    return _MEASURING * budget_s / max(1, checks)
