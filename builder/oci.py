"""Values of the OCI specifications: digests, descriptors, references, media types.

Source of the grammar: OCI image-spec 1.1 (descriptor.md) and distribution reference grammar.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any, Self

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER_GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
EMPTY = "application/vnd.oci.empty.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
SPDX_JSON = "application/spdx+json"
CYCLONEDX_JSON = "application/vnd.cyclonedx+json"
TEST_REPORT = "application/vnd.rocm-torch.test-report.v1+json"
BUILD_RECORD = "application/vnd.rocm-torch.build-record.v1+json"
RUN_RECORD = "application/vnd.rocm-torch.run.v1+json"
SIF_CONFIG = "application/vnd.sylabs.sif.config.v1+json"
SIF_LAYER = "application/vnd.sylabs.sif.layer.v1.sif"
# Sigstore protobuf-specs, sigstore_bundle.proto; cosign attaches bundles under this artifact type.
SIGSTORE_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
WAIVER = "application/vnd.rocm-torch.waiver.v1+json"
YANK_RECORD = "application/vnd.rocm-torch.yank.v1+json"

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY = re.compile(
    rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?"
)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
DEFAULT_REGISTRY = "docker.io"


class Digest(str):
    """``sha256:`` and 64 hexadecimal digits; anything else raises ``ValueError``."""

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        """Check the grammar."""
        if not _DIGEST.fullmatch(value):
            raise ValueError(f"not a sha256 digest: {value!r}")
        return super().__new__(cls, value)

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Return the digest of ``content``."""
        return cls("sha256:" + hashlib.sha256(content).hexdigest())

    @property
    def hex(self) -> str:
        """Return the 64 digits without the algorithm."""
        return self.removeprefix("sha256:")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Points to content: media type, digest and size in bytes."""

    media_type: str
    digest: Digest
    size: int
    annotations: dict[str, str] = field(default_factory=dict)
    artifact_type: str | None = None

    @classmethod
    def of(cls, content: bytes, media_type: str) -> Self:
        """Describe ``content``."""
        return cls(media_type, Digest.of(content), len(content))

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Read the JSON form; ``KeyError`` or ``ValueError`` where it is none."""
        return cls(
            media_type=value["mediaType"],
            digest=Digest(value["digest"]),
            size=int(value["size"]),
            annotations=dict(value.get("annotations") or {}),
            artifact_type=value.get("artifactType"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, with optional members only where they are set."""
        result: dict[str, Any] = {
            "mediaType": self.media_type,
            "digest": str(self.digest),
            "size": self.size,
        }
        if self.artifact_type:
            result["artifactType"] = self.artifact_type
        if self.annotations:
            result["annotations"] = dict(sorted(self.annotations.items()))
        return result


@dataclass(frozen=True, slots=True)
class Reference:
    """An image reference in full: registry, repository, and a tag or a digest or both."""

    registry: str
    repository: str
    tag: str | None = None
    digest: Digest | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a reference the way Docker does; ``ValueError`` where it is none.

        The first component is a registry where it has a dot or a colon or is ``localhost``;
        else the registry is Docker Hub, where a single component lies under ``library/``.
        """
        rest, at, digest = text.partition("@")
        first, slash, path = rest.partition("/")
        if slash and ("." in first or ":" in first or first == "localhost"):
            registry = first
        else:
            registry, path = DEFAULT_REGISTRY, rest
        repository, colon, tag = path.partition(":")
        if registry == DEFAULT_REGISTRY and "/" not in repository:
            repository = f"library/{repository}"
        if (
            not is_registry(registry)
            or not _REPOSITORY.fullmatch(repository)
            or (colon and not _TAG.fullmatch(tag))
        ):
            raise ValueError(f"not an image reference: {text!r}")
        return cls(registry, repository, tag or None, Digest(digest) if at else None)

    @property
    def name(self) -> str:
        """Return registry and repository, without tag and digest."""
        return f"{self.registry}/{self.repository}"

    def __str__(self) -> str:
        """Return the full form."""
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.name}{tag}{digest}"


def is_registry(text: str) -> bool:
    """Tell whether ``text`` is a host with or without a port, by the reference grammar."""
    match = _REGISTRY.fullmatch(text)
    return match is not None and int(match["port"] or 0) < 65536


def is_tag(text: str) -> bool:
    """Tell whether ``text`` is a tag by the distribution grammar (128 characters at most)."""
    return _TAG.fullmatch(text) is not None


def is_repository(text: str) -> bool:
    """Tell whether ``text`` names a repository by the distribution grammar, without registry."""
    return _REPOSITORY.fullmatch(text) is not None


def canonical_json(value: object) -> bytes:
    """Return the one byte form of a JSON value that we hash and publish."""
    return (
        json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    ).encode()
