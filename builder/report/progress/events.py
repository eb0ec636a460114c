"""What happens to cells, as values, and who hears of it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# planned: the step will come; waiting: no slot is free for it; doing: what a running step is at
# this moment, told often; note: worth a line of its own.
Kind = Literal["planned", "waiting", "started", "doing", "note", "done", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to one step of one cell.

    Attributes:
        cell: id of the cell; empty for what concerns the whole run.
        step: name of the step.
        kind: what happened.
        message: for people; for ``waiting`` the resources, comma-separated.
        current: bytes moved so far.
        total: bytes to move in all.
    """

    cell: str
    step: str
    kind: Kind
    message: str = ""
    current: int | None = None
    total: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the event as a JSON object; what is not known is left out."""
        fields = {
            "cell": self.cell or None,
            "step": self.step,
            "event": self.kind,
            "message": self.message or None,
            "bytes": self.current,
            "bytes_total": self.total,
        }
        return {name: value for name, value in fields.items() if value is not None}


class Progress(Protocol):
    """Receives what happens to cells, from any thread."""

    def say(self, cell: str, step: str, message: str) -> None:
        """Report something worth a line; ``cell`` is empty for what concerns the whole run."""
        ...

    def tell(self, event: Event) -> None:
        """Report one event."""
        ...

    def close(self) -> None:
        """Show what is to stay: a result follows, and standard error may be its terminal."""
        ...


class Silent:
    """Says nothing."""

    def say(self, cell: str, step: str, message: str) -> None:
        """Take the message and drop it."""

    def tell(self, event: Event) -> None:
        """Take the event and drop it."""

    def close(self) -> None:
        """Do nothing."""


@contextmanager
def timed(
    progress: Progress, cell: str, step: str, clock: Callable[[], float], doing: str
) -> Iterator[Callable[[], float]]:
    """Say that a step starts, and give a function that tells the seconds since then."""
    started = clock()
    progress.tell(Event(cell, step, "started", doing))
    yield lambda: round(clock() - started, 3)
    progress.tell(Event(cell, step, "done", f"done in {clock() - started:.1f} s"))
