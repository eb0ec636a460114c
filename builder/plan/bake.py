"""The bake file: one target a cell, from frozen values to the JSON that buildx reads.

Source: the buildx bake file reference. Names of targets allow no dots, cell ids no underscores,
so turning one into the other loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from builder.oci import DEFAULT_REGISTRY, Digest, Reference

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from builder.matrix.cells import Cell
    from builder.matrix.lock import LockedCell

# gzip at a low level: every OCI tool reads it (zstd is refused by old Apptainer and podman), and
# the default level takes three times as long for 12 % less.
COMPRESSION = "compression=gzip,compression-level=1"


@dataclass(frozen=True, slots=True)
class Places:
    """Where one build finds its parts and leaves its result; never part of what is hashed.

    Attributes:
        context: folder of the rendered context.
        assets: staged folders by name, each becoming a named context.
        bases: the OCI layout that holds bootstrapped bases.
        export: the OCI layout that receives the image.
        base_ref: where a base of a registry is fetched here; its canonical name where it is None.
        secrets: files by id that a RUN sees and the image does not, such as a site's sources list.
    """

    context: Path
    assets: tuple[tuple[str, Path], ...]
    bases: Path
    export: Path
    base_ref: Reference | None = None
    secrets: tuple[tuple[str, Path], ...] = ()


def target_name(cell: Cell) -> str:
    """Return the bake target of ``cell``."""
    return cell.id.replace(".", "_")


def target(
    cell: Cell, locked: LockedCell, inputs: Digest, places: Places, *, image: str
) -> dict[str, Any]:
    """Return the bake target that builds ``cell`` into the shared layout."""
    contexts = {name: str(path) for name, path in places.assets}
    contexts[context_name(cell.base.ref)] = base_source(
        cell, locked, places.bases, served=places.base_ref
    )
    output = [
        "type=oci",
        "tar=false",
        f"dest={places.export}",
        f"name={image}:{cell.id}",
        "rewrite-timestamp=true",
        COMPRESSION,
    ]
    return {
        "context": str(places.context),
        "dockerfile": "Dockerfile",
        "contexts": contexts,
        "args": {"SOURCE_DATE_EPOCH": str(locked.epoch)},
        "labels": build_labels(locked, inputs),
        "platforms": ["linux/amd64"],
        "output": [",".join(output)],
        **({"secret": secret_words(places.secrets)} if places.secrets else {}),
    }


def secret_words(secrets: Iterable[tuple[str, Path]]) -> list[str]:
    """Return what a target says of secret files, given by id.

    They enter neither image, history nor cache key: what a site sets cannot change a digest.
    """
    return [f"id={name},src={path}" for name, path in secrets]


def build_labels(locked: LockedCell, inputs: Digest) -> dict[str, str]:
    """Return the labels that depend on the lock; the rendered context has the others."""
    return {
        "io.rocm-torch.inputs": inputs,
        "org.opencontainers.image.base.digest": locked.base,
        "org.opencontainers.image.created": locked.created.isoformat().replace("+00:00", "Z"),
    }


def base_source(
    cell: Cell, locked: LockedCell, layout: Path, *, served: Reference | None = None
) -> str:
    """Return what FROM resolves to: a digest in the local layout or in a registry.

    ``served`` is the registry and repository that are asked in place of the canonical ones.
    """
    if locked.origin == "bootstrap":
        return f"oci-layout://{layout}@{locked.base}"
    reference = served or Reference.parse(cell.base.ref)
    return f"docker-image://{reference.name}@{locked.base}"


def context_name(ref: str) -> str:
    """Return the name under which BuildKit looks up what stands in FROM.

    It is the short form: Docker Hub's host, ``library/`` and the tag ``latest`` are left out.
    """
    reference = Reference.parse(ref)
    name = reference.name.removeprefix(f"{DEFAULT_REGISTRY}/").removeprefix("library/")
    return f"{name}:{reference.tag}" if reference.tag not in (None, "latest") else name


def bake_file(targets: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the whole file for named targets, with a default group of all."""
    by_name = dict(sorted(targets))
    return {"group": {"default": {"targets": list(by_name)}}, "target": by_name}
