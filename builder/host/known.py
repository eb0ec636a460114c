"""From the facts to what the rules know: a plain value without YAML behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.host.rules.facts import DriverWindow, HostFacts, ImageFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.facts import Facts

LABEL_ROCM = "io.rocm-torch.rocm"
LABEL_GFX = "io.rocm-torch.gfx"


def host_facts(facts: Facts, image: ImageFacts | None = None) -> HostFacts:
    """Return what the rules need of ``facts``, and the image that they compare with."""
    return HostFacts(
        products={gfx: entry.products for gfx, entry in facts.gfx_products.items()},
        windows=tuple(
            DriverWindow(
                rocm=entry.rocm,
                oldest=entry.oldest,
                newest=entry.newest,
                oldest_module=entry.oldest_module,
                inferred=entry.confidence == "inferred",
                source=entry.source,
            )
            for entry in facts.driver_windows.values()
        ),
        supported={rocm: entry.gfx for rocm, entry in facts.rocm_support.items()},
        image=image,
    )


def image_facts(
    reference: str, labels: Mapping[str, str], user: str | None, size: int | None
) -> ImageFacts:
    """Return what an image's configuration says, without running it.

    Args:
        reference: its name.
        labels: of the image; ours name its ROCm and its targets.
        user: the user set in it; empty is root.
        size: unpacked, in bytes.
    """
    return ImageFacts(
        reference=reference,
        rocm=labels.get(LABEL_ROCM) or None,
        gfx=tuple(labels.get(LABEL_GFX, "").replace(",", " ").replace(";", " ").split()),
        user=user,
        unpacked_bytes=size,
    )
