"""The gate: the rules that a candidate must pass to get release tags. A ``no`` has reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date

    from builder.matrix.cells import Policy

Outcome = Literal["pass", "fail", "incomplete"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What the gate says: ``pass`` opens it; ``waived`` has the levels let through by a waiver."""

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    waived: tuple[str, ...] = ()


def worst(verdicts: Iterable[str]) -> str | None:
    """Return what tests of one level on several GPU families come to: one pass is enough.

    A failure on any of them is a failure; None where there was no test.
    """
    found = list(verdicts)
    for verdict in ("fail", "pass"):
        if verdict in found:
            return verdict
    return found[0] if found else None


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
            waived.append(level)
        else:
            gaps.append(f"level {level} is {verdict or 'not run'}")
    if policy.size_budget_bytes is not None and size > policy.size_budget_bytes:
        failures.append(f"{size} bytes are more than the budget of {policy.size_budget_bytes}")
    outcome: Outcome = "fail" if failures else "incomplete" if gaps else "pass"
    return Decision(outcome, tuple(failures + gaps), tuple(waived))
