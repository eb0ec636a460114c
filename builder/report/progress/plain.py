"""Plain lines, one an event: for logs of CI, pipes and terminals that cannot do more."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TextIO

from builder.report.progress.events import Event
from builder.report.progress.state import State, StepState
from builder.report.progress.units import amount

if TYPE_CHECKING:
    from collections.abc import Callable

_CELL_WIDTH = 31
# Bytes move many times a second, and most waits are over at once: a log is told of what lasts.
_DOING_SECONDS = 5.0
_WAIT_SECONDS = 1.0
# BuildKit's own errands, over in a moment.
_INSIDE = "[internal]"


class PlainLines:
    """Turns events into lines; not safe to call from several threads."""

    def __init__(self) -> None:
        self._state = State()
        self._told: dict[tuple[str, str], float] = {}
        self._doing: dict[tuple[str, str], str] = {}

    def feed(self, event: Event, now: float) -> list[str]:
        """Return the lines that ``event``, told at ``now``, gives."""
        self._state = self._state.after(event, now)
        lines = self._long_waits(now)
        text = self._text(event, now)
        if text:
            lines.append(self._line(event.cell, event.step, text))
        return lines

    def _text(self, event: Event, now: float) -> str:
        if event.kind in ("planned", "waiting"):
            return ""
        key = (event.cell, event.step)
        if event.kind != "doing":
            self._told[key] = now
            return f"failed: {event.message}" if event.kind == "failed" else event.message
        new = self._doing.get(key) != event.message
        if event.message.startswith(_INSIDE) or not (
            new or now - self._told.get(key, now) >= _DOING_SECONDS
        ):
            return ""
        self._told[key], self._doing[key] = now, event.message
        step = self._state.steps(event.cell).get(event.step)
        since = step.since if step else now
        moved = amount(event.current, event.total)
        return "  ".join(filter(None, (event.message, moved, f"{now - since:.0f} s")))

    def _long_waits(self, now: float) -> list[str]:
        lines = []
        for cell, steps in self._state.cells:
            for name, step in steps:
                if _waits_long(step, now) and self._told.get((cell, name)) != step.since:
                    self._told[cell, name] = step.since
                    lines.append(self._line(cell, name, f"waits for {step.message}"))
        return lines

    def _line(self, cell: str, step: str, text: str) -> str:
        width = max([_CELL_WIDTH, *(len(name) for name, _ in self._state.cells)])
        return f"{cell or 'rocm-torch':<{width}} {step:<10} {text}"


def _waits_long(step: StepState, now: float) -> bool:
    return step.phase == "waiting" and now - step.since > _WAIT_SECONDS


class PlainProgress:
    """Writes ``cell step message`` lines; safe to call from several threads."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._lines = PlainLines()
        self._turn = threading.Lock()

    def say(self, cell: str, step: str, message: str) -> None:
        """Write one line."""
        self.tell(Event(cell, step, "note", message))

    def tell(self, event: Event) -> None:
        """Write the lines of one event."""
        with self._turn:
            for line in self._lines.feed(event, self._clock()):
                self._stream.write(line + "\n")
            self._stream.flush()

    def close(self) -> None:
        """Do nothing: every line is out."""
