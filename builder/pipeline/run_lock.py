"""One run at a time in a working copy: the second waits, and says for whom.

The lock is a flock, so it ends with its holder, even one that was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import IO, TYPE_CHECKING

from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from pathlib import Path

    from builder.pipeline.workspace import Tools, Workspace


def no_locks(path: Path, error: OSError) -> CouldNotError:
    """Return the failure of a file system without locks, such as Lustre mounted without flock."""
    return CouldNotError(
        Problem(
            code="NO_FILE_LOCKS",
            what=f"this file system takes no locks: {error.strerror}",
            where=str(path),
            fix="work on another file system, or have it mounted with the option flock",
        )
    )


class RunLock:
    """Held from :meth:`take` until :meth:`release` or the end of the process."""

    def __init__(self, workspace: Workspace, tools: Tools) -> None:
        self._path: Path = workspace.state / "run.lock"
        self._tools = tools
        self._stream: IO[str] | None = None

    def take(self, command: str, *, wait: bool) -> None:
        """Take the lock for ``command``.

        Raises:
            CouldNotError: ``WORKING_COPY_BUSY``, where another run has it and ``wait`` is False;
            ``NO_FILE_LOCKS``.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        stream = self._path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._holder(stream)
            if not wait:
                stream.close()
                raise CouldNotError(
                    Problem(
                        code="WORKING_COPY_BUSY",
                        what=f"another run works in this working copy: {holder}",
                        where=str(self._path),
                        fix="wait until it has ended, or leave --no-wait out to do that here",
                    )
                ) from None
            self._tools.progress.say("", "wait", f"for another run in this working copy: {holder}")
            fcntl.flock(stream, fcntl.LOCK_EX)
        except OSError as error:
            stream.close()
            raise no_locks(self._path, error) from error
        stream.truncate(0)
        since = self._tools.now().isoformat(timespec="seconds")
        json.dump({"pid": os.getpid(), "command": command, "since": since}, stream)
        stream.flush()
        self._stream = stream

    def release(self) -> None:
        """Give the lock back; nothing happens where it is not held."""
        if self._stream is not None:
            self._stream.truncate(0)
            self._stream.close()
            self._stream = None

    @staticmethod
    def _holder(stream: IO[str]) -> str:
        stream.seek(0)
        try:
            holder = json.loads(stream.read())
            return f"`{holder['command']}`, process {holder['pid']}, since {holder['since']}"
        except (ValueError, KeyError, TypeError):
            return "it did not say which"
