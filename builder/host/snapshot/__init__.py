"""What this host, or this container, has: one frozen value that rules and run arguments look at.

Only the standard library is used here and in the rules: the same files run inside the images.
"""

from builder.host.snapshot.document import SCHEMA, from_document, to_document
from builder.host.snapshot.model import (
    DeviceNode,
    Engine,
    Gpu,
    HostSnapshot,
    Place,
    ToolOutput,
)
from builder.host.snapshot.read import read_snapshot

__all__ = [
    "SCHEMA",
    "DeviceNode",
    "Engine",
    "Gpu",
    "HostSnapshot",
    "Place",
    "ToolOutput",
    "from_document",
    "read_snapshot",
    "to_document",
]
