"""What gets no security fixes any more: warnings, never rejections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.matrix.rules.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from builder.facts import Facts
    from builder.matrix.cells import Cell


def ended(cell: Cell, facts: Facts, today: date) -> Iterator[Verdict]:
    """Yield a warning for the distribution and the Python of a cell whose fixes have ended."""
    for axis, value in (("distro", cell.distro), ("python", cell.python.removesuffix("t"))):
        lifecycle = facts.lifecycles.get((axis, value))
        if lifecycle is not None and lifecycle.end_of_life < today:
            name = f"Python {value}" if axis == "python" else facts.distributions[value].title
            yield Verdict(
                f"{axis.upper()}_END_OF_LIFE",
                f"{name} has had no security fixes since {lifecycle.end_of_life}.",
                lifecycle.source,
                lifecycle.confidence,
                warns_only=True,
            )
