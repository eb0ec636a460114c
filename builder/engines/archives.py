"""The state of a package archive: when a suite was last released, and the hash of that statement.

The lock writes it down for each suite; the newest date of a cell's suites is its epoch. Signatures
are not checked here: the package manager that installs from the archive does that.
Source: Debian repository format, ``Release`` files.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import httpx

from builder.engines.registry import is_loopback
from builder.errors import CouldNotError, Problem
from builder.matrix.lock import ArchiveState
from builder.oci import Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Seconds. A machine without a route fails at once; behind a firewall that drops, after the first.
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_FIELD = re.compile(r"(?P<name>[A-Za-z0-9-]+):[ \t]*(?P<value>.*)")


def archive_state(
    fetch: Callable[[str], bytes], uri: str, suite: str, *, served: str | None = None
) -> ArchiveState:
    """Ask the archive at ``uri`` for the state of ``suite``.

    Args:
        fetch: returns the body at a URL; its errors pass through.
        uri: root of the archive, e.g. ``http://deb.debian.org/debian``; the state is kept by it.
        suite: e.g. ``trixie-updates``.
        served: the address that is asked in its place, at a site with a mirror.

    Raises:
        CouldNotError: the answer is not the ``InRelease`` file of that suite.
    """
    where = f"{(served or uri).rstrip('/')}/dists/{suite}/InRelease"
    content = fetch(where)
    return ArchiveState(
        uri.rstrip("/"), suite, release_date(content, suite, where), Digest.of(content)
    )


def fetch(url: str) -> bytes:
    """Return the body at ``url``, asked for once.

    Raises:
        CouldNotError: ``ARCHIVE_UNREACHABLE``, with what went wrong.
    """
    loopback = is_loopback(httpx.URL(url).netloc.decode("ascii"))
    try:
        # A proxy of the environment has no business between us and our own machine.
        answer = httpx.get(url, timeout=_TIMEOUT, follow_redirects=True, trust_env=not loopback)
        answer.raise_for_status()
    except httpx.HTTPStatusError as error:
        what = f"the package archive answered with HTTP {error.response.status_code}"
        raise _unreachable(url, what) from error
    except httpx.HTTPError as error:
        what = f"the package archive did not answer: {str(error) or type(error).__name__}"
        raise _unreachable(url, what) from error
    return answer.content


def _unreachable(url: str, what: str) -> CouldNotError:
    return CouldNotError(
        Problem(
            code="ARCHIVE_UNREACHABLE",
            what=what,
            where=url,
            fix="check the network and its proxy settings",
        )
    )


def release_date(content: bytes, suite: str, where: str) -> datetime:
    """Return the time in UTC at which ``suite`` was released.

    Args:
        content: the ``InRelease`` (clear-signed) or ``Release`` file.
        suite: the name that was asked for; the file must carry it as suite or codename.
        where: where the file came from, for messages.

    Raises:
        CouldNotError: there is no readable ``Date`` field, or the file is another suite's.
    """
    fields = _fields(content.decode("utf-8", "replace"))
    names = {fields[name] for name in ("suite", "codename") if name in fields}
    text = fields.get("date")
    if text is None:
        raise _unreadable(where, "the answer has no Date field, so it is no Release file")
    if names and suite not in names:
        raise _unreadable(where, f"it is the Release file of {' / '.join(sorted(names))}")
    try:
        date = parsedate_to_datetime(text)
    except ValueError as error:
        raise _unreadable(where, f"its Date field is no date: {text!r}") from error
    return date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)


def _fields(text: str) -> Mapping[str, str]:
    """Return the single-line fields of the file, names in lower case, without the signature."""
    lines = text.splitlines()
    if lines and lines[0].startswith("-----BEGIN PGP SIGNED MESSAGE"):
        blank = next((number for number, line in enumerate(lines) if not line.strip()), 0)
        lines = lines[blank + 1 :]
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith("-----BEGIN PGP SIGNATURE"):
            break
        if found := _FIELD.fullmatch(line.rstrip()):
            fields.setdefault(found["name"].lower(), found["value"])
    return fields


def _unreadable(where: str, what: str) -> CouldNotError:
    return CouldNotError(
        Problem(
            code="ARCHIVE_UNREADABLE",
            what=f"the state of the package archive cannot be read: {what}",
            where=where,
            fix="check the archive's address and suite, and what a proxy on the way answers",
        )
    )
