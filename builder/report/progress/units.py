"""Amounts and times as people read them, in few columns."""

from __future__ import annotations

_LEAST_BYTES = 50_000


def amount(current: int | None, total: int | None) -> str:
    """Return ``12.1 of 40.0 MB``, ``12.1 MB``, or nothing where nothing worth a word moves."""
    if current is None or max(current, total or 0) < _LEAST_BYTES:
        return ""
    megabytes = f"{current / 1e6:.1f}"
    return f"{megabytes} of {total / 1e6:.1f} MB" if total else f"{megabytes} MB"


def short_seconds(seconds: float) -> str:
    """Return a time in at most five characters: ``0.4s``, ``12.3s``, ``132s``, ``75m``."""
    if seconds < 99.95:
        return f"{seconds:.1f}s"
    return f"{seconds:.0f}s" if seconds < 1000 else f"{seconds / 60:.0f}m"
