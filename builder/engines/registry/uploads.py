"""One blob into a repository: not sent where it is there already, resumed where a line broke.

Distribution specification 1.1, "Pushing blobs": POST opens a session, PATCH adds a chunk, PUT ends
it with the digest. Each answer names the address of the next call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import httpx

from builder.engines.registry.exchange import Exchange, TransportFailedError
from builder.engines.registry.messages import Answer, Call
from builder.engines.registry.problems import refused
from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from builder.engines.registry.sources import Source
    from builder.oci import Descriptor

CHUNK_SIZE = 64 << 20
_SESSIONS = 3  # the first one, and two restarts of the same blob
_RANGE = re.compile(r"(?:bytes=)?0-(\d+)")


@dataclass(frozen=True, slots=True)
class PushOutcome:
    """How a blob came to be in the repository; bytes that were sent again count again."""

    how: Literal["existed", "mounted", "uploaded"]
    bytes_sent: int = 0


class _SessionLostError(Exception):
    """The registry no longer knows the upload: only a new session can help."""


class Upload:
    """The upload of one blob."""

    def __init__(
        self,
        exchange: Exchange,
        repository: str,
        blob: Descriptor,
        source: Source,
        on_bytes: Callable[[int], None],
        chunk_size: int,
    ) -> None:
        self._exchange = exchange
        self._repository = repository
        self._blob = blob
        self._source = source
        self._on_bytes = on_bytes
        self._chunk_size = chunk_size
        self._scopes = (f"repository:{repository}:pull,push",)
        self._doing = f"take the blob {blob.digest} ({blob.size} bytes)"
        self._location = ""
        self._sent = 0

    def run(self, mount_from: Sequence[str]) -> PushOutcome:
        """Bring the blob into the repository by the cheapest way that works."""
        if self._exists():
            return PushOutcome("existed")
        self._source.check(self._blob)
        for origin in mount_from:
            if origin != self._repository and self._mount(origin):
                return PushOutcome("mounted")
        for number in range(_SESSIONS):
            try:
                if number or not self._location:
                    self._open()
                self._transfer()
            except _SessionLostError:
                self._source.check(self._blob, content=True)
                if self._exists():
                    return PushOutcome("uploaded", self._sent)
            else:
                return PushOutcome("uploaded", self._sent)
        raise self._expired()

    # Sessions

    def _exists(self) -> bool:
        url = self._exchange.url(f"/v2/{self._repository}/blobs/{self._blob.digest}")
        answer = self._exchange.send(Call("HEAD", url, self._scopes))
        if answer.status == 404:
            return False
        if answer.status != 200:
            raise refused(answer, self._exchange.host, f"say whether it holds {self._blob.digest}")
        return True

    def _mount(self, origin: str) -> bool:
        scopes = (*self._scopes, f"repository:{origin}:pull")
        query = httpx.QueryParams({"mount": self._blob.digest, "from": origin})
        try:
            answer = self._post(f"?{query}", scopes)
        except _SessionLostError:
            return self._exists()
        except CouldNotError:
            return False  # a short cut only: what stands in the way of the upload will say so
        if answer.status == 202:
            self._location = self._next(answer)  # it would not: go on with the session it opened
        return answer.status == 201

    def _open(self) -> None:
        answer = self._post("", self._scopes)
        if answer.status != 202:
            raise refused(answer, self._exchange.host, self._doing)
        self._location = self._next(answer)

    def _post(self, query: str, scopes: tuple[str, ...]) -> Answer:
        # A session that nobody goes on with costs nothing and expires, so this one write is
        # repeated by the caller's loop without a look.
        url = self._exchange.url(f"/v2/{self._repository}/blobs/uploads/{query}")
        headers = {"Content-Length": "0"}
        try:
            return self._exchange.send(Call("POST", url, scopes, headers))
        except TransportFailedError as error:
            if not error.maybe_done:
                raise
            raise _SessionLostError from error

    def _next(self, answer: Answer) -> str:
        location = answer.headers.get("location")
        if not location:
            raise refused(answer, self._exchange.host, "say where to go on with the upload")
        return self._exchange.url(location)

    # Bytes

    def _transfer(self) -> None:
        offset, furthest, stuck = 0, 0, 0
        while True:
            answer, failure = self._attempt(offset)
            if answer is not None and answer.status in (201, 204):
                return self._check_end(answer)
            if answer is None or answer.status != 202:
                self._judge(answer, failure)
                if offset == self._blob.size and self._exists():
                    return None  # only the answer was lost
                offset = self._status(failure)
            else:
                offset = self._taken(answer, offset)
            stuck = 0 if offset > furthest else stuck + 1
            if stuck >= self._exchange.patience.attempts:
                raise failure
            if stuck:
                self._exchange.wait(stuck - 1)
            furthest = max(furthest, offset)

    def _attempt(self, offset: int) -> tuple[Answer | None, CouldNotError]:
        """Send the next part; return the answer, if one came, and what it means if it is bad."""
        try:
            answer = self._step(offset)
        except TransportFailedError as error:
            if not error.maybe_done:
                raise
            return None, error
        return answer, refused(answer, self._exchange.host, self._doing)

    def _judge(self, answer: Answer | None, failure: CouldNotError) -> None:
        """Raise where going on from the same session makes no sense."""
        if answer is None or answer.status >= 500 or answer.status == 416:
            return
        if answer.status == 404 or (answer.status == 400 and b"_INVALID" in answer.body):
            # Unknown session; or a digest or range that does not fit: bytes were lost on the way,
            # or the source is not what its digest says, which is looked at before a restart.
            raise _SessionLostError from failure
        raise failure

    def _step(self, offset: int) -> Answer:
        size = self._blob.size
        if offset == 0 and size <= self._chunk_size:
            return self._call("PUT", 0, size)
        if offset == size:
            return self._call("PUT", size, size)
        return self._call("PATCH", offset, self._end_of_chunk(offset))

    def _end_of_chunk(self, offset: int) -> int:
        return min(offset + self._chunk_size, self._blob.size)

    def _taken(self, answer: Answer, offset: int) -> int:
        """Return how far the session is after a chunk, and take the address of the next one."""
        self._location = self._next(answer)
        taken = _offset(answer)
        return self._end_of_chunk(offset) if taken is None else min(taken, self._blob.size)

    def _call(self, method: Literal["PUT", "PATCH"], start: int, end: int) -> Answer:
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(end - start),
        }
        url = self._location
        if method == "PATCH":
            headers["Content-Range"] = f"{start}-{end - 1}"
        else:
            url = str(httpx.URL(url).copy_add_param("digest", self._blob.digest))
        body = (lambda: self._counted(start, end)) if end > start else None
        return self._exchange.send(Call(method, url, self._scopes, headers, body))

    def _counted(self, start: int, end: int) -> Iterator[bytes]:
        for piece in self._source.pieces(start, end):
            yield piece
            self._sent += len(piece)
            self._on_bytes(len(piece))

    def _status(self, failure: CouldNotError) -> int:
        """Ask how far the session has come; take the address that the answer names."""
        answer = self._exchange.send(Call("GET", self._location, self._scopes))
        if answer.status == 404:
            raise _SessionLostError from failure
        if answer.status not in (200, 202, 204):
            raise failure
        if answer.headers.get("location"):
            self._location = self._next(answer)
        return min(_offset(answer) or 0, self._blob.size)

    def _check_end(self, answer: Answer) -> None:
        claimed = answer.headers.get("docker-content-digest", self._blob.digest)
        if claimed == self._blob.digest and self._exists():
            return
        raise CouldNotError(
            Problem(
                code="DIGEST_MISMATCH",
                what=f"the registry took {self._blob.digest} and then says it holds {claimed}"
                if claimed != self._blob.digest
                else f"the registry took {self._blob.digest} and then does not hold it",
                where=answer.url,
            )
        )

    def _expired(self) -> CouldNotError:
        return CouldNotError(
            Problem(
                code="BLOB_SESSION_EXPIRED",
                what=f"the upload of {self._blob.digest} ({self._blob.size} bytes) was lost"
                f" {_SESSIONS} times: the session ended before the layer was complete",
                where=f"{self._exchange.host}/{self._repository}",
                why="the registry, its storage or a proxy lets an upload live too short a time",
                fix="split the layer into smaller ones, or raise the limit of the registry",
            )
        )


def _offset(answer: Answer) -> int | None:
    # `0-0` stands for nothing yet: registries that subtract one from the length say it so.
    match = _RANGE.fullmatch(answer.headers.get("range", ""))
    if match is None:
        return None
    last = int(match[1])
    return last + 1 if last else 0
