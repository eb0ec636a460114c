"""What a problem must and must not tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from builder.errors import Problem


def check_told(problem: Problem, says: Iterable[str], never: Iterable[str] = ()) -> None:
    """Compare with what people read: the whole problem, whichever of its parts says it."""
    told = str(problem)
    missing = [word for word in says if word not in told]
    assert not missing, f"{missing} not in: {told}"
    assert not [word for word in never if word in told], told
    assert "unknown" not in problem.what, problem.what
