"""A diagnosis as text for people, on one screen; the same on the host and in the image."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from builder.host.rules.checklist import Check
    from builder.host.rules.model import Diagnosis, Finding

_VERDICTS = {
    "pass": "pass: nothing here keeps the GPU from being used",
    "fail": "fail: the GPU cannot be used as it stands",
    "incomplete": "incomplete: there is no GPU to judge",
}
_EVIDENCE = 8
_MORE = 6


def lines(diagnosis: Diagnosis, width: int = 100) -> Iterator[str]:
    """Yield verdict, cause, fix and evidence of the first finding, then the others, short."""
    yield f"verdict: {_VERDICTS[diagnosis.verdict]}"
    cause = diagnosis.cause
    if cause is None:
        return
    yield from _whole(cause, width)
    follows = [one.code for one in diagnosis.findings if one.follows_from == cause.code]
    if follows:
        yield f"  follows from it: {', '.join(dict.fromkeys(follows))}"
    others = [one for one in diagnosis.findings[1:] if not one.follows_from]
    for one in others[:_MORE]:
        yield ""
        yield from _short(one, width)
    if len(others) > _MORE:
        yield ""
        yield f"and {len(others) - _MORE} more: --json lists them all"


def checklist_lines(checks: Iterable[Check], width: int = 100) -> Iterator[str]:
    """Yield one line a point of the checklist."""
    for check in checks:
        head = f"{check.result:<5} {check.name:<29} "
        yield head + textwrap.shorten(check.detail, width - len(head), placeholder=" ...")


def _whole(finding: Finding, width: int) -> Iterator[str]:
    yield ""
    yield f"{finding.severity}: {finding.code}"
    yield from _wrapped(finding.summary, width, "  ")
    if finding.fix:
        yield f"  fix: {finding.fix}"
    for line in finding.evidence[:_EVIDENCE]:
        yield f"    {line}"
    if len(finding.evidence) > _EVIDENCE:
        yield f"    and {len(finding.evidence) - _EVIDENCE} more"


def _short(finding: Finding, width: int) -> Iterator[str]:
    yield from _wrapped(f"{finding.severity}: {finding.code}: {finding.summary}", width, "")
    if finding.fix:
        yield f"  fix: {finding.fix}"


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent or "  ")
