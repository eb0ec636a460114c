"""What the bytes of a manifest or an index mean, without any access to disk."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from builder.errors import Problem, RefusedError
from builder.oci import DOCKER_INDEX, DOCKER_MANIFEST, INDEX, MANIFEST, Descriptor, Digest

INDEX_TYPES = (INDEX, DOCKER_INDEX)
MANIFEST_TYPES = (MANIFEST, DOCKER_MANIFEST)
_ATTESTATION = ("vnd.docker.reference.type", "attestation-manifest")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One image manifest: its exact bytes, and what they say.

    Attributes:
        raw: the bytes that are hashed, pushed and never written anew.
        layers: from the lowest to the topmost.
        subject: the image that this artifact is attached to, for an artifact.
    """

    raw: bytes = field(repr=False)
    digest: Digest
    media_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    annotations: dict[str, str] = field(default_factory=dict)
    artifact_type: str | None = None
    subject: Descriptor | None = None

    @property
    def descriptor(self) -> Descriptor:
        """Return what points to this manifest."""
        return Descriptor(
            self.media_type, self.digest, len(self.raw), artifact_type=self.artifact_type
        )

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """Return config and layers, each digest once."""
        return tuple({blob.digest: blob for blob in (self.config, *self.layers)}.values())

    @property
    def size(self) -> int:
        """Return the bytes of manifest, config and layers as they are stored and sent."""
        return len(self.raw) + sum(blob.size for blob in self.blobs)


def parse_object(raw: bytes, where: str) -> dict[str, Any]:
    """Read a JSON object; ``RefusedError`` (``MANIFEST_INVALID``) where it is none."""
    try:
        value = json.loads(raw)
    except ValueError as error:
        raise invalid(where, f"it is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise invalid(where, f"it is JSON of type {type(value).__name__}, not an object")
    return value


def parse_manifest(raw: bytes, where: str) -> Manifest:
    """Read an image manifest; ``RefusedError`` (``MANIFEST_INVALID``) where it is none."""
    value = parse_object(raw, where)
    try:
        subject = value.get("subject")
        return Manifest(
            raw=raw,
            digest=Digest.of(raw),
            media_type=value.get("mediaType") or MANIFEST,
            config=Descriptor.from_json(value["config"]),
            layers=tuple(Descriptor.from_json(layer) for layer in value["layers"]),
            annotations=dict(value.get("annotations") or {}),
            artifact_type=value.get("artifactType"),
            subject=Descriptor.from_json(subject) if subject else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise invalid(where, f"a member is missing or has a wrong value: {error}") from error


def is_index(value: dict[str, Any]) -> bool:
    """Tell whether the object is an image index (of OCI or of Docker) and not a manifest."""
    media_type = value.get("mediaType")
    if media_type:
        return media_type in INDEX_TYPES
    return "manifests" in value and "config" not in value


def image_of_index(value: dict[str, Any], where: str) -> Digest:
    """Choose the linux/amd64 image among the children of an index.

    BuildKit stores provenance and SBOM as children of platform unknown/unknown; those that say
    so by annotation are passed over. One that does not say so is a defect of the index.

    Raises:
        RefusedError: ``UNKNOWN_PLATFORM_NOT_ATTESTATION``, or ``PLATFORM_NOT_FOUND`` where there
            is no linux/amd64 image or more than one.
    """
    images: list[Digest] = []
    seen: list[str] = []
    try:
        for child in value["manifests"]:
            if (child.get("annotations") or {}).get(_ATTESTATION[0]) == _ATTESTATION[1]:
                continue
            platform = child.get("platform") or {"os": "linux", "architecture": "amd64"}
            name = f"{platform.get('os')}/{platform.get('architecture')}"
            if name == "unknown/unknown":
                raise _not_an_attestation(where, child["digest"])
            seen.append(name)
            if name == "linux/amd64":
                images.append(Digest(child["digest"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise invalid(where, f"a child is not a descriptor: {error}") from error
    if len(set(images)) != 1:
        raise RefusedError(
            Problem(
                code="PLATFORM_NOT_FOUND",
                what=f"the index holds {len(set(images))} linux/amd64 images where one is needed"
                f" (platforms: {', '.join(seen) or 'none'})",
                where=where,
            )
        )
    return images[0]


def invalid(where: str, reason: str) -> RefusedError:
    """Say that a document is no manifest, and why."""
    return RefusedError(
        Problem(
            code="MANIFEST_INVALID",
            what=f"no image manifest can be read there: {reason}",
            where=where,
        )
    )


def _not_an_attestation(where: str, digest: str) -> RefusedError:
    return RefusedError(
        Problem(
            code="UNKNOWN_PLATFORM_NOT_ATTESTATION",
            what=f"the index lists {digest} for the platform unknown/unknown, and it is not marked"
            " as an attestation",
            where=where,
            why="BuildKit marks attestations by annotation; any other unknown platform is a defect",
            fix="build the image again without inline attestations (--provenance=false)",
        )
    )
