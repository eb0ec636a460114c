"""What every fact has: a source, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date  # noqa: TC003 - dataclass fields are read at run time
from typing import Any, ClassVar, Literal

Confidence = Literal["seen", "inferred"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that is true of the outside world.

    Attributes:
        source: where it was read: a document, a package, a URL.
        confidence: ``seen`` in the source, or ``inferred``, which may warn and never rejects.
        read: the day on which the source was read; ``None`` where nobody wrote it down.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    source: str
    confidence: Confidence
    read: date | None = None
