"""Why AMD has no image for a combination."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.matrix.families.rocm_dev import torch_source
from builder.matrix.families.rocm_pytorch import upstream_image
from builder.matrix.rules.text import python_of, versions
from builder.matrix.rules.verdict import Verdict
from builder.matrix.versions import version_key

if TYPE_CHECKING:
    from builder.facts import Facts
    from builder.matrix.families import Combination


def no_such_upstream_tag(combination: Combination, facts: Facts) -> Verdict | None:
    """Object where AMD publishes no tag of exactly these values; warn of one that nobody saw."""
    image = upstream_image(combination, facts)
    if image is not None:
        if image.confidence == "seen":
            return None
        what = f"The tag {image.tag} of rocm/pytorch was concluded from its siblings, not seen."
        return Verdict("UPSTREAM_TAG_INFERRED", what, image.source, image.confidence)
    rocm = combination.rocm or ""
    siblings = [key for key in facts.upstream_images if key[1] == rocm]
    if not siblings:
        has = f"it publishes none of ROCm {rocm} at all"
    else:
        pairs = {(distro, python) for distro, _, _, python in siblings}
        told = ", ".join(f"Python {python} on {distro}" for distro, python in sorted(pairs))
        torches = sorted({torch for _, _, torch, _ in siblings}, key=version_key)
        has = f"its ROCm {rocm} images have {told}, with torch {', '.join(torches)}"
    return Verdict(
        "NO_SUCH_UPSTREAM_TAG",
        f"AMD publishes no rocm/pytorch image with ROCm {rocm}, torch {combination.torch} and "
        f"Python {combination.python} on {combination.distro}: {has}.",
        "the tags of docker.io/rocm/pytorch that were seen (facts: upstream_images)",
    )


def no_such_dev_image(combination: Combination, facts: Facts) -> Verdict | None:
    """Object where AMD publishes no image with compilers of that ROCm on that distribution."""
    if (combination.distro, combination.rocm or "") in facts.dev_images:
        return None
    here = versions(rocm for distro, rocm in facts.dev_images if distro == combination.distro)
    return Verdict(
        "NO_SUCH_DEV_IMAGE",
        f"AMD publishes no rocm/dev image with ROCm {combination.rocm} on {combination.distro}; "
        f"for that distribution it has: {here or 'none'}.",
        "the tags of docker.io/rocm/dev-* that were seen (facts: dev_images)",
    )


def distro_not_supported(combination: Combination, facts: Facts) -> Verdict | None:
    """Object where AMD's compilers are not made for the distribution."""
    support = facts.rocm_support.get(combination.rocm or "")
    if support is None or combination.distro in support.distros:
        return None
    return Verdict(
        "DISTRO_NOT_SUPPORTED",
        f"AMD does not list {combination.distro} for ROCm {combination.rocm}, and the compilers "
        f"of the family rocm-dev are made for: {', '.join(support.distros)}.",
        support.source,
        support.confidence,
    )


def no_torch_for_dev_image(combination: Combination, facts: Facts) -> Verdict | None:
    """Object where no index has that torch, or no wheel of it for that Python."""
    found = torch_source(combination, facts)
    if found is None:
        return Verdict(
            "INDEX_HAS_NO_SUCH_TORCH",
            f"No index has torch {combination.torch} for the series of ROCm {combination.rocm}.",
            "facts: torch_wheels and amd_wheels",
        )
    source = found[1] if isinstance(found, tuple) else found
    return python_of(source, source.index, combination)
