"""The gate: the rules that a candidate must pass to get release tags. A ``no`` has reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

    from builder.matrix.cells import Policy

Outcome = Literal["pass", "fail", "incomplete"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What the gate says: ``pass`` opens it; ``waived`` names levels let through by a waiver."""

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    waived: tuple[str, ...] = ()


def judge(policy: Policy, verdicts: Mapping[str, str], *, size: int, today: date) -> Decision:
    """Judge one candidate.

    Args:
        policy: of the cell's lane.
        verdicts: verdict by level of the self-test, for this very digest.
        size: compressed bytes of the image.
        today: the day on which a waiver must still hold.
    """
    failures, gaps, waived = [], [], []
    waiver = policy.waiver if policy.waiver and today <= policy.waiver.until else None
    for level in policy.levels:
        verdict = verdicts.get(level)
        if verdict == "pass":
            continue
        if verdict == "fail":
            failures.append(f"level {level} failed")
        elif waiver is not None and level in waiver.levels:
            waived.append(f"{level}, until {waiver.until}: {waiver.reason}")
        else:
            gaps.append(f"level {level} is {verdict or 'not run'}")
    if policy.size_budget_bytes is not None and size > policy.size_budget_bytes:
        failures.append(f"{size} bytes are more than the budget of {policy.size_budget_bytes}")
    outcome: Outcome = "fail" if failures else "incomplete" if gaps else "pass"
    return Decision(outcome, tuple(failures + gaps), tuple(waived))
