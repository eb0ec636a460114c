"""A failure that only repeats what a tool said gets the cause that the rules read in it."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from builder.errors import Problem, RocmTorchError
from builder.plan.causes import Output, causes

if TYPE_CHECKING:
    from pathlib import Path

    from builder.plan.causes import Cause

Failure = TypeVar("Failure", bound=RocmTorchError)

# Problems of adapters that quote an engine or a tool: what it said is in their sentence.
_QUOTING = frozenset(
    {
        "BUILD_FAILED",
        "CONTAINER_NOT_STARTED",
        "ENGINE_REFUSED",
        "ENGINE_UNREACHABLE",
        "LOAD_FAILED",
    }
)
# An engine that does not answer is no network that is away.
_SAID = {"ENGINE_UNREACHABLE": frozenset({"CONNECTION_LOST", "NAME_NOT_RESOLVED"})}
_SHOWN = 3  # causes beside one failure: what comes later mostly follows from them
_SDK = ("docker", "requests", "urllib3")


def explained(error: Failure, log: Path | None = None) -> Failure:
    """Return ``error`` with the causes of its quoting problems before them, the first one first.

    Args:
        error: what an adapter raised; others are returned as they are.
        log: file with all that the tool said, where there is one.
    """
    problems: list[Problem] = []
    for problem in error.problems:
        if problem.code in _QUOTING:
            known = {one.code for one in (*error.problems, *problems)}
            known |= _SAID.get(problem.code, frozenset())
            text = log.read_text("utf-8", "replace") if log and log.is_file() else problem.what
            output = Output(text, exit_code=1, versions=_versions())
            problems += [
                replace(_told(cause), where=problem.where)
                for cause in causes(output)[:_SHOWN]
                if cause.code not in known
            ]
        problems.append(problem)
    if tuple(problems) == error.problems:
        return error
    told = type(error)(problems)
    told.answer = error.answer
    return told


def _told(cause: Cause) -> Problem:
    """Say whether trying again makes sense, where the fix does not."""
    if not cause.retryable:
        return cause.problem
    wait = f" after {cause.wait_seconds:g} s" if cause.wait_seconds else ""
    fix = f"{cause.problem.fix} (it can succeed unchanged{wait})"
    return replace(cause.problem, fix=fix)


def _versions() -> dict[str, str]:
    found = {}
    for name in _SDK:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
