"""JSON lines, one an event: for programs that show a run themselves."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, TextIO

from builder.report.progress.events import Event

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = "rocm-torch/progress/v1"
_DOING_SECONDS = 0.25


class JsonProgress:
    """Writes ``{"schema", "seconds", "cell", "step", "event", ...}``; safe for several threads.

    ``seconds`` counts from the first event. Bytes moved are told at most four times a second.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._begin = clock()
        self._told: dict[tuple[str, str], tuple[str, float]] = {}
        self._turn = threading.Lock()

    def say(self, cell: str, step: str, message: str) -> None:
        """Write one line."""
        self.tell(Event(cell, step, "note", message))

    def tell(self, event: Event) -> None:
        """Write the line of one event."""
        with self._turn:
            now, key = self._clock(), (event.cell, event.step)
            if event.kind == "doing":
                message, told = self._told.get(key, (None, now))
                if message == event.message and now - told < _DOING_SECONDS:
                    return
                self._told[key] = (event.message, now)
            document = {"schema": SCHEMA, "seconds": round(now - self._begin, 3)}
            self._stream.write(json.dumps(document | event.to_json(), ensure_ascii=False) + "\n")
            self._stream.flush()

    def close(self) -> None:
        """Do nothing: every line is out."""
