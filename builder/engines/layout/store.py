"""A shared OCI layout folder: blobs by digest, verified when read, never half written."""

from __future__ import annotations

import hashlib
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from builder.engines.layout.archive import stream_archive
from builder.engines.layout.base import compress_layer, image_config
from builder.engines.layout.files import CHUNK, publish, replace_file, temporary, writing
from builder.engines.layout.index import IMAGE_NAME, REF_NAME, IndexFile
from builder.engines.layout.manifest import (
    Manifest,
    image_of_index,
    is_index,
    parse_manifest,
    parse_object,
)
from builder.errors import CouldNotError, Problem, RefusedError
from builder.oci import CONFIG, INDEX, MANIFEST, Descriptor, Digest, canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

_HEX = 64  # digits of a sha256; whatever else lies there is no blob
_MARK = b'{"imageLayoutVersion":"1.0.0"}'


class Layout:
    """One OCI layout at ``root``; the folder is made by the first write.

    Several processes, BuildKit among them, may read and write one layout at a time: blobs are
    named by what they hold, and the list of images is changed under a lock.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._index = IndexFile(root)

    # Reading

    def blob_path(self, digest: Digest) -> Path:
        """Return where the blob lies or would lie; it is not looked at."""
        return self.root / "blobs" / "sha256" / digest.hex

    def has(self, descriptor: Descriptor) -> bool:
        """Tell whether a blob of that digest and size is there; its bytes are not hashed."""
        try:
            return self.blob_path(descriptor.digest).stat().st_size == descriptor.size
        except OSError:
            return False

    def read_blob(self, digest: Digest) -> bytes:
        """Return a whole blob, verified; for manifests and configs rather than layers.

        Raises:
            CouldNotError: ``BLOB_MISSING``.
            RefusedError: ``BLOB_DAMAGED``, where the bytes do not have the digest.
        """
        return b"".join(self.stream_blob(digest))

    def stream_blob(self, digest: Digest) -> Iterator[bytes]:
        """Yield a blob in pieces; a damaged one raises after its last piece (see read_blob)."""
        path = self.blob_path(digest)
        found = hashlib.sha256()
        try:
            with path.open("rb") as stream:
                while piece := stream.read(CHUNK):
                    found.update(piece)
                    yield piece
        except OSError as error:
            raise _missing(digest, path, error) from error
        if found.hexdigest() != digest.hex:
            raise _damaged(digest, path, found.hexdigest())

    def manifest(self, digest: Digest) -> Manifest:
        """Return the image manifest that ``digest`` names, or that the index it names holds.

        Raises:
            CouldNotError: ``BLOB_MISSING``.
            RefusedError: ``BLOB_DAMAGED``, ``MANIFEST_INVALID``, ``PLATFORM_NOT_FOUND`` or
                ``UNKNOWN_PLATFORM_NOT_ATTESTATION``.
        """
        where = str(self.blob_path(digest))
        raw = self.read_blob(digest)
        value = parse_object(raw, where)
        if is_index(value):
            digest = image_of_index(value, where)
            where = str(self.blob_path(digest))
            raw = self.read_blob(digest)
        return parse_manifest(raw, where)

    def size(self, digest: Digest) -> int:
        """Return the compressed bytes of an image: manifest, config and layers."""
        return self.manifest(digest).size

    def entries(self) -> tuple[Descriptor, ...]:
        """Return what ``index.json`` lists, in its order; names stand in the annotations."""
        return self._index.descriptors()

    def stream_tar(self, digest: Digest, name: str) -> Iterator[bytes]:
        """Yield one image as an OCI archive, which ``docker load`` takes and tags ``name``.

        Blobs are verified on the way: a damaged layer raises before its last piece is given out,
        so the reader never has a whole archive with wrong content.
        """
        return stream_archive(self, self.manifest(digest), name)

    def view(self, digest: Digest, into: Path) -> Path:
        """Make ``into`` a layout of just this image, for tools that take a folder with one image.

        The blobs are not copied: ``blobs`` there is a symbolic link to the shared ones.
        """
        manifest = self.manifest(digest)
        target = (self.root / "blobs").resolve()
        with writing(into):
            into.mkdir(parents=True, exist_ok=True)
            link = into / "blobs"
            if link.is_symlink():
                link.unlink()
            link.symlink_to(target, target_is_directory=True)
        replace_file(into / "oci-layout", _MARK)
        replace_file(into / "index.json", one_image_index(manifest.descriptor))
        return into

    # Writing

    def write_blob(self, content: bytes, media_type: str) -> Descriptor:
        """Store ``content`` and return its descriptor; a damaged blob of that name is healed."""
        self._prepare()
        descriptor = Descriptor.of(content, media_type)
        replace_file(self.blob_path(descriptor.digest), content)
        return descriptor

    def store_blob(self, descriptor: Descriptor, pieces: Iterable[bytes]) -> None:
        """Store a blob that comes in pieces; ``pieces`` raises where they are not the blob."""
        self._prepare()
        with writing(self.root), temporary(self.root / ".partial") as stream:
            for piece in pieces:
                stream.write(piece)
            publish(stream, self.blob_path(descriptor.digest))

    def write_image(
        self, config: bytes, layers: Sequence[Descriptor], *, reference: str | None = None
    ) -> Descriptor:
        """Store config and manifest over layers that are there, and list the image.

        ``reference`` names it; an image that had the name keeps its entry without the name.
        """
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.write_blob(config, CONFIG).to_json(),
            "layers": [layer.to_json() for layer in layers],
        }
        stored = self.write_blob(canonical_json(manifest), MANIFEST)
        names = {} if reference is None else _names(reference)
        named = Descriptor(stored.media_type, stored.digest, stored.size, names)
        self._index.put(named)
        return named

    def write_base_image(self, tar: Path, *, created: datetime, reference: str) -> Descriptor:
        """Store a root file system as an image of one layer, and return its manifest.

        The same tar, time and zlib give the same digest, on any day and in any folder (``docker
        import`` gives another one each time). The tar's own bytes are kept: its times are the
        bootstrap's to fix.

        Args:
            tar: uncompressed; read once, in pieces.
            created: the epoch, with a time zone.
            reference: name in the layout, such as ``docker.io/library/debian:trixie``.

        Raises:
            CouldNotError: the tar cannot be read or the layout not be written.
        """
        self._prepare()
        with writing(self.root), temporary(self.root / ".partial") as stream:
            layer, diff_id = compress_layer(tar, stream)
            publish(stream, self.blob_path(layer.digest))
        return self.write_image(image_config(diff_id, created), (layer,), reference=reference)

    def adopt(self, other: Layout, digest: Digest, *, reference: str | None = None) -> None:
        """Bring one image of another layout here: by hard links, or copies across file systems."""
        self._prepare()
        manifest = other.manifest(digest)
        for name in (manifest.digest, *(blob.digest for blob in manifest.blobs)):
            source, target = other.blob_path(name), self.blob_path(name)
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                if target.exists():
                    continue
                try:
                    target.hardlink_to(source)
                except OSError:
                    shutil.copyfile(source, target)
        found = manifest.descriptor
        names = _names(reference) if reference else found.annotations
        self._index.put(Descriptor(found.media_type, found.digest, found.size, names))

    def link_blobs(self, other: Layout) -> None:
        """Make another layout's blobs present here by hard links, so they are not written again.

        Where the file system has no hard links nothing happens, and they are.
        """
        self._prepare()
        target = self.root / "blobs" / "sha256"
        source = other.root / "blobs" / "sha256"
        with writing(target):
            target.mkdir(parents=True, exist_ok=True)
        if not source.is_dir():
            return
        with suppress(OSError):
            for blob in source.iterdir():
                if len(blob.name) == _HEX:
                    (target / blob.name).hardlink_to(blob)

    def remove_entry(self, digest: Digest) -> bool:
        """Take an image out of the list and tell whether it was there; its blobs stay."""
        return self._index.remove(digest)

    def _prepare(self) -> None:
        mark = self.root / "oci-layout"
        if not mark.exists():
            replace_file(mark, _MARK)


def one_image_index(descriptor: Descriptor) -> bytes:
    """Return the ``index.json`` of a layout with one image."""
    return canonical_json(
        {"schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor.to_json()]}
    )


def _names(reference: str) -> dict[str, str]:
    return {IMAGE_NAME: reference, REF_NAME: _tag(reference)}


def _tag(reference: str) -> str:
    _, colon, tag = reference.rpartition(":")
    return tag if colon and "/" not in tag else "latest"


def _missing(digest: Digest, path: Path, error: OSError) -> CouldNotError:
    return CouldNotError(
        Problem(
            code="BLOB_MISSING",
            what=f"the OCI layout does not hold {digest}: {error.strerror or error}",
            where=str(path),
            fix="build the image again, which stores what is missing",
        )
    )


def _damaged(digest: Digest, path: Path, found: str) -> RefusedError:
    return RefusedError(
        Problem(
            code="BLOB_DAMAGED",
            what=f"the OCI layout holds other bytes under {digest}: they hash to sha256:{found}",
            where=str(path),
            why="a disk error, a full disk or another program changed the file after it was built",
            fix=f"remove {path} and build the image again",
        )
    )
