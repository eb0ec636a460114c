"""Facts about registries."""

from __future__ import annotations

from dataclasses import dataclass

from builder.facts.fact import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryLimit(Fact):
    """What a registry takes at most.

    Attributes:
        host: of the registry; one that begins with a dot stands for all that end so.
        max_layer_bytes: of one layer, as it is sent.
    """

    host: str
    max_layer_bytes: int

    def is_of(self, host: str) -> bool:
        """Tell whether this is about the registry ``host``."""
        name = host.partition(":")[0]
        return name.endswith(self.host) if self.host.startswith(".") else name == self.host
