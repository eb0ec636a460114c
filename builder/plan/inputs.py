"""The inputs digest: a hash over everything that decides what an image contains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from builder.oci import Digest, canonical_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.matrix.lock import LockedCell

# Raise it when the builder itself changes what it makes of the same inputs.
FORMAT_VERSION = "1"


@dataclass(frozen=True, slots=True)
class AssetFile:
    """A file that is copied into images: content, and whether it is executable.

    No other mode is kept, so that the umask of a checkout cannot change an image.
    """

    content: bytes
    executable: bool


@dataclass(frozen=True, slots=True)
class Inputs:
    """Named parts, each with its own hash, so that a change can be told by name."""

    parts: tuple[tuple[str, str], ...]

    @classmethod
    def of(
        cls,
        *,
        context: Mapping[str, bytes],
        assets: Mapping[str, Mapping[str, AssetFile]],
        locked: LockedCell,
    ) -> Self:
        """Describe one cell.

        Args:
            context: the rendered files by name.
            assets: the folders copied into every image, by name (``rootfs``, ``selftest``).
            locked: what the cell resolved to.
        """
        folders = {name: assets_digest(files) for name, files in assets.items()}
        return cls.of_folders(context=context, folders=folders, locked=locked)

    @classmethod
    def of_folders(
        cls,
        *,
        context: Mapping[str, bytes],
        folders: Mapping[str, Digest],
        locked: LockedCell,
        programs: Mapping[str, str] | None = None,
    ) -> Self:
        """Describe one cell where the digests of the folders are known, as all cells share them.

        ``programs`` are the versions of those that a build is lent, by name.
        """
        parts: dict[str, str] = {
            f"context/{name}": Digest.of(content) for name, content in context.items()
        }
        parts |= folders
        parts |= {f"program/{name}": text for name, text in (programs or {}).items()}
        lock = locked.deciding()
        parts |= {f"lock/{name}": Digest.of(canonical_json(lock[name])) for name in lock}
        return cls(tuple(sorted({**parts, "format": FORMAT_VERSION}.items())))

    @property
    def digest(self) -> Digest:
        """Return the digest over all parts."""
        return Digest.of(canonical_json(dict(self.parts)))

    def changed_since(self, earlier: Inputs) -> tuple[str, ...]:
        """Return the names of the parts that differ from ``earlier``, sorted."""
        now, then = dict(self.parts), dict(earlier.parts)
        return tuple(sorted(name for name in now | then if now.get(name) != then.get(name)))


def assets_digest(files: Mapping[str, AssetFile]) -> Digest:
    """Return the digest of a folder: names, executable bits and contents."""
    return Digest.of(
        canonical_json(
            {name: [file.executable, Digest.of(file.content)] for name, file in files.items()}
        )
    )
