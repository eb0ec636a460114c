"""BuildKit's progress as a value: a stream of JSON status objects turned into plain log lines.

Source: ``docker buildx build --progress rawjson`` (BuildKit's SolveStatus). Older buildx prints
each object over many lines, newer prints one a line; both are read.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Doing:
    """What a build does at this moment: a step's name, and bytes where it moves some."""

    name: str
    current: int | None = None
    total: int | None = None


class ProgressLog:
    """Feeds on lines of standard error and gives back the lines of a readable log."""

    def __init__(self) -> None:
        self._pending: list[str] = []
        self._numbers: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._partial: dict[str, bytes] = {}
        self._done: set[str] = set()
        self._moved: dict[str, dict[str, tuple[int, int]]] = {}

    @property
    def doing(self) -> Doing | None:
        """The step that began last and has not ended; None where none runs."""
        running = [key for key in self._names if key not in self._done]
        if not running:
            return None
        moved = self._moved.get(running[-1], {}).values()
        if not moved:
            return Doing(self._names[running[-1]])
        current, total = (sum(part) for part in zip(*moved, strict=True))
        return Doing(self._names[running[-1]], current, total or None)

    def feed(self, line: str) -> list[str]:
        """Take one line and return the log lines that it completes."""
        if not self._pending and not line.startswith("{"):
            return [line] if line.strip() else []
        self._pending.append(line)
        if not line.rstrip().endswith("}"):
            return []
        try:
            status = json.loads("\n".join(self._pending))
        except json.JSONDecodeError:
            return []
        self._pending.clear()
        self._statuses(status)
        return [*self._vertexes(status), *self._logs(status)]

    def rest(self) -> list[str]:
        """Return what was begun and not ended: unfinished lines and text that was no JSON."""
        lines = [
            f"#{self._numbers.get(key, 0)} {_text(data)}"
            for key, data in self._partial.items()
            if data
        ]
        lines += self._pending
        self._pending, self._partial = [], {}
        return lines

    def _vertexes(self, status: dict[str, Any]) -> list[str]:
        lines = []
        for vertex in status.get("vertexes") or ():
            key, name = vertex["digest"], vertex.get("name", "")
            if key not in self._names and (vertex.get("started") or vertex.get("cached")):
                self._numbers[key] = len(self._numbers) + 1
                self._names[key] = name
                lines.append(f"#{self._numbers[key]} {name}")
            number = self._numbers.get(key, 0)
            if vertex.get("error"):
                lines.append(f"#{number} ERROR: {vertex['error']}")
            elif vertex.get("completed") and key in self._names and key not in self._done:
                self._done.add(key)
                lines.append(f"#{number} {'CACHED' if vertex.get('cached') else 'DONE'}")
        return lines

    def _statuses(self, status: dict[str, Any]) -> None:
        for entry in status.get("statuses") or ():
            current, total = entry.get("current") or 0, entry.get("total") or 0
            if current or total:
                parts = self._moved.setdefault(entry["vertex"], {})
                parts[entry.get("id", "")] = (current, total)

    def _logs(self, status: dict[str, Any]) -> list[str]:
        lines = []
        for entry in status.get("logs") or ():
            key = entry["vertex"]
            try:
                data = base64.b64decode(entry.get("data") or "")
            except binascii.Error:
                continue
            # Entries end anywhere, in the middle of a character too: only whole lines are text.
            *whole, self._partial[key] = (self._partial.get(key, b"") + data).split(b"\n")
            lines += [f"#{self._numbers.get(key, 0)} {_text(part)}" for part in whole]
        return lines


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip()
