"""Attaching artifacts to an image, and reading back that they are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from builder.engines.registry.problems import BLOB_UNKNOWN
from builder.engines.registry.referrers import (
    EMPTY_CONFIG,
    Attachment,
    check_listed,
    descriptors_of,
    fallback_tag,
    merged,
    parse_index,
)
from builder.errors import CouldNotError, Problem
from builder.oci import EMPTY, INDEX, Descriptor, Digest, canonical_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.engines.registry.documents import Documents
    from builder.engines.registry.uploads import PushOutcome


class PushBlob(Protocol):
    """Brings a small blob into a repository."""

    def __call__(self, repository: str, descriptor: Descriptor, source: bytes) -> PushOutcome:
        """Push it; see :meth:`Registry.push_blob`."""
        ...


class Attached:
    """The referrers of the images of one registry, whichever way it keeps them."""

    def __init__(self, documents: Documents, push_blob: PushBlob) -> None:
        self._documents = documents
        self._push_blob = push_blob

    def listed(self, repository: str, digest: Digest) -> tuple[Descriptor, ...]:
        """Return what is attached: by the API, or by the tag in its place where it answers 404."""
        found = self._api_referrers(repository, digest)
        if found is None:
            found = descriptors_of(self._fallback_index(repository, digest), None)
        return found

    def attach_all(
        self, repository: str, subject: Descriptor, attachments: Sequence[Attachment]
    ) -> tuple[Descriptor, ...]:
        """Attach artifacts; see :meth:`Registry.attach_all`."""
        wanted: list[Descriptor] = []
        noted = True
        for attachment in attachments:
            noted = self._push_artifact(repository, subject, attachment) and noted
            wanted.append(attachment.descriptor(subject))
        if not noted and self._api_referrers(repository, subject.digest) is None:
            self._write_fallback(repository, subject.digest, wanted)
        self._confirm(repository, subject.digest, wanted)
        return tuple(wanted)

    def attach_manifest(
        self, repository: str, subject: Descriptor, artifact: Descriptor, body: bytes
    ) -> None:
        """Attach an artifact whose blobs are there; see :meth:`Registry.attach_manifest`."""
        noted = self._documents.put(repository, artifact.digest, body, artifact.media_type)[1]
        if not noted and self._api_referrers(repository, subject.digest) is None:
            self._write_fallback(repository, subject.digest, (artifact,))
        self._confirm(repository, subject.digest, (artifact,))

    def _push_artifact(self, repository: str, subject: Descriptor, artifact: Attachment) -> bool:
        """Push an artifact and tell whether the registry noted its subject.

        Every artifact has the same empty config. While another process uploads it, a registry may
        say that it has the blob and refuse the manifest for lack of it: then it did nothing, and
        blobs and manifest are sent again.
        """
        empty = Descriptor.of(EMPTY_CONFIG, EMPTY)
        target = artifact.descriptor(subject)
        body = artifact.manifest(subject)
        attempts = self._documents.attempts
        for attempt in range(attempts):
            self._push_blob(repository, empty, EMPTY_CONFIG)
            self._push_blob(repository, artifact.blob, artifact.content)
            try:
                answer = self._documents.put(repository, target.digest, body, target.media_type)
            except CouldNotError as error:
                if error.problems[0].code != BLOB_UNKNOWN or attempt + 1 == attempts:
                    raise
                self._documents.wait(attempt)
                continue
            return bool(answer[1])
        raise AssertionError("there is at least one attempt")

    def _api_referrers(self, repository: str, digest: Digest) -> tuple[Descriptor, ...] | None:
        """Return what the API lists, or ``None`` where the registry has no such API."""
        path = f"/v2/{repository}/referrers/{digest}"
        found: dict[Digest, Descriptor] = {}
        answered = False
        for answer, page in self._documents.pages(repository, path, "referrers"):
            answered = True
            if not isinstance(page, dict) or not isinstance(page.get("manifests"), list):
                raise CouldNotError(
                    Problem(
                        code="REGISTRY_UNEXPECTED",
                        what=f"the registry's list of the referrers of {digest} is no image index",
                        where=answer.url,
                    )
                )
            for descriptor in descriptors_of(page, None):
                found.setdefault(descriptor.digest, descriptor)
        return tuple(found.values()) if answered else None

    def _fallback_index(self, repository: str, digest: Digest) -> dict[str, Any]:
        tag = fallback_tag(digest)
        found = self._documents.find(repository, tag)
        if found is None:
            return {"schemaVersion": 2, "mediaType": INDEX, "manifests": []}
        return parse_index(found[1], f"{self._documents.host}/{repository}:{tag}")

    def _write_fallback(
        self, repository: str, digest: Digest, wanted: Sequence[Descriptor]
    ) -> None:
        index = self._fallback_index(repository, digest)
        new = merged(index, wanted)
        if new != index:
            body = canonical_json(new)
            self._documents.put(repository, fallback_tag(digest), body, INDEX)

    def _confirm(self, repository: str, digest: Digest, wanted: Sequence[Descriptor]) -> None:
        where = f"{self._documents.host}/{repository}@{digest}"
        attempts = self._documents.attempts
        for attempt in range(attempts):  # a registry may take a moment to list what it took
            wrong = check_listed(wanted, self.listed(repository, digest), where)
            if wrong is None:
                return
            if attempt + 1 == attempts:
                raise wrong
            self._documents.wait(attempt)
