"""Brings an image from a registry into the shared layout, every blob checked on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.engines.layout import Layout
from builder.engines.layout.manifest import image_of_index, is_index, parse_manifest, parse_object
from builder.errors import CouldNotError, Problem
from builder.report.progress import Event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.engines.registry import Registry
    from builder.oci import Descriptor, Digest, Reference
    from builder.pipeline.session import Session


def resolve(registry: Registry, reference: Reference) -> Digest:
    """Return the digest of the linux/amd64 image that ``reference`` names today.

    Everything that follows works with that digest: a tag may move while it does.

    Raises:
        CouldNotError: ``NOT_IN_REGISTRY``, or the registry could not be asked.
        RefusedError: ``PLATFORM_NOT_FOUND`` and other faults of an index.
    """
    name = reference.digest or reference.tag or "latest"
    descriptor, body = registry.get_manifest(reference.repository, name)
    value = parse_object(body, str(reference))
    return image_of_index(value, str(reference)) if is_index(value) else descriptor.digest


def fetch(session: Session, registry: Registry, repository: str, digest: Digest) -> None:
    """Bring the image ``digest`` into the shared layout; what is there is not fetched again.

    Raises:
        CouldNotError: the registry did not give it, or gave other bytes (``DIGEST_MISMATCH``).
    """
    layout = Layout(session.workspace.layout)
    _, body = registry.get_manifest(repository, digest)
    manifest = parse_manifest(body, f"{registry.host}/{repository}@{digest}")
    missing = [blob for blob in manifest.blobs if not layout.has(blob)]
    size = sum(blob.size for blob in missing)
    done = 0
    for blob in missing:
        pieces = _counted(session, registry.get_blob(repository, blob), done, size)
        layout.store_blob(blob, pieces)
        done += blob.size
    layout.write_blob(body, manifest.media_type)


def check_whole(session: Session, digest: Digest) -> None:
    """Read every blob of an image in the layout, and raise where one is missing or damaged."""
    layout = Layout(session.workspace.layout)
    for blob in layout.manifest(digest).blobs:
        for _ in layout.stream_blob(blob.digest):
            session.tools.go_on()


def one_layer(manifest_layers: tuple[Descriptor, ...], media_type: str, where: str) -> Descriptor:
    """Return the one layer of an artifact, which must be of ``media_type``."""
    found = [layer for layer in manifest_layers if layer.media_type == media_type]
    if len(found) != 1 or len(manifest_layers) != 1:
        kinds = ", ".join(layer.media_type for layer in manifest_layers) or "nothing"
        raise CouldNotError(
            Problem(
                code="NOT_A_SIF",
                what=f"it holds {kinds} where one {media_type} is expected",
                where=where,
                fix="name a tag that ends in -sif; an image is converted with `rocm-torch sif REF`",
            )
        )
    return found[0]


def _counted(session: Session, pieces: Iterator[bytes], before: int, total: int) -> Iterator[bytes]:
    done = before
    for piece in pieces:
        session.tools.go_on()
        done += len(piece)
        session.tools.progress.tell(Event("", "fetch", "doing", "layers", done, total))
        yield piece
