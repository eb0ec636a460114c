"""How rules write lists of values, and what several of them look up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.matrix.rules.verdict import Verdict
from builder.matrix.versions import python_key, version_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from builder.facts import AmdWheel, Facts, TorchWheel
    from builder.matrix.families import Combination


def versions(values: Iterable[str]) -> str:
    """Return versions in order, each once, joined by commas."""
    return ", ".join(sorted(set(values), key=version_key))


def numbers(text: str) -> tuple[int, ...]:
    """Return the parts of a version such as ``2.28`` for comparison."""
    return tuple(int(part) for part in text.split("."))


def title(combination: Combination, facts: Facts) -> str:
    """Return the name of a distribution for people."""
    distribution = facts.distributions.get(combination.distro)
    return distribution.title if distribution else combination.distro


def python_of(
    source: TorchWheel | AmdWheel, index: str, combination: Combination
) -> Verdict | None:
    """Object where a wheel is not there for the Python asked for."""
    if combination.python in source.pythons:
        return None
    pythons = ", ".join(sorted(source.pythons, key=python_key))
    return Verdict(
        "WHEEL_HAS_NO_SUCH_PYTHON",
        f"torch {source.torch} has no wheel for Python {combination.python} on {index}; "
        f"it has wheels for Python {pythons}.",
        source.source,
        source.confidence,
    )
