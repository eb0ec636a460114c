"""What a run says while it works: plain lines, one an event, on standard error.

Standard output belongs to the result, so that a caller can read it whatever is shown meanwhile.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Progress(Protocol):
    """Receives what happens to cells."""

    def say(self, cell: str, step: str, message: str) -> None:
        """Report one event of one step; ``cell`` is empty for what concerns the whole run."""
        ...


class PlainProgress:
    """Writes ``cell step message`` lines; safe to call from several threads."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._turn = threading.Lock()

    def say(self, cell: str, step: str, message: str) -> None:
        """Write one line."""
        with self._turn:
            self._stream.write(f"{cell or 'rocm-torch':<28} {step:<8} {message}\n")
            self._stream.flush()


class Silent:
    """Says nothing."""

    def say(self, cell: str, step: str, message: str) -> None:
        """Take the event and drop it."""


@contextmanager
def timed(
    progress: Progress, cell: str, step: str, clock: Callable[[], float], doing: str
) -> Iterator[Callable[[], float]]:
    """Say that a step starts, and give a function that tells the seconds since then."""
    started = clock()
    progress.say(cell, step, doing)
    yield lambda: round(clock() - started, 3)
    progress.say(cell, step, f"done in {clock() - started:.1f} s")
