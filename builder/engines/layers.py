"""What is installed in an image, read from its layers as a stream: dpkg and Python packages.

It answers one question without a scanner: is what the layers hold in the SBOM? Nothing is unpacked,
and names in an archive are only compared, never opened. rpm databases are not read yet.
Sources: OCI image-spec (layer media types, whiteouts), dpkg's status file, PEP 376 and PEP 503.
"""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from typing import TYPE_CHECKING, Literal

from builder.errors import Problem, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_DPKG = re.compile(r"var/lib/dpkg/status(\.d/[^/]+)?")
_PYTHON = re.compile(r".*\.dist-info/METADATA|.*\.egg-info(/PKG-INFO)?")
_LARGEST = 64 << 20  # bytes of one package list that we read; the largest seen has 5 MiB
_SEPARATORS = re.compile(r"[-_.]+")


@dataclass(frozen=True, slots=True, order=True)
class Installed:
    """One package that a layer says is installed; Python names are normalised (PEP 503)."""

    kind: Literal["dpkg", "python"]
    name: str
    version: str


def normal_name(name: str) -> str:
    """Return a Python package's name as PEP 503 compares it."""
    return _SEPARATORS.sub("-", name).lower()


def installed(layers: Iterable[tuple[str, Iterator[bytes]]]) -> frozenset[Installed]:
    """Return what is installed after all layers, the lowest first.

    Args:
        layers: media type and compressed bytes of each layer.

    Raises:
        RefusedError: ``LAYER_UNREADABLE``: a compression or an archive that we cannot read.
    """
    found: dict[str, frozenset[Installed]] = {}
    for media_type, pieces in layers:
        _apply(found, media_type, pieces)
    return frozenset(package for packages in found.values() for package in packages)


def _apply(
    found: dict[str, frozenset[Installed]], media_type: str, pieces: Iterator[bytes]
) -> None:
    added: dict[str, frozenset[Installed]] = {}
    plain = _plain(media_type, pieces)
    try:
        with tarfile.open(fileobj=_Stream(plain), mode="r|") as archive:
            for member in archive:
                path = member.name.removeprefix("./").lstrip("/")
                _whiteout(found, path)
                if member.isfile() and member.size <= _LARGEST:
                    kind = _kind(path)
                    content = archive.extractfile(member) if kind else None
                    if kind and content is not None:
                        added[path] = _read(kind, content.read())
        for _ in plain:  # to the end: only then is the digest of the layer known to be right
            pass
    except (tarfile.TarError, zlib.error, EOFError) as error:
        raise _unreadable(media_type, str(error)) from error
    found.update(added)


def _whiteout(found: dict[str, frozenset[Installed]], path: str) -> None:
    folder, _, name = path.rpartition("/")
    if not name.startswith(_WHITEOUT):
        return
    gone = folder if name == _OPAQUE else f"{folder}/{name.removeprefix(_WHITEOUT)}".lstrip("/")
    for key in [key for key in found if key == gone or key.startswith(f"{gone}/")]:
        del found[key]


def _kind(path: str) -> Literal["dpkg", "python"] | None:
    if _DPKG.fullmatch(path) and not path.endswith(".md5sums"):
        return "dpkg"
    return "python" if _PYTHON.fullmatch(path) else None


def _read(kind: Literal["dpkg", "python"], content: bytes) -> frozenset[Installed]:
    stanzas = content.split(b"\n\n") if kind == "dpkg" else [content]
    packages = (_package(kind, stanza) for stanza in stanzas if stanza.strip())
    return frozenset(package for package in packages if package is not None)


def _package(kind: Literal["dpkg", "python"], stanza: bytes) -> Installed | None:
    fields = BytesHeaderParser().parsebytes(stanza)
    name, version = fields["Package" if kind == "dpkg" else "Name"], fields["Version"]
    state = fields["Status"]
    if not name or not version or (state and not state.endswith(" installed")):
        return None
    return Installed(kind, normal_name(name) if kind == "python" else name, version)


def _plain(media_type: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    if media_type.endswith("tar"):
        yield from pieces
        return
    if not media_type.endswith(("+gzip", ".gzip")):
        raise _unreadable(media_type, "only gzip and uncompressed layers can be read")
    inflate = zlib.decompressobj(wbits=31)
    for piece in pieces:
        data = piece
        while data:
            yield inflate.decompress(data)
            data = inflate.unused_data
            if data:  # parallel compressors write several members after each other
                inflate = zlib.decompressobj(wbits=31)


class _Stream(io.RawIOBase):
    """A file to read from pieces, for tarfile."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts: list[bytes] = []
        wanted = size
        while wanted:
            while not self._rest:
                piece = next(self._pieces, None)
                if piece is None:
                    return b"".join(parts)
                self._rest = piece
            part, self._rest = self._rest[:wanted], self._rest[wanted:]
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)


def _unreadable(media_type: str, why: str) -> RefusedError:
    return RefusedError(
        Problem(
            code="LAYER_UNREADABLE",
            what=f"a layer of type {media_type} cannot be read",
            why=why,
        )
    )
