"""What a lint finds, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from builder.errors import Problem

Severity = Literal["error", "warning"]
Builder = Literal["buildkit", "classic"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong or risky; ``problem.where`` is ``file:line``."""

    problem: Problem
    severity: Severity = "error"
