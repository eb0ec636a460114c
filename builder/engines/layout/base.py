"""A root file system as an image of one layer, with nothing in it that changes from run to run."""

from __future__ import annotations

import hashlib
import zlib
from datetime import UTC
from typing import IO, TYPE_CHECKING

from builder.engines.layout.files import CHUNK
from builder.errors import CouldNotError, Problem
from builder.oci import LAYER_GZIP, Descriptor, Digest, canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

_LEVEL = 4  # a third of the time of the default level for a few percent more bytes
_GZIP = 16 + zlib.MAX_WBITS  # zlib writes the gzip header itself: no time, no file name
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def compress_layer(tar: Path, into: IO[bytes]) -> tuple[Descriptor, Digest]:
    """Compress ``tar`` into an open file; return the layer and the digest of the plain tar."""
    squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    plain, packed, size = hashlib.sha256(), hashlib.sha256(), 0

    def put(piece: bytes) -> int:
        packed.update(piece)
        return into.write(piece)

    for piece in _pieces(tar):
        plain.update(piece)
        size += put(squeeze.compress(piece))
    size += put(squeeze.flush())
    layer = Descriptor(LAYER_GZIP, Digest(f"sha256:{packed.hexdigest()}"), size)
    return layer, Digest(f"sha256:{plain.hexdigest()}")


def image_config(
    diff_id: Digest,
    created: datetime,
    *,
    architecture: str = "amd64",
    cmd: tuple[str, ...] = ("bash",),
) -> bytes:
    """Return the config of a one-layer image: a function of its arguments and nothing else."""
    if created.tzinfo is None:
        raise ValueError("the time of an image needs a time zone")
    when = created.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return canonical_json(
        {
            "architecture": architecture,
            "os": "linux",
            "created": when,
            "config": {"Env": [f"PATH={_PATH}"], "Cmd": list(cmd)},
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
            "history": [{"created": when, "created_by": "rocm-torch bootstrap"}],
        }
    )


def _pieces(tar: Path) -> Iterator[bytes]:
    try:
        with tar.open("rb") as stream:
            while piece := stream.read(CHUNK):
                yield piece
    except OSError as error:
        raise CouldNotError(
            Problem(
                code="BASE_NOT_READ",
                what=f"the tar of the base cannot be read: {error.strerror or error}",
                where=str(tar),
            )
        ) from error
