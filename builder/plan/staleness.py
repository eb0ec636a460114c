"""Why a cell must be built again, in words. No reason means that nothing has to be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from builder.plan.inputs import Inputs

_WORDS = {
    "context/Dockerfile": "the rendered Dockerfile changed",
    "context/cell.json": "what the image is expected to report changed",
    "rootfs": "files in images/rootfs changed",
    "selftest": "the self-test changed",
    "lock/base": "base moved",
    "lock/archives": "archive moved",
    "lock/epoch": "epoch changed",
    "format": "the builder's format version changed",
}


def build_reasons(inputs: Inputs, built: Inputs | None, *, present: bool) -> tuple[str, ...]:
    """Return why a cell is stale; empty when its image is current.

    Args:
        inputs: what would be built now.
        built: the inputs of the last finished build, if there is one.
        present: whether the image of that build is still in the local layout.
    """
    if built is None:
        return ("never built",)
    changed = inputs.changed_since(built)
    if changed:
        return tuple(_WORDS.get(name, f"{name} changed") for name in changed)
    return () if present else ("the built image is no longer in the local layout",)
