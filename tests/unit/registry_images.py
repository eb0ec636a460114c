"""Images of ours in a registry of the tests: a manifest and a configuration with labels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from builder.oci import CONFIG, MANIFEST, Descriptor, Digest

if TYPE_CHECKING:
    from registry_server import FakeRegistry


def store_image(
    server: FakeRegistry,
    repository: str,
    *tags: str,
    torch: str = "2.6.0",
    created: str = "",
    salt: str = "",
) -> Digest:
    """Store an image without layers and return its digest.

    Args:
        server: where.
        repository: without registry.
        tags: tags that name it.
        torch: its label.
        created: its label, ISO 8601; a day by default.
        salt: what makes its digest another one.
    """
    labels = {
        "io.rocm-torch.torch": torch,
        "io.rocm-torch.cell": f"cpu-torch{torch}-py313-debian13",
        "org.opencontainers.image.created": created or "2026-11-29T00:00:00Z",
        "salt": salt,
    }
    config = json.dumps({"config": {"Labels": labels}}).encode()
    described = Descriptor.of(config, CONFIG)
    server.blobs[repository, described.digest] = config
    value = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described.to_json(),
        "layers": [],
    }
    body = json.dumps(value).encode()
    digest = Digest.of(body)
    for name in (digest, *tags):
        server.store(repository, name, MANIFEST, body)
    return digest
