"""Times steps on a device, without making it wait for the host between them."""

from __future__ import annotations

import collections
import time
from typing import Any, Callable

SLOWDOWN_VARIABLE = "ROCM_TORCH_BENCH_SLOWDOWN"
Now = Callable[[], float]
_AHEAD = 4  # steps that the host may run ahead, as in a user's loop


class CpuClock:
    """Seconds of each step on the host."""

    def __init__(self, slowdown: float = 1.0, now: Now = time.perf_counter) -> None:
        self._slowdown = slowdown
        self._now = now

    def start(self) -> None:
        """Begin; there is nothing to prepare."""

    def time(self, step: Callable[[], Any]) -> float | None:
        """Run a step and return its seconds."""
        started = self._now()
        step()
        _linger(started, self._slowdown, self._now)
        return self._now() - started

    def finish(self) -> list[float]:
        """Return what was not returned yet: nothing."""
        return []


class DeviceClock:
    """Seconds from the end of each step on the device to the end of the next.

    Events mark the ends, and the host waits for one that lies a few steps back: the device never
    runs dry, and no step contains the time of waiting for it.
    """

    def __init__(self, torch: Any, slowdown: float = 1.0) -> None:
        self._torch = torch
        self._slowdown = slowdown
        self._marks: collections.deque[Any] = collections.deque()

    def start(self) -> None:
        """Mark the end of what was done before."""
        self._marks.append(self._mark())

    def time(self, step: Callable[[], Any]) -> float | None:
        """Run a step and return the seconds of an earlier one, or None for the first ones."""
        started = time.perf_counter()
        step()
        if self._slowdown > 1.0:
            self._torch.cuda.synchronize()
            _linger(started, self._slowdown, time.perf_counter)
        self._marks.append(self._mark())
        return self._oldest() if len(self._marks) > _AHEAD + 1 else None

    def finish(self) -> list[float]:
        """Wait for the device and return the seconds of the last steps."""
        return [self._oldest() for _ in range(len(self._marks) - 1)]

    def _mark(self) -> Any:
        mark = self._torch.cuda.Event(enable_timing=True)
        mark.record()
        return mark

    def _oldest(self) -> float:
        begin = self._marks.popleft()
        self._marks[0].synchronize()
        return float(begin.elapsed_time(self._marks[0])) / 1000


def _linger(started: float, factor: float, now: Now) -> None:
    """Keep busy until the time since ``started`` has grown by ``factor``."""
    if factor <= 1.0:
        return
    until = started + (now() - started) * factor
    while now() < until:
        pass


def clock_for(torch: Any, device: str, slowdown: float) -> Any:
    """Return the clock of a device; ``slowdown`` over 1 makes each step that much longer."""
    return CpuClock(slowdown) if device == "cpu" else DeviceClock(torch, slowdown)
