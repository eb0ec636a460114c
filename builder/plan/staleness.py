"""Why something has to be done for a cell, in words. No reason means that nothing has to be done.

Pure: what is there is passed in as values, gathered in few calls for all cells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.plan.inputs import Inputs

_WORDS = {
    "context/cell.json": "what the image is expected to report changed",
    "rootfs": "files in images/rootfs changed",
    "selftest": "the self-test changed",
    "lock/base": "base moved",
    "lock/archives": "archive moved",
    "lock/wheels": "wheel changed",
    "lock/requirements": "other wheels are asked for",
    "lock/epoch": "epoch changed",
    "program/uv": "uv, which installs the wheels, is another version",
    "format": "the builder's format version changed",
}


@dataclass(frozen=True, slots=True)
class Built:
    """The last finished build of a cell: its inputs, its templates, and whether it is here."""

    inputs: Inputs
    sources: Mapping[str, str]
    present: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about a built image.

    Attributes:
        digest: of the image.
        tests: the digest that the last test of each required level was about, None for no test.
        verdicts: the verdict of each such test.
        sbom: the digest that the last SBOM was about.
        published: the digest that the last publication was about.
        referrers_missing: titles of referrers that the registry does not list.
        unsigned: whether it is to be signed with a key, and was not published so.
        tags_wrong: release tags that do not name the image in the registry.
    """

    digest: str
    tests: Mapping[str, str | None] = field(default_factory=dict)
    verdicts: Mapping[str, str] = field(default_factory=dict)
    sbom: str | None = None
    published: str | None = None
    referrers_missing: tuple[str, ...] = ()
    unsigned: bool = False
    tags_wrong: tuple[str, ...] = ()


def build_reasons(
    inputs: Inputs, built: Built | None, *, sources: Mapping[str, str]
) -> tuple[str, ...]:
    """Return why a cell has to be built; empty when its image is current.

    Args:
        inputs: what would be built now.
        built: the last finished build, if there is one.
        sources: digests of the templates that render the cell now, by name.
    """
    if built is None:
        return ("never built",)
    reasons = [
        reason
        for name in inputs.changed_since(built.inputs)
        for reason in _told(name, built.sources, sources)
    ]
    if reasons:
        return tuple(reasons)
    return () if built.present else ("the built image is no longer in the local layout",)


def evidence_reasons(evidence: Evidence) -> tuple[str, ...]:
    """Return what is missing of a built image: tests, SBOM, publication."""
    reasons = []
    for level, digest in evidence.tests.items():
        if digest is None:
            reasons.append(f"no test report of level {level}")
        elif digest != evidence.digest:
            reasons.append(f"the test report of level {level} is for another digest")
        elif evidence.verdicts.get(level) != "pass":
            reasons.append(f"level {level} is {evidence.verdicts.get(level, 'not known')}")
    if evidence.sbom != evidence.digest:
        reasons.append("no SBOM" if evidence.sbom is None else "the SBOM is for another digest")
    if evidence.published != evidence.digest:
        reasons.append(
            "never published" if evidence.published is None else "another digest is published"
        )
    elif evidence.unsigned:
        reasons.append("not signed with the key of the matrix")
    reasons += [f"referrer missing: {title}" for title in evidence.referrers_missing]
    reasons += [f"tag not where it should be: {tag}" for tag in evidence.tags_wrong]
    return tuple(reasons)


def _told(name: str, then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    if name != "context/Dockerfile":
        return (_WORDS.get(name, f"{name} changed"),)
    changed = sorted(key for key in then.keys() | now.keys() if then.get(key) != now.get(key))
    if not changed:
        return ("what the matrix and the facts say of it changed",)
    return tuple(f"template {key} changed" for key in changed)
