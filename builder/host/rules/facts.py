"""What the rules must know of the outside world and of the image: one plain frozen value.

The same value is written as JSON into every image, where no YAML can be read.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SCHEMA = "rocm-torch/host-facts/v1"


@dataclass(frozen=True)
class DriverWindow:
    """The host drivers that AMD tested with a ROCm series.

    Attributes:
        rocm: two components.
        oldest: release of the driver, ``6.4`` or ``30.10``.
        newest: the same.
        oldest_module: version that the module of the oldest one reports, which is numbered
            otherwise; ``None`` where it is not known.
        inferred: whether the window was derived and not read.
        source: where it was read.
    """

    rocm: str
    oldest: str
    newest: str
    oldest_module: str | None = None
    inferred: bool = True
    source: str = ""


@dataclass(frozen=True)
class ImageFacts:
    """What is known of the image before it is run.

    Attributes:
        reference: its name.
        rocm: its ROCm release; ``None`` where its labels do not say.
        gfx: targets that it has kernels for; empty where they do not say.
        user: the user that it runs as; ``None`` where that is not known.
        unpacked_bytes: its size without compression.
    """

    reference: str = "image"
    rocm: str | None = None
    gfx: tuple[str, ...] = ()
    user: str | None = None
    unpacked_bytes: int | None = None

    @property
    def uid(self) -> int | None:
        """Return the numeric user; a name other than root is some user that is not root."""
        if self.user is None:
            return None
        name = self.user.partition(":")[0]
        return int(name) if name.isdigit() else 0 if name in {"", "root"} else 1000


@dataclass(frozen=True)
class HostFacts:
    """Facts with their sources, and the image in question where there is one.

    Attributes:
        products: names of products, by target.
        windows: tested drivers, by ROCm series.
        supported: targets that AMD lists, by ROCm release.
        image: the image that is to run, or that this is.
    """

    products: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    windows: tuple[DriverWindow, ...] = ()
    supported: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    image: ImageFacts | None = None

    def window(self, rocm: str) -> DriverWindow | None:
        """Return the window of the series that a release belongs to."""
        series = ".".join(rocm.split(".")[:2])
        return next((one for one in self.windows if one.rocm == series), None)

    def product(self, gfx: str | None) -> str:
        """Return the target with the products that it is, as far as known."""
        names = self.products.get(gfx or "", ())
        return "{} ({})".format(gfx, ", ".join(names)) if names else str(gfx)


def facts_to_document(facts: HostFacts) -> dict[str, Any]:
    """Return the JSON form."""
    return {
        "schema": SCHEMA,
        "products": {gfx: list(names) for gfx, names in sorted(facts.products.items())},
        "windows": [asdict(one) for one in facts.windows],
        "supported": {rocm: list(gfx) for rocm, gfx in sorted(facts.supported.items())},
    }


def facts_from_document(document: Mapping[str, Any]) -> HostFacts:
    """Read the JSON form.

    Raises:
        ValueError: it is of another schema.
    """
    if document.get("schema") != SCHEMA:
        raise ValueError(f"its schema is {document.get('schema')!r}, not {SCHEMA!r}")
    return HostFacts(
        products={gfx: tuple(names) for gfx, names in document["products"].items()},
        windows=tuple(DriverWindow(**one) for one in document["windows"]),
        supported={rocm: tuple(gfx) for rocm, gfx in document["supported"].items()},
    )
