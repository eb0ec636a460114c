"""The registry as the steps of the pipeline see it."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import httpx

from builder.engines.registry.attaching import Attached
from builder.engines.registry.documents import Documents
from builder.engines.registry.exchange import Exchange, Patience
from builder.engines.registry.hosts import is_loopback
from builder.engines.registry.messages import Call
from builder.engines.registry.problems import refused
from builder.engines.registry.referrers import Attachment
from builder.engines.registry.sources import Source
from builder.engines.registry.uploads import CHUNK_SIZE, PushOutcome, Upload
from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from builder.engines.layout import Layout
    from builder.engines.registry.auth import CredentialSource
    from builder.engines.registry.credentials import Credentials
    from builder.oci import Descriptor, Digest


@dataclass(frozen=True, slots=True)
class PushedImage:
    """An image as it is in the registry now, and how each blob came there, config first."""

    descriptor: Descriptor
    blobs: tuple[PushOutcome, ...]


class Registry:
    """One registry over HTTP (OCI distribution 1.1).

    Referrers of one image, and each tag, have one writer: registries have no compare-and-set.
    Two processes that attach to different images do not disturb each other.

    Args:
        host: as in a reference, with its port: ``localhost:5000``, ``ghcr.io``, ``docker.io``.
        plain_http: without TLS; by default for this machine's own addresses only.
        credentials: a value, or a function that finds them at the first challenge.
        transport: takes the place of the network in tests.
        chunk_size: bytes; larger blobs are sent in parts of that size and resumed between them.
        clock: seconds since 1970, for the life of tokens.
    """

    def __init__(
        self,
        host: str,
        *,
        plain_http: bool | None = None,
        credentials: Credentials | CredentialSource | None = None,
        transport: httpx.BaseTransport | None = None,
        patience: Patience | None = None,
        chunk_size: int = CHUNK_SIZE,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._exchange = Exchange(
            host,
            plain_http=is_loopback(host) if plain_http is None else plain_http,
            credentials=credentials,
            transport=transport,
            patience=patience,
            clock=clock,
            sleep=sleep,
        )
        self._documents = Documents(self._exchange)
        self._attached = Attached(self._documents, self.push_blob)
        self._chunk_size = chunk_size
        self.host = host

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._exchange.close()

    # Reading. Every method raises CouldNotError that says what the registry or network did.

    def ping(self) -> None:
        """Ask whether a registry answers there and lets us in."""
        answer = self._exchange.send(Call("GET", self._exchange.url("/v2/")))
        if answer.status == 404:
            raise CouldNotError(
                Problem(
                    code="NOT_A_REGISTRY",
                    what=f"{self.host} answers and is no registry: it has no /v2/",
                    where=answer.url,
                    fix="check `registry:` in matrix.yaml",
                )
            )
        if answer.status != 200:
            raise refused(answer, self.host, "let us in")

    def head(self, repository: str, reference: str) -> Descriptor | None:
        """Describe what a tag or digest names, or ``None`` where the registry says 404."""
        return self._documents.head(repository, reference)

    def get_manifest(self, repository: str, reference: str) -> tuple[Descriptor, bytes]:
        """Return a manifest (4 MiB at most) whose digest agrees with its bytes and its header."""
        return self._documents.get(repository, reference)

    def get_blob(self, repository: str, descriptor: Descriptor) -> Iterator[bytes]:
        """Yield a blob in pieces; broken transfers go on where they stopped.

        The digest is known at the end only: use nothing of it before the last piece was given
        out without an error (``DIGEST_MISMATCH``).
        """
        url = self._exchange.url(f"/v2/{repository}/blobs/{descriptor.digest}")
        found, size, broken = hashlib.sha256(), 0, 0
        while True:
            try:
                for piece in self._blob_from(url, repository, size):
                    found.update(piece)
                    size += len(piece)
                    yield piece
                break
            except httpx.TransportError as error:
                broken += 1
                if size >= descriptor.size:
                    break
                if broken >= self._exchange.patience.attempts:
                    raise self._exchange.failed(error, url) from error
                self._exchange.wait(broken - 1)
        if size != descriptor.size or found.hexdigest() != descriptor.digest.hex:
            raise CouldNotError(
                Problem(
                    code="DIGEST_MISMATCH",
                    what=f"the registry gave {size} bytes with sha256:{found.hexdigest()} for"
                    f" {descriptor.digest} of {descriptor.size} bytes",
                    where=url,
                )
            )

    def referrers(
        self, repository: str, digest: Digest, artifact_type: str | None = None
    ) -> tuple[Descriptor, ...]:
        """Return what is attached to an image: by the API, or by the tag in its place."""
        found = self._attached.listed(repository, digest)
        return tuple(d for d in found if artifact_type in (None, d.artifact_type))

    def list_tags(self, repository: str) -> tuple[str, ...]:
        """Return all tags of a repository in the registry's order; none where it is unknown."""
        return self._documents.tags(repository)

    # Writing

    def push_blob(
        self,
        repository: str,
        descriptor: Descriptor,
        source: Path | bytes,
        mount_from: Sequence[str] = (),
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> PushOutcome:
        """Bring one blob into a repository, sending nothing that is there already.

        Args:
            repository: where to.
            descriptor: digest and size, which the source must have.
            source: a file, or the bytes.
            mount_from: repositories of this registry that may hold it.
            on_bytes: told of each piece as it is sent.

        Raises:
            CouldNotError: ``BLOB_SESSION_EXPIRED`` after three lost sessions, and any refusal.
            RefusedError: ``BLOB_DAMAGED``, where the source is not what the descriptor says.
        """
        upload = Upload(
            self._exchange, repository, descriptor, Source(source), on_bytes, self._chunk_size
        )
        return upload.run(mount_from)

    def push_manifest(
        self, repository: str, reference: str, body: bytes, media_type: str
    ) -> Descriptor:
        """Write a manifest under a tag or its digest and read it back.

        Raises:
            CouldNotError: a refusal, or ``DIGEST_MISMATCH`` where another digest is there after.
        """
        return self._documents.put(repository, reference, body, media_type)[0]

    def push_image(
        self,
        layout: Layout,
        digest: Digest,
        repository: str,
        reference: str | None = None,
        *,
        mount_from: Sequence[str] = (),
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> PushedImage:
        """Push an image of a layout: config and layers, then the manifest.

        ``reference`` is a tag; without it the image is pushed by digest alone.
        """
        manifest = layout.manifest(digest)
        blobs = tuple(
            self.push_blob(repository, blob, layout.blob_path(blob.digest), mount_from, on_bytes)
            for blob in manifest.blobs
        )
        descriptor = self.push_manifest(
            repository, reference or manifest.digest, manifest.raw, manifest.media_type
        )
        return PushedImage(descriptor, blobs)

    def tag(self, repository: str, digest: Digest, tag: str) -> Descriptor:
        """Let ``tag`` name what ``digest`` names, by the same bytes, and compare after."""
        descriptor, body = self.get_manifest(repository, digest)
        return self.push_manifest(repository, tag, body, descriptor.media_type)

    def delete_tag(self, repository: str, tag: str) -> bool:
        """Take a tag away; False where the registry does not do that, or has no such tag."""
        return self._documents.delete_tag(repository, tag)

    def attach(
        self,
        repository: str,
        subject: Descriptor,
        artifact_type: str,
        content: bytes,
        media_type: str,
        annotations: Mapping[str, str] | None = None,
    ) -> Descriptor:
        """Attach one artifact to an image; see :meth:`attach_all`."""
        attachment = Attachment(artifact_type, content, media_type, dict(annotations or {}))
        return self.attach_all(repository, subject, (attachment,))[0]

    def attach_all(
        self, repository: str, subject: Descriptor, attachments: Sequence[Attachment]
    ) -> tuple[Descriptor, ...]:
        """Attach artifacts to an image, and read back that all are listed.

        The same attachments again change nothing. Where the registry has no referrers API, the
        tag that lists them is read, merged, written once and read back; one writer an image.

        Raises:
            CouldNotError: a refusal, or ``REFERRER_INCOMPLETE`` where one is not listed after.
            RefusedError: ``REFERRERS_TAG_FOREIGN``.
        """
        return self._attached.attach_all(repository, subject, attachments)

    def attach_manifest(
        self, repository: str, subject: Descriptor, artifact: Descriptor, body: bytes
    ) -> None:
        """Attach an artifact by its manifest; its blobs are there and may be of any size.

        Raises:
            CouldNotError: a refusal, or ``REFERRER_INCOMPLETE`` where it is not listed after.
        """
        self._attached.attach_manifest(repository, subject, artifact, body)

    def _blob_from(self, url: str, repository: str, offset: int) -> Iterator[bytes]:
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        response = self._exchange.open(
            Call("GET", url, (f"repository:{repository}:pull",), headers)
        )
        try:
            if response.status_code not in (200, 206):
                raise refused(self._exchange.read(response), self.host, "give a blob")
            skip = offset if response.status_code == 200 else 0
            for piece in response.iter_raw(1 << 20):
                rest = piece[skip:]
                skip -= len(piece) - len(rest)
                if rest:
                    yield rest
        finally:
            response.close()
