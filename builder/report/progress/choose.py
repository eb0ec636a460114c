"""Which display a run gets."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

from builder.report.progress.events import Progress, Silent

if TYPE_CHECKING:
    from collections.abc import Mapping


class Style(StrEnum):
    """How progress is shown."""

    AUTO = "auto"
    LIVE = "live"
    PLAIN = "plain"
    JSON = "json"


def style_for(wanted: Style, *, terminal: bool, environ: Mapping[str, str]) -> Style:
    """Return what ``auto`` means here: a table where a person watches a terminal that can move.

    Args:
        wanted: what the call asks for; anything but ``auto`` is what it gets.
        terminal: whether standard error is a terminal.
        environ: ``TERM`` and ``CI`` are looked at; ``NO_COLOR`` takes the colours alone.
    """
    if wanted is not Style.AUTO:
        return wanted
    dumb = environ.get("TERM", "") in ("", "dumb", "unknown")
    ci = environ.get("CI", "").lower() not in ("", "0", "false")
    return Style.LIVE if terminal and not dumb and not ci else Style.PLAIN


def open_progress(
    wanted: Style, stream: TextIO, environ: Mapping[str, str], *, quiet: bool
) -> Progress:
    """Return the display of a run on ``stream``; each is loaded when it is used."""
    if quiet:
        return Silent()
    style = style_for(wanted, terminal=stream.isatty(), environ=environ)
    if style is Style.LIVE:
        from builder.report.progress.live import LiveProgress

        return LiveProgress(stream)
    if style is Style.JSON:
        from builder.report.progress.lines import JsonProgress

        return JsonProgress(stream)
    from builder.report.progress.plain import PlainProgress

    return PlainProgress(stream)
