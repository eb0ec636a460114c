"""One call to a registry and its answer: redirects, logins, waiting, and what may be repeated."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import httpx

from builder.engines.registry.auth import Authenticator
from builder.engines.registry.hosts import base_url, is_loopback, is_safe, same_place
from builder.engines.registry.messages import Answer, Call
from builder.engines.registry.problems import refused, unreachable
from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.engines.registry.auth import CredentialSource
    from builder.engines.registry.credentials import Credentials

LIMIT = 4 << 20  # bytes of a document (manifest, index, list, error) that we take
_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5
_TIMEOUT = httpx.Timeout(120.0, connect=15.0)

# They write down whole addresses, and those of uploads and redirects are signed.
for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to go on against a registry that stumbles.

    Attributes:
        attempts: how often one read is made at most, and one upload goes on without progress.
        first_wait: seconds before the second attempt; each later one waits twice as long.
        longest_wait: seconds of ``Retry-After`` that are waited for; past it the call fails.
    """

    attempts: int = 4
    first_wait: float = 0.5
    longest_wait: float = 120.0


class TransportFailedError(CouldNotError):
    """No whole answer came. ``maybe_done``: the registry may have got the request."""

    def __init__(self, problem: Problem, *, maybe_done: bool) -> None:
        super().__init__(problem)
        self.maybe_done = maybe_done


