"""Small reads that never fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_MOST = 1_000_000


def read_text(path: Path) -> str | None:
    """Return the text of a file, shortened; ``None`` where it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(_MOST).decode("utf-8", "replace")
    except OSError:
        return None


def first_line(path: Path) -> str | None:
    """Return the first line of a file without blanks around it; ``None`` where there is none."""
    text = (read_text(path) or "").strip()
    return text.splitlines()[0].strip() if text else None


def number(path: Path) -> int | None:
    """Return the whole number that a file holds."""
    text = first_line(path)
    try:
        return int(text, 0) if text else None
    except ValueError:
        return None
