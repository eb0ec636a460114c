"""Manifests, tags and lists of a registry: read with their digests checked, written with a look."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from builder.engines.registry.exchange import Exchange, TransportFailedError
from builder.engines.registry.messages import Answer, Call
from builder.engines.registry.problems import refused
from builder.errors import CouldNotError, Problem
from builder.oci import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    INDEX,
    MANIFEST,
    Descriptor,
    Digest,
    is_repository,
    is_tag,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_ACCEPT = ", ".join((MANIFEST, INDEX, DOCKER_MANIFEST, DOCKER_INDEX))
_MOST_PAGES = 1000


class Documents:
    """The small documents of a registry."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    @property
    def host(self) -> str:
        """Return the registry's name."""
        return self._exchange.host

    @property
    def attempts(self) -> int:
        """Return how often to look for what should be there."""
        return self._exchange.patience.attempts

    def wait(self, attempt: int) -> None:
        """Wait before the next look."""
        self._exchange.wait(attempt)

    def head(self, repository: str, reference: str) -> Descriptor | None:
        """Describe a manifest without fetching it; see :meth:`Registry.head`."""
        answer = self._exchange.send(self._manifest_call("HEAD", repository, reference))
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise self._refused(answer, f"say what {reference} of {repository} is")
        header = answer.headers.get("docker-content-digest")
        length = answer.headers.get("content-length")
        if not header or not length:
            return self.get(repository, reference)[0]
        digest = self._digest(header, answer.url)
        self._compare(reference, digest, answer.url)
        return Descriptor(_media_type(answer, b""), digest, int(length))

    def find(self, repository: str, reference: str) -> tuple[Descriptor, bytes] | None:
        """Return a manifest and its bytes, or ``None`` where there is none."""
        answer = self._exchange.send(self._manifest_call("GET", repository, reference))
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise self._refused(answer, f"give {reference} of {repository}")
        found = Digest.of(answer.body)
        header = answer.headers.get("docker-content-digest")
        for said in (header, reference if reference.startswith("sha256:") else None):
            if said is not None and said != found:
                raise self._mismatch(said, found, answer.url)
        return Descriptor(_media_type(answer, answer.body), found, len(answer.body)), answer.body

    def get(self, repository: str, reference: str) -> tuple[Descriptor, bytes]:
        """Return a manifest and its bytes; see :meth:`Registry.get_manifest`."""
        found = self.find(repository, reference)
        if found is None:
            raise CouldNotError(
                Problem(
                    code="NOT_IN_REGISTRY",
                    what=f"{self.host} has no {reference} in {repository}",
                    where=f"{self.host}/{repository}",
                    fix="check the name, and that the image was published",
                )
            )
        return found

    def put(
        self, repository: str, reference: str, body: bytes, media_type: str
    ) -> tuple[Descriptor, bool | None]:
        """Write a manifest and read it back.

        A lost answer is never followed by a second write before a look: the write may have been
        done. Returns the descriptor, and whether the registry said that it took note of the
        subject (``None`` where its answer was lost).
        """
        wanted = Descriptor.of(body, media_type)
        self._compare(reference, wanted.digest, reference)
        for attempt in range(self._exchange.patience.attempts):
            answer, failure = self._put_once(repository, reference, body, media_type)
            if answer is not None and answer.status in (200, 201, 202):
                said = answer.headers.get("docker-content-digest")
                if said is not None and said != wanted.digest:
                    raise self._mismatch(said, wanted.digest, answer.url)
                self._read_back(repository, reference, wanted)
                return wanted, "oci-subject" in answer.headers
            if answer is not None and answer.status < 500:
                raise failure
            now = self.head(repository, reference)
            if now is not None and now.digest == wanted.digest:
                return wanted, None
            if attempt + 1 < self._exchange.patience.attempts:
                self._exchange.wait(attempt)
        raise failure

    def delete_tag(self, repository: str, tag: str) -> bool:
        """Take a tag away; False where the registry does not do that, or has no such tag.

        A digest is never deleted: other tags may name it.
        """
        if not is_tag(tag):
            raise ValueError(f"not a tag: {tag!r}")
        scopes = (f"repository:{repository}:pull,delete",)
        answer = self._exchange.send(Call("DELETE", self._manifest_url(repository, tag), scopes))
        if answer.status in (400, 404, 405):
            return False
        if answer.status not in (200, 202):
            raise self._refused(answer, f"delete the tag {tag} of {repository}")
        return True

    def pages(self, repository: str, path: str, what: str) -> Iterator[tuple[Answer, Any]]:
        """Yield each page of a list, as its answer and JSON; nothing at all on a 404."""
        self._check(repository, None)
        url: str | None = self._exchange.url(path)
        for _ in range(_MOST_PAGES):
            if url is None:
                return
            call = Call("GET", url, _pull(repository), {"Accept": f"{INDEX}, application/json"})
            answer = self._exchange.send(call)
            if answer.status == 404:
                return
            if answer.status != 200:
                raise self._refused(answer, f"list {what} of {repository}")
            try:
                yield answer, json.loads(answer.body)
            except ValueError as error:
                raise self._no_list(answer, what) from error
            url = self._next(answer)
        raise self._no_list(answer, f"{what} on less than {_MOST_PAGES} pages")

    def tags(self, repository: str) -> tuple[str, ...]:
        """Return all tags of a repository; see :meth:`Registry.list_tags`."""
        result: list[str] = []
        for answer, page in self.pages(repository, f"/v2/{repository}/tags/list?n=1000", "tags"):
            tags = page.get("tags") if isinstance(page, dict) else page
            if not isinstance(tags, list | None):
                raise self._no_list(answer, "tags")
            result += [str(tag) for tag in tags or ()]
        return tuple(dict.fromkeys(result))

    def _put_once(
        self, repository: str, reference: str, body: bytes, media_type: str
    ) -> tuple[Answer | None, CouldNotError]:
        call = Call(
            "PUT",
            self._manifest_url(repository, reference),
            _push(repository),
            {"Content-Type": media_type},
            lambda: body,
        )
        try:
            answer = self._exchange.send(call)
        except TransportFailedError as error:
            if not error.maybe_done:
                raise
            return None, error
        return answer, self._refused(answer, f"take the manifest {reference} of {repository}")

    def _read_back(self, repository: str, reference: str, wanted: Descriptor) -> None:
        now = self.head(repository, reference)
        if now is None or now.digest != wanted.digest:
            found = "nothing" if now is None else str(now.digest)
            raise self._mismatch(found, wanted.digest, self._manifest_url(repository, reference))

    def _manifest_call(self, method: str, repository: str, reference: str) -> Call:
        url = self._manifest_url(repository, reference)
        scopes, headers = _pull(repository), {"Accept": _ACCEPT}
        return Call("HEAD" if method == "HEAD" else "GET", url, scopes, headers)

    def _manifest_url(self, repository: str, reference: str) -> str:
        self._check(repository, reference)
        return self._exchange.url(f"/v2/{repository}/manifests/{reference}")

    @staticmethod
    def _check(repository: str, reference: str | None) -> None:
        if not is_repository(repository):
            raise ValueError(f"not a repository: {repository!r}")
        if reference is not None and not is_tag(reference):
            Digest(reference)

    def _next(self, answer: Answer) -> str | None:
        link = answer.headers.get("link", "")
        target, _, relation = link.partition(">")
        if not target.startswith("<") or "next" not in relation:
            return None
        url = self._exchange.url(target[1:])
        if not url.startswith(f"{self._exchange.base.scheme}://{_netloc(self._exchange)}/"):
            raise self._no_list(answer, "its next page on the same host")
        return url

    def _refused(self, answer: Answer, doing: str) -> CouldNotError:
        return refused(answer, self.host, doing)

    def _digest(self, text: str, where: str) -> Digest:
        try:
            return Digest(text)
        except ValueError as error:
            raise CouldNotError(
                Problem(code="DIGEST_MISMATCH", what=f"the registry says {error}", where=where)
            ) from error

    def _compare(self, reference: str, digest: Digest, where: str) -> None:
        if reference.startswith("sha256:") and reference != digest:
            raise self._mismatch(digest, reference, where)

    def _mismatch(self, found: str, wanted: str, where: str) -> CouldNotError:
        return CouldNotError(
            Problem(
                code="DIGEST_MISMATCH",
                what=f"{self.host} has {found} where {wanted} should be",
                where=where,
                why="another writer, a cache before the registry, or damage on the way",
                fix="make sure that nothing else publishes there, then publish again",
            )
        )

    def _no_list(self, answer: Answer, what: str) -> CouldNotError:
        return CouldNotError(
            Problem(
                code="REGISTRY_UNEXPECTED",
                what=f"{self.host} answered with something that does not list {what}",
                where=answer.url,
            )
        )


def _media_type(answer: Answer, body: bytes) -> str:
    header = answer.headers.get("content-type", "").partition(";")[0].strip()
    if header and header != "application/json":
        return str(header)
    try:
        return str(json.loads(body or b"{}").get("mediaType") or header or MANIFEST)
    except (ValueError, AttributeError):
        return str(header or MANIFEST)


def _netloc(exchange: Exchange) -> str:
    return exchange.base.netloc.decode("ascii")


def _pull(repository: str) -> tuple[str, ...]:
    return (f"repository:{repository}:pull",)


def _push(repository: str) -> tuple[str, ...]:
    return (f"repository:{repository}:pull,push",)
