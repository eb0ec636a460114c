"""Ctrl-C and SIGTERM: the first ends the run in order, the second at once."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedError(BaseException):
    """The run is to end; raised in the main thread wherever it is.

    No ``KeyboardInterrupt``: command line libraries answer that one themselves.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class Interrupts:
    """Hears of signals while it is entered; does nothing outside of the main thread."""

    def __init__(self) -> None:
        self._heard = False
        self._last: list[Callable[[], None]] = []
        self._before: list[tuple[int, object]] = []

    def last(self, action: Callable[[], None]) -> None:
        """Let ``action`` be called before a second signal ends the process; it must not wait."""
        self._last.append(action)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                # One that a parent ignores for us (nohup, a shell's background) stays ignored.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before.append((number, signal.signal(number, self._take)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _take(self, number: int, _: FrameType | None) -> None:
        if not self._heard:
            self._heard = True
            raise StoppedError(number)
        for action in self._last:
            action()
        os._exit(128 + number)
