"""Files of a layout that appear whole or not at all, whoever else writes beside us."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 1 << 20
_READABLE = 0o644


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure of the file system below into a problem that names ``path``."""
    try:
        yield
    except OSError as error:
        raise CouldNotError(
            Problem(
                code="LAYOUT_NOT_WRITTEN",
                what=f"the OCI layout cannot be written: {error.strerror or error}",
                where=str(path),
                fix="make room and give yourself the right to write there, then run again",
            )
        ) from error


@contextmanager
def temporary(folder: Path) -> Iterator[IO[bytes]]:
    """Open a new file in ``folder``; what the caller has not renamed is removed at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix="new-")
    try:
        os.close(handle)
        with Path(name).open("wb") as stream:  # opened by name: what publish() renames
            yield stream
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()


def publish(stream: IO[bytes], path: Path) -> None:
    """Give a temporary file its name; whatever stood there is replaced in one step."""
    stream.flush()
    os.fchmod(stream.fileno(), _READABLE)
    path.parent.mkdir(parents=True, exist_ok=True)
    Path(stream.name).replace(path)


def replace_file(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` so that no reader ever sees a part of it."""
    with writing(path), temporary(path.parent) as stream:
        stream.write(content)
        publish(stream, path)
