"""An objection to a combination: what every rule answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from builder.facts import Confidence


@dataclass(frozen=True, slots=True)
class Verdict:
    """An objection to a combination.

    Attributes:
        code: stable upper-case identifier of the reason.
        reason: one sentence with the values.
        source: the source of the fact that it rests on.
        confidence: of that fact.
        warns_only: whether it is a warning even though the fact was seen.
    """

    code: str
    reason: str
    source: str
    confidence: Confidence = "seen"
    warns_only: bool = False

    @property
    def rejects(self) -> bool:
        """Tell whether the combination is dropped; an inferred fact never drops one."""
        return self.confidence == "seen" and not self.warns_only
