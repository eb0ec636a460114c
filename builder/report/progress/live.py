"""The live table on a terminal; rich draws it, and is loaded when a step really starts."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TextIO

from builder.report.progress.events import Event
from builder.report.progress.frame import frame
from builder.report.progress.plain import PlainLines
from builder.report.progress.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

_PER_SECOND = 8


class LiveProgress:
    """A table of the cells while their steps run; plain lines before and after.

    The table begins with the first planned step that starts and stays as it was at
    :meth:`close`. Colours follow ``NO_COLOR``, by way of rich.
    """

    def __init__(
        self,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
        console: Console | None = None,
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._console = console
        self._state = State()
        self._begin: float | None = None
        self._lines = PlainLines()
        self._live: Live | None = None
        # Drawing happens in a thread of rich's, which asks for the table under rich's own lock:
        # what reaches for rich's lock in turn must not hold this one.
        self._turn = threading.Lock()
        self._drawing = threading.Lock()

    def say(self, cell: str, step: str, message: str) -> None:
        """Show one message."""
        self.tell(Event(cell, step, "note", message))

    def tell(self, event: Event) -> None:
        """Take one event into the table; what concerns the whole run is a line of its own."""
        with self._turn:
            now = self._clock()
            planned = bool(self._state.cells)
            if event.kind == "planned" or planned:
                self._begin = now if self._begin is None else self._begin
                self._state = self._state.after(event, now)
            lines = self._lines.feed(event, now)
        with self._drawing:
            if planned and event.kind == "started" and self._live is None:
                self._start()
            if not planned or not event.cell or event.kind == "failed":
                self._write(lines)

    def close(self) -> None:
        """Draw the table a last time and leave it there."""
        with self._drawing:
            live, self._live = self._live, None
            if live is not None:
                live.stop()
        with self._turn:
            self._state, self._begin = State(), None

    def _write(self, lines: list[str]) -> None:
        for line in lines:
            if self._live is not None:
                self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)
            else:
                self._stream.write(line + "\n")
        if self._live is None:
            self._stream.flush()

    def _start(self) -> None:
        from rich.console import Console
        from rich.live import Live

        console = self._console or Console(file=self._stream)
        self._live = Live(
            console=console,
            get_renderable=lambda: self._table(console),
            refresh_per_second=_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def _table(self, console: Console) -> Text:
        from rich.text import Text

        with self._turn:
            state, begin, now = self._state, self._begin or 0.0, self._clock()
        # The last column stays free: some terminals wrap after it.
        size = console.size
        lines = frame(state, now, width=size.width - 1, height=size.height - 1, begin=begin)
        styled = (Text.assemble(*((span.text, span.style) for span in line)) for line in lines)
        return Text("\n", no_wrap=True, overflow="crop").join(styled)
