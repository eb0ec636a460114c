"""Whether the layers of an image fit into a registry, before any byte is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from builder.facts import RegistryLimit
    from builder.oci import Descriptor

_GB = 1e9


def too_large(
    layers: Sequence[Descriptor], host: str, limits: Sequence[RegistryLimit], *, where: str
) -> Iterator[Problem]:
    """Yield a problem for each layer beyond the limit that is known of a registry.

    Args:
        layers: of the image, from the lowest to the topmost.
        host: of the registry.
        limits: the facts.
        where: the cell.
    """
    limit = next((each for each in limits if each.is_of(host)), None)
    if limit is None:
        return
    for number, layer in enumerate(layers, 1):
        if layer.size > limit.max_layer_bytes:
            yield Problem(
                code="LAYER_TOO_LARGE",
                what=f"layer {number} of {len(layers)} has {layer.size / _GB:.1f} GB, and"
                f" {host} takes {limit.max_layer_bytes / _GB:g} GB at most: {layer.digest}",
                where=where,
                why=limit.source,
                fix="install ROCm, torch and the rest by RUN instructions of their own, or publish"
                " to a registry without that limit",
            )
