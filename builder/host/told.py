"""A diagnosis for people, on one screen, and for programs."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from builder.host.rules import Diagnosis, Finding
    from builder.host.snapshot import HostSnapshot

SCHEMA = "rocm-torch/doctor/v1"
EXIT_CODES = {"pass": 0, "fail": 2, "incomplete": 3}
_WIDTH = 100
_MOST_EVIDENCE = 6
_MOST_OTHERS = 6
_NOT_OPENABLE = frozenset({"EACCES", "EPERM"})
_VERDICTS = {
    "pass": "nothing here keeps a container from the GPU",
    "fail": "the GPU cannot be used as it stands",
    "incomplete": "there is no GPU to judge",
}


def stage(snapshot: HostSnapshot) -> str:
    """Return how far the compute device is: each stage has another owner of the fix.

    ``not passed in``: whoever starts the container. ``passed but not openable``: owner, group,
    policy or device rule. ``openable but refused by the driver``: the machine. ``opened``: none.
    """
    node = snapshot.kfd or snapshot.dxg
    if node is None:
        return "not passed in" if snapshot.container else "not there"
    if node.open_errno is None:
        return "not tried"
    if node.open_errno == "":
        return "opened"
    if node.open_errno in _NOT_OPENABLE:
        return "passed but not openable"
    return "openable but refused by the driver"


def document(
    snapshot: HostSnapshot, diagnosis: Diagnosis, run_args: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return the diagnosis as ``rocm-torch/doctor/v1``."""
    return {
        "schema": SCHEMA,
        "verdict": diagnosis.verdict,
        "device": stage(snapshot),
        "findings": [finding.to_json() for finding in diagnosis.findings],
        "run_args": {engine: list(words) for engine, words in run_args.items()},
    }


def lines(
    snapshot: HostSnapshot, diagnosis: Diagnosis, run_args: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield the report: verdict, cause, fix, evidence; what follows from it; then the rest."""
    yield f"verdict: {diagnosis.verdict} ({_VERDICTS[diagnosis.verdict]})"
    device = "/dev/dxg" if snapshot.dxg and not snapshot.kfd else "/dev/kfd"
    yield f"{device}: {stage(snapshot)}"
    roots = [one for one in diagnosis.findings if not one.follows_from]
    cause, others = roots[:1], roots[1:]
    for one in cause:
        yield ""
        yield from _whole(one, diagnosis.findings)
    loud = [one for one in others if one.severity != "info"]
    for one in loud[:_MOST_OTHERS]:
        yield ""
        yield from _short(one)
    left = [one.code for one in others if one not in loud[:_MOST_OTHERS]]
    if left:
        yield ""
        yield from _wrapped("also: ", f"{', '.join(left)} (--json tells all of it)")
    for engine, words in run_args.items():
        if words and diagnosis.verdict != "fail":
            yield ""
            yield f"{engine} run {' '.join(words)} IMAGE"


def _whole(finding: Finding, findings: Sequence[Finding]) -> Iterator[str]:
    yield from _wrapped(f"{finding.severity} {finding.code}: ", finding.summary)
    if finding.fix:
        yield f"  fix: {finding.fix}"
    for line in finding.evidence[:_MOST_EVIDENCE]:
        yield f"  evidence: {line}"
    if len(finding.evidence) > _MOST_EVIDENCE:
        yield f"  evidence: and {len(finding.evidence) - _MOST_EVIDENCE} more lines"
    if finding.source:
        yield f"  source: {finding.source}"
    follows = [one.code for one in findings if one.follows_from == finding.code]
    if follows:
        yield from _wrapped("  follows from it: ", ", ".join(follows))


def _short(finding: Finding) -> Iterator[str]:
    yield from _wrapped(f"{finding.severity} {finding.code}: ", finding.summary)
    if finding.fix:
        yield f"  fix: {finding.fix}"


def _wrapped(head: str, text: str) -> list[str]:
    """Wrap prose. Fixes and evidence are not wrapped: they are copied."""
    return textwrap.wrap(
        head + text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
