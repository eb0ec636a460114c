"""Reads from servers of files: wheel indexes and what they serve. Patient, and it never writes."""

from __future__ import annotations

import time
from contextlib import contextmanager
from netrc import NetrcParseError
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import httpx

from builder.engines.registry import Patience, is_loopback, retry_after
from builder.engines.registry.problems import told_wait
from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# Seconds. The first is between two pieces of one answer.
_TIMEOUT = httpx.Timeout(60.0, connect=15.0)
_LATER = frozenset({429, 500, 502, 503, 504})
# What says that something is not there. The store behind download.pytorch.org answers 403 for it.
MISSING = frozenset({403, 404, 410})


class Fetcher:
    """Opens addresses for reading.

    Args:
        patience: how often an answer that may be better later is asked for again.
        clock: seconds since 1970.
        sleep: waits for seconds.
        go_on: raises where the run is to end.
        login: for the servers that want one; see :func:`netrc_login`.
    """

    def __init__(
        self,
        patience: Patience | None = None,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        go_on: Callable[[], None] = lambda: None,
        login: httpx.Auth | None = None,
    ) -> None:
        self._login = login
        self.patience = patience or Patience()
        self.sleep = sleep
        self.go_on = go_on
        self._clock = clock

    @contextmanager
    def open(self, url: str, headers: Mapping[str, str] | None = None) -> Iterator[httpx.Response]:
        """Give the answer at ``url``, unread; the caller judges a status that says "not there".

        Raises:
            CouldNotError: ``INDEX_UNREACHABLE``, ``RATE_LIMIT`` or ``INDEX_FAILED``.
        """
        host = httpx.URL(url).netloc.decode("ascii")
        # A proxy of the environment has no business between us and our own machine.
        with httpx.Client(
            timeout=_TIMEOUT,
            follow_redirects=True,
            auth=self._login,
            trust_env=not is_loopback(host),
            headers={"User-Agent": "rocm-torch", "Accept-Encoding": "identity"},
        ) as client:
            response = self._opened(client, url, dict(headers or {}))
            try:
                yield response
            finally:
                response.close()

    def _opened(self, client: httpx.Client, url: str, headers: dict[str, str]) -> httpx.Response:
        for attempt in range(self.patience.attempts):
            self.go_on()
            last = attempt + 1 == self.patience.attempts
            try:
                response = client.send(
                    client.build_request("GET", url, headers=headers), stream=True
                )
            except httpx.HTTPError as error:
                if last or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    raise unreachable(url, error) from error
                self.wait(attempt)
                continue
            if response.status_code not in _LATER:
                if response.is_success or response.status_code in MISSING | {416}:
                    return response
                refuse(response)
            seconds = self._seconds(response, attempt)
            if last or seconds > self.patience.longest_wait:
                refuse(response)
            response.close()
            self.sleep(seconds)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def wait(self, attempt: int) -> None:
        """Wait before the next attempt, twice as long each time."""
        self.sleep(self.patience.first_wait * 2**attempt)

    def _seconds(self, response: httpx.Response, attempt: int) -> float:
        said = retry_after(response.headers.get("retry-after"), self._clock())
        return self.patience.first_wait * 2**attempt if said is None else said


def netrc_login(environ: Mapping[str, str]) -> httpx.Auth | None:
    """Return the logins of the file that ``NETRC`` names, or of ``~/.netrc``, which uv reads too.

    Raises:
        CouldNotError: ``NETRC_UNREADABLE``.
    """
    named = environ.get("NETRC")
    path = Path(named) if named else Path(environ.get("HOME", "/")) / ".netrc"
    if not path.is_file():
        return None
    try:
        return httpx.NetRCAuth(str(path))
    except (OSError, NetrcParseError) as error:
        # Not the whole error: it may quote the line, and so a password.
        line = f" in line {error.lineno}" if isinstance(error, NetrcParseError) else ""
        what = f"the file of logins cannot be read: {type(error).__name__}{line}"
        raise CouldNotError(Problem("NETRC_UNREADABLE", what, where=str(path))) from error


def unreachable(url: str, error: httpx.HTTPError) -> CouldNotError:
    """Say that no whole answer came from ``url``."""
    return CouldNotError(
        Problem(
            code="INDEX_UNREACHABLE",
            what=f"the server did not answer: {str(error) or type(error).__name__}",
            where=plain(url),
            fix="check the network and its proxy settings",
        )
    )


def refuse(response: httpx.Response) -> NoReturn:
    """Raise what the status of ``response`` means, and close it."""
    response.close()
    status, where = response.status_code, plain(str(response.request.url))
    if status == 429:
        told = told_wait(response.headers.get("retry-after"))
        raise CouldNotError(
            Problem(
                code="RATE_LIMIT",
                what="the server takes no more requests for now: HTTP 429",
                where=where,
                why="the quota of this address is used up",
                fix=f"{told}, or log in to a mirror of your own and name it in `indexes:`",
            )
        )
    raise CouldNotError(
        Problem(
            code="INDEX_FAILED",
            what=f"the server answered with HTTP {status}",
            where=where,
            fix="run the same command again later"
            if status >= 500
            else "check the address; a login for this server belongs into ~/.netrc, or into the"
            " file that NETRC names",
        )
    )


def plain(url: str) -> str:
    """Return ``url`` without login, query and fragment: as it may be shown and written down."""
    parsed = httpx.URL(url)
    return str(parsed.copy_with(username=None, password=None, query=None, fragment=None))
