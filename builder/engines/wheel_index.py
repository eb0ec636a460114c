"""What a wheel index says: pages of links, as HTML (PEP 503) or JSON (PEP 691), and flat folders.

Source: the simple repository API of the Python packaging specifications.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

import httpx
from packaging.utils import canonicalize_name

from builder.engines.fetching import MISSING, unreachable
from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from builder.engines.fetching import Fetcher

_ACCEPT = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.1"
)
_LIMIT = 64 << 20  # bytes of one page; PyPI's largest has about ten million
_SHA256 = re.compile(r"sha256=([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Link:
    """One file of a page.

    Attributes:
        file: its name.
        url: where it is, without fragment.
        sha256: 64 hexadecimal digits, where the page says so.
        yanked: whether its publisher took it back; it can still be fetched by an exact pin.
    """

    file: str
    url: str
    sha256: str | None = None
    yanked: bool = False


def read_page(body: bytes, content_type: str, url: str) -> tuple[Link, ...]:
    """Read a page that was found at ``url``.

    Raises:
        CouldNotError: ``INDEX_UNREADABLE``, where it says JSON and is not of that form.
    """
    if "json" not in content_type.partition(";")[0]:
        return _html(body.decode("utf-8", "replace"), url)
    try:
        return tuple(
            Link(
                file=str(entry["filename"]),
                url=urljoin(url, str(entry["url"])).partition("#")[0],
                sha256=(entry.get("hashes") or {}).get("sha256"),
                yanked=entry.get("yanked", False) is not False,
            )
            for entry in json.loads(body)["files"]
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CouldNotError(
            Problem(
                code="INDEX_UNREADABLE",
                what=f"the answer is no page of a wheel index: {error}",
                where=url,
                fix="check the index's address, and what a proxy on the way answers",
            )
        ) from error


class _Anchors(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.base = url
        self.found: list[Link] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        href = values.get("href")
        if tag == "base" and href:
            self.base = urljoin(self.base, href)
        if tag != "a" or not href:
            return
        address, _, fragment = urljoin(self.base, href).partition("#")
        hashed = _SHA256.search(fragment)
        self.found.append(
            Link(
                file=unquote(urlsplit(address).path.rpartition("/")[2]),
                url=address,
                sha256=hashed[1] if hashed else None,
                yanked="data-yanked" in values,
            )
        )


def _html(text: str, url: str) -> tuple[Link, ...]:
    anchors = _Anchors(url)
    anchors.feed(text)
    anchors.close()
    return tuple(link for link in anchors.found if link.file)


class Pages:
    """Asks indexes for their pages."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    def project(self, index: str, name: str) -> tuple[Link, ...] | None:
        """Return the files of a project on a simple index; None where it has no such project."""
        return self.page(f"{index.rstrip('/')}/{canonicalize_name(name)}/")

    def page(self, url: str) -> tuple[Link, ...] | None:
        """Return the files that the page at ``url`` names; None where there is no page.

        Raises:
            CouldNotError: no answer, or none that is a page.
        """
        with self._fetcher.open(url, {"Accept": _ACCEPT}) as response:
            if response.status_code in MISSING:
                return None
            body = bytearray()
            try:
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > _LIMIT:
                        raise CouldNotError(
                            Problem("INDEX_UNREADABLE", f"its page is over {_LIMIT} bytes", url)
                        )
            except httpx.HTTPError as error:
                raise unreachable(url, error) from error
            # Links are relative to where a redirect led.
            kind = response.headers.get("content-type", "")
            return read_page(bytes(body), kind, str(response.url))


def flat_wheels(links: tuple[Link, ...] | None) -> tuple[str, ...]:
    """Return the names of the wheels that a page has by itself, as a flat folder does."""
    return tuple(link.file for link in links or () if link.file.endswith(".whl"))
