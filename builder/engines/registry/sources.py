"""The bytes of a blob that is to be pushed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from builder.errors import CouldNotError, Problem, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.oci import Descriptor

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """Where the bytes of a blob come from; can be read from any offset again."""

    content: Path | bytes

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` up to ``end``."""
        if isinstance(self.content, bytes):
            for offset in range(start, end, _PIECE):
                yield self.content[offset : min(offset + _PIECE, end)]
            return
        with self.content.open("rb") as stream:
            stream.seek(start)
            while start < end and (piece := stream.read(min(_PIECE, end - start))):
                start += len(piece)
                yield piece

    def check(self, blob: Descriptor, *, content: bool = False) -> None:
        """Refuse a source that is not the blob: by size, or by hash of its ``content``."""
        where = str(self.content) if isinstance(self.content, Path) else str(blob.digest)
        try:
            size = (
                len(self.content)
                if isinstance(self.content, bytes)
                else self.content.stat().st_size
            )
            found = hashlib.sha256()
            for piece in self.pieces(0, size if content else 0):
                found.update(piece)
        except OSError as error:
            raise CouldNotError(
                Problem(
                    code="BLOB_MISSING",
                    what=f"{blob.digest} cannot be read: {error.strerror or error}",
                    where=where,
                    fix="build the image again, which stores what is missing",
                )
            ) from error
        if size != blob.size or (content and found.hexdigest() != blob.digest.hex):
            raise RefusedError(
                Problem(
                    code="BLOB_DAMAGED",
                    what=f"the {size} bytes there are not {blob.digest} of {blob.size} bytes",
                    where=where,
                    fix="remove it and build the image again",
                )
            )
