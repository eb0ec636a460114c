"""A request to a registry and its answer, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx


@dataclass(frozen=True, slots=True)
class Call:
    """One request. ``body`` is called for each attempt, so that it can be sent again."""

    method: Literal["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE"]
    url: str
    scopes: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)
    body: Callable[[], Iterator[bytes] | bytes] | None = None

    @property
    def is_read(self) -> bool:
        """Tell whether it changes nothing and can be repeated."""
        return self.method in ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; ``url`` is without the query, which may be signed."""

    status: int
    headers: httpx.Headers = field(repr=False)
    body: bytes = field(repr=False)
    url: str
