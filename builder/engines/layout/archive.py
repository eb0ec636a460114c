"""One image of a layout as an OCI archive (a tar), made on the fly."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, Protocol

from builder.engines.layout.index import IMAGE_NAME, REF_NAME
from builder.engines.layout.manifest import invalid
from builder.oci import INDEX, Descriptor, Digest, canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.engines.layout.manifest import Manifest

_BLOCK = tarfile.BLOCKSIZE


class BlobStore(Protocol):
    """Where the blobs come from."""

    def stream_blob(self, digest: Digest) -> Iterator[bytes]:
        """Yield a blob in pieces and raise where it is damaged."""
        ...


def stream_archive(store: BlobStore, manifest: Manifest, name: str) -> Iterator[bytes]:
    """Yield the archive of one image; equal images and names give equal bytes."""
    _, colon, tag = name.rpartition(":")
    names = {IMAGE_NAME: name, REF_NAME: tag if colon and "/" not in tag else "latest"}
    entry = Descriptor(manifest.media_type, manifest.digest, len(manifest.raw), names)
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry.to_json()]}
    yield from _file("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    yield from _file("index.json", canonical_json(index))
    yield from _file(_blob_name(manifest.digest), manifest.raw)
    for blob in manifest.blobs:
        yield _header(_blob_name(blob.digest), blob.size)
        yield from _exactly(store.stream_blob(blob.digest), blob)
        yield _padding(blob.size)
    yield b"\0" * (2 * _BLOCK)


def _exactly(pieces: Iterator[bytes], blob: Descriptor) -> Iterator[bytes]:
    # The last piece is held back until the digest of the whole has been checked.
    held, size = b"", 0
    for piece in pieces:
        size += len(piece)
        if size <= blob.size:
            yield held
            held = piece
    if size != blob.size:
        raise invalid(str(blob.digest), f"the blob has not the {blob.size} bytes that it lists")
    yield held


def _file(name: str, content: bytes) -> Iterator[bytes]:
    yield _header(name, len(content))
    yield content
    yield _padding(len(content))


def _header(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mode = 0o644
    return entry.tobuf(tarfile.GNU_FORMAT)


def _padding(size: int) -> bytes:
    return b"\0" * (-size % _BLOCK)


def _blob_name(digest: Digest) -> str:
    return f"blobs/sha256/{digest.hex}"
