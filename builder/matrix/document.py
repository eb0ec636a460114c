"""Plain data with a place for each part of it, so that a problem can say file:line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands (line and column from 1), and for a scalar its text as written."""

    line: int
    column: int
    text: str | None = None


@dataclass(slots=True)
class Document:
    """A YAML document as plain data, with a place for each path into it."""

    name: str
    data: Any = None
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)

    def place(self, path: Path) -> Place:
        """Return the place of the key or item at ``path``, or of the nearest part around it."""
        for length in range(len(path), -1, -1):
            part = path[:length]
            found = self.keys.get(part) or self.values.get(part)
            if found:
                return found
        return Place(1, 1)

    def where(self, path: Path) -> str:
        """Return ``file:line`` of the key or item at ``path``."""
        return f"{self.name}:{self.place(path).line}"

    def text(self, path: Path) -> str | None:
        """Return the scalar at ``path`` as it is written, or ``None`` where it is no scalar."""
        found = self.values.get(path)
        return found.text if found else None

    def forget_item(self, path: Path) -> None:
        """Follow the removal of a list item at ``path``: the items after it move up by one."""
        *head, removed = path
        size, before = len(head), tuple(head)
        for places in (self.keys, self.values):
            held = list(places.items())
            places.clear()
            for at, place in held:
                index = at[size] if len(at) > size and at[:size] == before else None
                if not isinstance(index, int) or index < int(removed):
                    places[at] = place
                elif index > int(removed):
                    places[(*before, index - 1, *at[size + 1 :])] = place

    def adopt(self, other: Document, path: Path, names: set[str]) -> None:
        """Take over the places of ``other`` under those names at ``path`` (merge keys)."""
        size = len(path)
        for mine, theirs in ((self.keys, other.keys), (self.values, other.values)):
            for at, place in theirs.items():
                if len(at) > size and at[size] in names:
                    mine[at] = place
