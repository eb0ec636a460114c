"""The stable name of a cell, made of its axis values; nothing is parsed back out of it."""

from __future__ import annotations

from builder.matrix.versions import python_tag

CPU = "cpu"
DEFAULT_FLAVOUR = "runtime"


def flavour_suffix(flavour: str) -> str:
    """Return the last part of ids and tags: empty for ``runtime``, ``-devel`` for ``devel``."""
    return "" if flavour == DEFAULT_FLAVOUR else f"-{flavour}"


def cell_id(rocm: str | None, torch: str, python: str, distro: str, flavour: str) -> str:
    """Return e.g. ``rocm6.2.4-torch2.7.1-py311-ubuntu22.04`` or ``cpu-torch2.6.0-py313-debian13``.

    Args:
        rocm: three components, or ``None`` on the CPU.
        torch: three components.
        python: as on the axis (``3.13``, ``3.13t``).
        distro: as on the axis.
        flavour: as on the axis; ``runtime`` is not written.
    """
    head = CPU if rocm is None else f"rocm{rocm}"
    return f"{head}-torch{torch}-{python_tag(python)}-{distro}{flavour_suffix(flavour)}"
