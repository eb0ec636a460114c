"""Artifacts attached to an image: what the OCI 1.1 referrers API lists, or the tag in its place."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from builder.errors import CouldNotError, Problem, RefusedError
from builder.oci import EMPTY, INDEX, MANIFEST, Descriptor, Digest, canonical_json

if TYPE_CHECKING:
    from collections.abc import Sequence

EMPTY_CONFIG = b"{}"
_TITLE = "org.opencontainers.image.title"


@dataclass(frozen=True, slots=True)
class Attachment:
    """One artifact to attach.

    Attributes:
        title: file name under which ``oras pull`` stores the content.
        annotations: must not hold the time of the run, else each run attaches another artifact.
    """

    artifact_type: str
    content: bytes = field(repr=False)
    media_type: str
    annotations: dict[str, str] = field(default_factory=dict)
    title: str | None = None

    @property
    def blob(self) -> Descriptor:
        """Describe the content."""
        return Descriptor.of(self.content, self.media_type)

    def manifest(self, subject: Descriptor) -> bytes:
        """Return the artifact manifest: a function of this value and the subject alone."""
        layer = self.blob.to_json()
        if self.title:
            layer["annotations"] = {_TITLE: self.title}
        value = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": self.artifact_type,
            "config": Descriptor.of(EMPTY_CONFIG, EMPTY).to_json(),
            "layers": [layer],
            "subject": {
                "mediaType": subject.media_type,
                "digest": subject.digest,
                "size": subject.size,
            },
        }
        if self.annotations:
            value["annotations"] = dict(sorted(self.annotations.items()))
        return canonical_json(value)

    def descriptor(self, subject: Descriptor) -> Descriptor:
        """Return what a list of referrers must hold for it."""
        body = self.manifest(subject)
        return Descriptor(
            MANIFEST, Digest.of(body), len(body), dict(self.annotations), self.artifact_type
        )


def fallback_tag(subject: Digest) -> str:
    """Return the tag that lists the referrers of ``subject`` where there is no API for it."""
    return f"sha256-{subject.hex}"


def parse_index(body: bytes, where: str) -> dict[str, Any]:
    """Read a list of referrers; ``RefusedError`` (``REFERRERS_TAG_FOREIGN``) where it is none."""
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if (
        not isinstance(value, dict)
        or value.get("mediaType", INDEX) != INDEX
        or not isinstance(value.get("manifests"), list)
    ):
        raise RefusedError(
            Problem(
                code="REFERRERS_TAG_FOREIGN",
                what="what should list the referrers of an image is no OCI image index",
                where=where,
                why="it was put there by something else, and is not overwritten",
                fix="delete that tag in the registry and publish again",
            )
        )
    return value


def descriptors_of(index: dict[str, Any], artifact_type: str | None) -> tuple[Descriptor, ...]:
    """Return the entries of a list that are descriptors, of one artifact type where it is given."""
    found: dict[Digest, Descriptor] = {}
    for entry in index["manifests"]:
        try:
            descriptor = Descriptor.from_json(entry)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue  # foreign: kept when the list is written, of no use to us
        if artifact_type is None or descriptor.artifact_type == artifact_type:
            found.setdefault(descriptor.digest, descriptor)
    return tuple(found.values())


def merged(index: dict[str, Any], new: Sequence[Descriptor]) -> dict[str, Any]:
    """Return the list with ``new`` in it, each digest once and whole.

    An entry that another writer left without its artifact type is replaced by the complete one;
    everything that is not ours stays in its place, readable or not.
    """
    ours = {str(descriptor.digest): descriptor.to_json() for descriptor in new}
    placed: set[str] = set()
    entries: list[Any] = []
    for entry in index["manifests"]:
        digest = entry.get("digest") if isinstance(entry, dict) else None
        if not isinstance(digest, str) or digest not in ours:
            entries.append(entry)
        elif digest not in placed:
            placed.add(digest)
            entries.append(ours[digest])
    entries += [entry for digest, entry in ours.items() if digest not in placed]
    return index | {"manifests": entries}


def check_listed(
    wanted: Sequence[Descriptor], listed: Sequence[Descriptor], where: str
) -> CouldNotError | None:
    """Return what is wrong where a referrer is missing or lost its type or annotations."""
    by_digest = {descriptor.digest: descriptor for descriptor in listed}
    problems = []
    for descriptor in wanted:
        found = by_digest.get(descriptor.digest)
        if found is None:
            lack = "is not listed"
        elif found.artifact_type != descriptor.artifact_type:
            lack = f"is listed with the artifact type {found.artifact_type!r}"
        elif not descriptor.annotations.items() <= found.annotations.items():
            lack = "is listed without its annotations"
        else:
            continue
        problems.append(
            Problem(
                code="REFERRER_INCOMPLETE",
                what=f"the referrer {descriptor.digest} ({descriptor.artifact_type}) {lack}",
                where=where,
                why="nobody finds it by its type then; two writers at once can do this to a"
                " registry without the referrers API",
                fix="publish again with one writer; if it stays, delete the tag there and attach"
                " again",
            )
        )
    return CouldNotError(problems) if problems else None
