"""One process of this user publishes to a repository at a time, from whatever working copy.

Registries have no compare-and-set. Between machines it is CI that lets one job publish at a time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.pipeline.workspace import Tools

_POLL_SECONDS = 0.1


class _Held:
    """The locks that this process holds: its threads publish different cells, and share one."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.streams: dict[Path, tuple[IO[str], int]] = {}

    def enter(self, path: Path) -> bool:
        """Take the lock, or tell that another process has it."""
        with self.guard:
            stream, users = self.streams.get(path, (None, 0))
            if stream is None:
                stream = path.open("a", encoding="utf-8")
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    stream.close()
                    return False
            self.streams[path] = (stream, users + 1)
            return True

    def leave(self, path: Path) -> None:
        """Give the lock back when the last thread leaves."""
        with self.guard:
            stream, users = self.streams.pop(path)
            if users > 1:
                self.streams[path] = (stream, users - 1)
            else:
                stream.close()


_HELD = _Held()


def _private(folder: Path) -> None:
    """Make a folder of this user, or raise where somebody else made it first."""
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise CouldNotError(
            Problem(
                code="LOCK_FOLDER_FOREIGN",
                what="the folder of the publishing locks is not yours",
                where=str(folder),
                fix="set TMPDIR to a folder of your own",
            )
        )


@contextmanager
def one_publisher(tools: Tools, name: str, *, folder: Path | None = None) -> Iterator[None]:
    """Hold the right to publish to ``name`` (registry and repository), and wait for it.

    Raises:
        CouldNotError: ``STOPPED``, where the run is to end while it waits; or
            ``LOCK_FOLDER_FOREIGN``.
    """
    root = folder or Path(tempfile.gettempdir()) / f"rocm-torch-{os.getuid()}"
    _private(root)
    path = root / f"publish-{hashlib.sha256(name.encode()).hexdigest()[:16]}.lock"
    told = False
    while not _HELD.enter(path):
        if not told:
            tools.progress.say("", "publish", f"waits: another process publishes to {name}")
            told = True
        tools.go_on()
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        _HELD.leave(path)
