"""Python requirements as the matrix may write them."""

from __future__ import annotations

from packaging.requirements import InvalidRequirement, Requirement


def pinned(text: str) -> Requirement | None:
    """Return a requirement that names one version (``name==1.2``); ``None`` for anything else."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    clauses = list(requirement.specifier)
    exact = len(clauses) == 1 and clauses[0].operator == "==" and "*" not in clauses[0].version
    return requirement if exact and requirement.url is None else None
