"""The verdict over the results of a level: pass, fail or incomplete."""

from __future__ import annotations

from typing import AbstractSet, Any, Sequence

from rocm_torch_selftest.outcome import ERROR, FAIL, NOT_APPLICABLE, PASS, SKIP, Result

INCOMPLETE = "incomplete"
EXIT_CODES = {PASS: 0, FAIL: 2, INCOMPLETE: 3}


def missing_required(results: Sequence[Result], required: AbstractSet[str]) -> tuple[str, ...]:
    """Return the required checks of which nothing is known: skipped, or never run."""
    known = {result.id for result in results if result.status != SKIP}
    skipped = {result.id for result in results if result.status == SKIP}
    return tuple(sorted(name for name in required if name not in known or name in skipped))


def verdict(results: Sequence[Result], required: AbstractSet[str]) -> str:
    """Return the verdict; it is ``pass`` only where something passed and nothing is missing."""
    statuses = {result.status for result in results}
    if statuses - {PASS, SKIP, NOT_APPLICABLE}:
        return FAIL
    if missing_required(results, required) or PASS not in statuses:
        return INCOMPLETE
    return PASS


def summary(results: Sequence[Result], required: AbstractSet[str]) -> dict[str, Any]:
    """Return the document's summary: counts (an error counts as failed) and the verdict."""
    statuses = [result.status for result in results]
    return {
        "passed": statuses.count(PASS),
        "failed": statuses.count(FAIL) + statuses.count(ERROR),
        "skipped": statuses.count(SKIP),
        "verdict": verdict(results, required),
        "missing": list(missing_required(results, required)),
    }
