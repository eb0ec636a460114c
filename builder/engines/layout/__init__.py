"""The OCI image layout on disk: the artifact of record, shared by all cells and by BuildKit."""

from builder.engines.layout.manifest import Manifest
from builder.engines.layout.store import Layout

__all__ = ["Layout", "Manifest"]
