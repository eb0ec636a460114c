"""What one check found: a status, a sentence for people and data for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping

PASS = "pass"  # noqa: S105 - a status, not a secret
FAIL = "fail"
SKIP = "skip"
NOT_APPLICABLE = "not_applicable"
ERROR = "error"
STATUSES = (PASS, FAIL, SKIP, NOT_APPLICABLE, ERROR)


@dataclass(frozen=True)
class Outcome:
    """What a check function returns.

    Attributes:
        status: one of ``STATUSES``. ``skip`` means "could not be tried here", ``not_applicable``
            means "there is nothing to try here", and only the second one leaves a verdict whole.
        detail: one full sentence with the values that were read.
        data: JSON values for programs.
    """

    status: str
    detail: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """An outcome with its place in the document: which check, of which level, how long."""

    id: str
    level: str
    status: str
    seconds: float
    detail: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the entry of this check in the document."""
        return {
            "id": self.id,
            "level": self.level,
            "status": self.status,
            "seconds": round(self.seconds, 3),
            "detail": self.detail,
            "data": dict(self.data),
        }


class CheckFailedError(Exception):
    """Raised deep inside a check: what was tested is not as it must be."""

    def __init__(self, detail: str, **data: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.data = data


def passed(detail: str, **data: Any) -> Outcome:
    """Return the outcome of a check that measured something and found it right."""
    return Outcome(PASS, detail, data)


def failed(detail: str, **data: Any) -> Outcome:
    """Return the outcome of a check that found something wrong."""
    return Outcome(FAIL, detail, data)


def skipped(detail: str, **data: Any) -> Outcome:
    """Return the outcome of a check that cannot be tried here; a required one is then missing."""
    return Outcome(SKIP, detail, data)


def not_applicable(detail: str, **data: Any) -> Outcome:
    """Return the outcome of a check for which there is nothing to try here."""
    return Outcome(NOT_APPLICABLE, detail, data)
