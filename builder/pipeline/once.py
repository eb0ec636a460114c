"""One answer a question and run, however many threads ask."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")


class Once(Generic[T]):
    """Keeps what was found by key, failures as well: the second who asks waits for the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[Hashable, Future[T]] = {}

    def get(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return what ``find`` returned or raised when ``key`` was first asked for."""
        with self._lock:
            future = self._found.get(key)
            first = future is None
            if future is None:
                future = self._found[key] = Future()
        if first:
            try:
                future.set_result(find())
            except BaseException as error:
                future.set_exception(error)
                raise
        return future.result()