class Exchange:
    """Makes calls to one registry.

    Reads are repeated a few times; writes only after a 401 or a 429, by which the registry says
    that it did nothing. Everything else about a failed write is the caller's to find out.
    """

    def __init__(
        self,
        host: str,
        *,
        plain_http: bool,
        credentials: Credentials | CredentialSource | None = None,
        transport: httpx.BaseTransport | None = None,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.host = host
        self.patience = patience or Patience()
        self._clock = clock
        self._sleep = sleep
        self.base = base_url(host, plain_http=plain_http)
        # A proxy of the environment has no business between us and our own machine.
        self._client = httpx.Client(
            transport=transport,
            timeout=_TIMEOUT,
            trust_env=not is_loopback(host),
            headers={"User-Agent": "rocm-torch", "Accept-Encoding": "identity"},
        )
        self._auth = Authenticator(
            host, safe=is_safe, credentials=credentials, clock=clock, fetch=self._fetch_token
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def url(self, path: str) -> str:
        """Return the address of a path, or of what a ``Location`` or ``Link`` header names."""
        return str(self.base.join(path))

    def send(self, call: Call) -> Answer:
        """Make a call and read its answer, which the caller judges by its status.

        Raises:
            TransportFailedError: no answer; for a read after all attempts.
            CouldNotError: an answer beyond the limit of 4 MiB, a redirect or login that is not
                followed.
        """
        for attempt in range(self.patience.attempts):
            response = self.open(call)
            try:
                return self.read(response)
            except httpx.TransportError as error:
                if not call.is_read or attempt + 1 == self.patience.attempts:
                    raise self.failed(error, call.url) from error
                self.wait(attempt)
            finally:
                response.close()
        raise AssertionError("unreachable: the last attempt returns or raises")

    def open(self, call: Call) -> httpx.Response:
        """Make a call and return its answer unread; the caller closes it."""
        attempt = 0
        while True:
            try:
                response = self._authorised(call)
            except httpx.TransportError as error:
                failure = self.failed(error, call.url)
                if not (call.is_read and failure.maybe_done and self._may_repeat(attempt)):
                    raise failure from error
                self.wait(attempt)
            else:
                seconds = self._wait_after(response, call, attempt)
                if seconds is None:
                    return response
                response.close()
                self._sleep(seconds)
            attempt += 1

    @staticmethod
    def read(response: httpx.Response) -> Answer:
        """Read an open answer, of 4 MiB at most."""
        url = str(response.request.url.copy_with(query=None))
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > LIMIT:
                raise CouldNotError(
                    Problem(
                        code="REGISTRY_DOCUMENT_TOO_LARGE",
                        what=f"the registry's answer is longer than {LIMIT} bytes",
                        where=url,
                        why="no manifest, list or report of ours comes near that size",
                    )
                )
        return Answer(response.status_code, response.headers, bytes(body), url)

    def wait(self, attempt: int) -> None:
        """Wait before the next attempt, twice as long each time."""
        self._sleep(self._backoff(attempt))

    def _backoff(self, attempt: int) -> float:
        return float(self.patience.first_wait * 2**attempt)

    def failed(self, error: httpx.TransportError, url: str) -> TransportFailedError:
        """Say why no answer came."""
        sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        where = httpx.URL(url)
        host = where.netloc.decode("ascii")
        problem = unreachable(error, host, str(where.copy_with(query=None)))
        return TransportFailedError(problem, maybe_done=sent)

    def _may_repeat(self, attempt: int) -> bool:
        return attempt + 1 < self.patience.attempts

    def _wait_after(self, response: httpx.Response, call: Call, attempt: int) -> float | None:
        status = response.status_code
        if not self._may_repeat(attempt):
            return None
        if status == 429:
            seconds = retry_after(response.headers.get("retry-after"), self._clock())
            if seconds is None:
                return self._backoff(attempt)
            return seconds if seconds <= self.patience.longest_wait else None
        if call.is_read and status in (500, 502, 503, 504):
            return self._backoff(attempt)
        return None

    def _authorised(self, call: Call) -> httpx.Response:
        response = self._follow(call)
        if response.status_code != 401 or not same_place(response.request.url, self.base):
            return response
        challenge = response.headers.get("www-authenticate", "")
        sent = "authorization" in response.request.headers
        if not self._auth.challenged(challenge, call.scopes, sent=sent):
            return response
        _drain(response)
        return self._follow(call)

    def _follow(self, call: Call) -> httpx.Response:
        url = httpx.URL(call.url)
        for _ in range(_MOST_REDIRECTS + 1):
            response = self._once(call, url)
            location = response.headers.get("location")
            if not (call.is_read and response.status_code in _REDIRECTS and location):
                return response
            response.close()
            target = url.join(location)
            if url.scheme == "https" and target.scheme != "https":
                raise self._bad_redirect(target, "it leads from TLS to plain http")
            url = target
        raise self._bad_redirect(url, f"there are more than {_MOST_REDIRECTS} of them")

    def _once(self, call: Call, url: httpx.URL) -> httpx.Response:
        headers = dict(call.headers)
        if same_place(url, self.base):
            token = self._auth.header(str(url), call.scopes)
            if token:
                headers["Authorization"] = token
        content = call.body() if call.body is not None else None
        request = self._client.build_request(call.method, url, headers=headers, content=content)
        return self._client.send(request, stream=True)

    def _fetch_token(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> Answer:
        for attempt in range(self.patience.attempts):
            last = not self._may_repeat(attempt)
            try:
                request = self._client.build_request(method, url, headers=headers, content=body)
                response = self._client.send(request, stream=True)
                try:
                    answer = self.read(response)
                finally:
                    response.close()
            except httpx.TransportError as error:
                failure = self.failed(error, url)
                if last or not failure.maybe_done:
                    raise failure from error
            else:
                if answer.status < 400:
                    return answer
                if last or answer.status not in (429, 500, 502, 503, 504):
                    raise refused(answer, self.host, "give a token")
            self.wait(attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _bad_redirect(self, url: httpx.URL, why: str) -> CouldNotError:
        return CouldNotError(
            Problem(
                code="REGISTRY_REDIRECT",
                what=f"{self.host} sends us on to an address that is not followed: {why}",
                where=str(url.copy_with(query=None)),
            )
        )


def retry_after(header: str | None, now: float) -> float | None:
    """Return how many seconds a ``Retry-After`` header says to wait; None where it says nothing.

    Args:
        header: seconds, or a date (RFC 9110, section 10.2.3).
        now: seconds since 1970.
    """
    if not header:
        return None
    try:
        return max(float(header), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(header).timestamp() - now, 0.0)
    except (TypeError, ValueError):
        return None


def _drain(response: httpx.Response) -> None:
    # A small answer is read to its end, so that the connection can be used again.
    try:
        Exchange.read(response)
    finally:
        response.close()
