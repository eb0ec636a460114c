"""Wheels on disk, by the hash of their content: fetched once, resumed, and never trusted unread."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from builder.engines.fetching import MISSING, plain, unreachable
from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.engines.fetching import Fetcher
    from builder.oci import Digest

_PIECE = 1 << 20


class WheelStore:
    """The folder ``<root>/<sha256>/<file>``; a file is there only when its hash was right."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, sha256: Digest, file: str) -> Path:
        """Return where a wheel lies, or will lie."""
        return self.root / sha256.hex / file

    def take(self, source: Path, sha256: Digest) -> bool:
        """Link a file of this machine into the store; False where its content is another."""
        if file_sha256(source) != sha256.hex:
            return False
        link_or_copy(source, self.path(sha256, source.name))
        return True

    def fetch(
        self,
        fetcher: Fetcher,
        url: str,
        file: str,
        sha256: Digest,
        on_bytes: Callable[[int, int | None], None] = lambda *_: None,
    ) -> bool:
        """Bring ``file`` from ``url`` into the store; False where the server has no such file.

        What a broken transfer left is gone on with, in this run or a later one.

        Args:
            fetcher: opens the address.
            url: where the file is.
            file: its name.
            sha256: of its content.
            on_bytes: told how many bytes are here and, where known, of how many.

        Raises:
            CouldNotError: ``WHEEL_DAMAGED``, or the server did not answer.
        """
        target = self.path(sha256, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{file}.part")
        attempt = 0
        while True:
            had = part.stat().st_size if part.exists() else 0
            try:
                if not _receive(fetcher, url, part, on_bytes):
                    return False
                break
            except httpx.HTTPError as error:
                grew = part.exists() and part.stat().st_size > had
                attempt = 0 if grew else attempt + 1
                if attempt >= fetcher.patience.attempts:
                    raise unreachable(url, error) from error
                fetcher.wait(attempt)
        found = file_sha256(part)
        if found != sha256.hex:
            part.unlink()
            raise CouldNotError(
                Problem(
                    code="WHEEL_DAMAGED",
                    what=f"the server gave a {file} with sha256:{found}, and {sha256} is locked",
                    where=plain(url),
                    why="the file was exchanged after it was locked, or a proxy changed it",
                    fix="run the same command again; if it stays so, `rocm-torch lock --update`",
                )
            )
        part.replace(target)
        return True


def _receive(
    fetcher: Fetcher, url: str, part: Path, on_bytes: Callable[[int, int | None], None]
) -> bool:
    """Write what is missing of the file at ``url`` to ``part``; False where there is no file."""
    had = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={had}-"} if had else {}
    with fetcher.open(url, headers) as response:
        if response.status_code in MISSING:
            return False
        if response.status_code == 416:  # it is all here, or more than all: the hash will tell
            return True
        had = had if response.status_code == 206 else 0
        length = response.headers.get("content-length")
        total = had + int(length) if length and length.isdigit() else None
        with part.open("ab" if had else "wb") as stream:
            for piece in response.iter_bytes(_PIECE):
                fetcher.go_on()
                stream.write(piece)
                had += len(piece)
                on_bytes(had, total)
    return True


def file_sha256(path: Path) -> str:
    """Return the hash of a file's content, 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Let ``target`` have the content of ``source``, without a copy where both are on one disk."""
    source, target = Path(source), Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        os.link(source.resolve(), target)
        return
    shutil.copyfile(source, target)
