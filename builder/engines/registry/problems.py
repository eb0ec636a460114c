"""What a registry's refusals mean, told so that the reader can act."""

from __future__ import annotations

import json
import socket
import ssl
from typing import TYPE_CHECKING

from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.engines.registry.messages import Answer

BLOB_UNKNOWN = "REGISTRY_LACKS_BLOB"
# Distribution specification, error codes of a refused manifest.
_BLOBS_MISSING = frozenset({"BLOB_UNKNOWN", "MANIFEST_BLOB_UNKNOWN"})
_LOGIN = "log in: docker login {host}"


def refused(answer: Answer, host: str, doing: str) -> CouldNotError:
    """Turn an answer that is no success into the error that says what was refused, and why."""
    said = registry_says(answer.body)
    what = f"{host} did not {doing}: HTTP {answer.status}{f' ({said})' if said else ''}"
    code, why, fix = _meaning(answer, host)
    return CouldNotError(Problem(code=code, what=what, where=answer.url, why=why, fix=fix))


def _meaning(answer: Answer, host: str) -> tuple[str, str | None, str | None]:
    status = answer.status
    if not _BLOBS_MISSING.isdisjoint(_codes(answer.body)):
        return BLOB_UNKNOWN, "a blob of it is not there, or not yet", "run the same command again"
    if status in (401, 403):
        why = "the registry does not know you, or gives you no right to this repository"
        return "REGISTRY_DENIED", why, _LOGIN.format(host=host)
    if status == 404:
        return "NOT_IN_REGISTRY", None, "check the name of the repository, and that it was pushed"
    if status == 413:
        why = "the registry, or a proxy before it, has a limit for the size of one upload"
        fix = "split the layer into smaller ones, or raise the limit of the registry's proxy"
        return "BLOB_TOO_LARGE", why, fix
    if status == 429:
        wait = answer.headers.get("retry-after")
        why = "the quota of this account or, without a login, of this address is used up"
        return "RATE_LIMIT", why, f"{_LOGIN.format(host=host)}; {told_wait(wait)}"
    if status >= 500:
        return "REGISTRY_FAILED", "the fault is the registry's", "run the same command again later"
    if b"HTTP request to an HTTPS server" in answer.body:
        return "REGISTRY_WANTS_TLS", None, f"use TLS for {host}: turn plain http off"
    return "REGISTRY_UNEXPECTED", None, None


def told_wait(header: str | None) -> str:
    """Say what a ``Retry-After`` header asks for: seconds, or a date."""
    if not header:
        return "wait some minutes"
    return f"it says to wait {header} s" if header.isdigit() else f"it says to wait until {header}"


def _codes(body: bytes) -> set[str]:
    try:
        return {str(error["code"]) for error in json.loads(body)["errors"]}
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()


def registry_says(body: bytes) -> str:
    """Return the code and message of the registry's own error, on one line of 300 characters."""
    try:
        errors = json.loads(body)["errors"]
        parts = [f"{error['code']}: {error.get('message') or ''}" for error in errors]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    text = " ".join("; ".join(parts).split())
    return "".join(char for char in text if char.isprintable())[:300].rstrip(": ")


def unreachable(error: Exception, host: str, where: str) -> Problem:
    """Say why no answer came from ``host``, with the setting that would help."""
    for cause in _chain(error):
        if isinstance(cause, socket.gaierror):
            return Problem(
                code="REGISTRY_UNKNOWN_HOST",
                what=f"the name {host.rpartition(':')[0] or host} cannot be resolved",
                where=where,
                fix="check `registry:` in matrix.yaml and the name server; a site without the"
                " internet names its own registry there",
            )
        if isinstance(cause, ConnectionRefusedError):
            return Problem(
                code="REGISTRY_REFUSED_CONNECTION",
                what=f"nothing listens at {host}: the connection was refused",
                where=where,
                fix="start the registry, or check `registry:` and its port in matrix.yaml",
            )
        if isinstance(cause, ssl.SSLError):
            return _tls(cause, host, where)
    return Problem(
        code="REGISTRY_NO_ANSWER",
        what=f"the connection to {host} failed: {type(error).__name__} {error}".rstrip(),
        where=where,
        fix="check the network and the proxy settings (HTTPS_PROXY, NO_PROXY), then run again",
    )


def _tls(cause: ssl.SSLError, host: str, where: str) -> Problem:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Problem(
            code="REGISTRY_TLS",
            what=f"the certificate of {host} is not trusted: {cause.verify_message}",
            where=where,
            fix="set SSL_CERT_FILE to a file with your site's certificate authority",
        )
    return Problem(
        code="REGISTRY_TLS",
        what=f"TLS with {host} failed: {cause.reason or cause}",
        where=where,
        why="a registry that speaks plain http answers so",
        fix=f"turn plain http on for {host} if it has no TLS",
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
