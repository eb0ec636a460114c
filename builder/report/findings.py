"""A finding: what was seen in the output of a run, how bad it is, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warn", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was seen.

    Attributes:
        code: stable upper-case identifier.
        severity: ``error`` breaks the run, ``warn`` may, ``note`` is good to know.
        summary: one sentence with what was read.
        fix: what to write, run or set.
    """

    code: str
    severity: Severity
    summary: str
    fix: str

    def __str__(self) -> str:
        """Tell it in one line."""
        return f"{self.severity} {self.code}: {self.summary}. Fix: {self.fix}"

    def to_json(self) -> dict[str, str]:
        """Return the JSON form."""
        return {
            "code": self.code,
            "severity": self.severity,
            "summary": self.summary,
            "fix": self.fix,
        }
