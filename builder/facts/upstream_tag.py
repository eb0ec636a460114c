"""What a tag of ``rocm/pytorch`` says of itself: read for people and for checks, never assembled.

AMD's spelling varies: ``rocm6.3_ubuntu24.04_py3.12_pytorch_release_2.4.0``, ``release-2.1.2``,
``pytorch_2.0.1``, ``pytorch`` alone, and no such part at all: such an image is one to build torch
on. Facts about single tags are in ``upstream_images.yaml``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["torch", "without-torch", "moving", "other"]
UNVERSIONED = "unversioned"
_TAG = re.compile(
    r"rocm(?P<rocm>[0-9]+(?:\.[0-9]+){1,2})"
    r"_(?P<distro>[a-z]+[0-9.]+)"
    r"_py(?P<python>[0-9]\.[0-9]+(?:\.[0-9]+)?)"
    r"(?P<torch>_pytorch(?:_release)?(?:[_-](?P<version>[0-9]+(?:\.[0-9]+)+))?)?"
    r"(?:_(?P<variant>[A-Za-z0-9_.-]+))?"
)


@dataclass(frozen=True, slots=True)
class UpstreamTag:
    """A tag, read.

    Attributes:
        kind: ``torch``: with torch in it. ``without-torch``: a base to build torch on.
            ``moving``: names another image from time to time. ``other``: not read.
        rocm: as spelt, where it is said; likewise the next two.
        distro: name and version.
        python: as spelt.
        torch: version, or ``unversioned``; ``None`` where there is no torch.
        variant: what stands behind it (``preview``, ``staging``, ``base``), where there is any.
    """

    kind: Kind
    rocm: str | None = None
    distro: str | None = None
    python: str | None = None
    torch: str | None = None
    variant: str | None = None

    @property
    def usable(self) -> bool:
        """Tell whether an image under this tag has a torch to build on, and a plain one."""
        return self.kind == "torch" and self.variant is None


def read_upstream_tag(tag: str) -> UpstreamTag:
    """Read a tag; what is not spelt like AMD's is ``other``."""
    if tag == "latest" or tag.startswith("latest-"):
        return UpstreamTag("moving", variant=tag.partition("-")[2] or None)
    found = _TAG.fullmatch(tag)
    if found is None:
        return UpstreamTag("other")
    has_torch = found["torch"] is not None
    return UpstreamTag(
        kind="torch" if has_torch else "without-torch",
        rocm=found["rocm"],
        distro=found["distro"],
        python=found["python"],
        torch=(found["version"] or UNVERSIONED) if has_torch else None,
        variant=found["variant"],
    )
